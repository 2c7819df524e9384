#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/json.h"
#include "core/json_text.h"
#include "support/golden.h"

namespace drover::test {

/// A case of a golden file: its scalars and its tensors (tools/oracle/README.md).
class GoldenCase {
  public:
    GoldenCase(const SafetensorsFile& file, const Json& scalars)
        : file_(file), scalars_(scalars), name_(scalars.at("name").get<std::string>()) {}

    const std::string& name() const { return name_; }
    const Json& operator[](const char* scalar) const { return scalars_.at(scalar); }
    bool is_f32() const { return scalars_.at("dtype") == "float32"; }
    DType dtype() const { return is_f32() ? DType::f32 : DType::bf16; }
    Tensor tensor(const std::string& field) const { return file_.tensor(name_ + "." + field); }

  private:
    const SafetensorsFile& file_;
    const Json& scalars_;
    std::string name_;
};

/// Calls body(GoldenCase) for every case of tests/golden/ops/<operation>.safetensors.
template <class Body>
void for_each_golden_case(const std::string& operation, const Body& body) {
    const SafetensorsFile file(golden_path("ops/" + operation + ".safetensors"));
    const Json cases = parse_json(file.header().metadata.at("cases"), operation);
    ASSERT_FALSE(cases.empty());
    for (const Json& scalars : cases) {
        SCOPED_TRACE(scalars.at("name").get<std::string>());
        body(GoldenCase(file, scalars));
    }
}

}  // namespace drover::test
