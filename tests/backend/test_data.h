#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "support/golden.h"

namespace drover::test {

/// Normal numbers of the given standard deviation, rounded to `dtype`; the same ones for the same seed.
inline OwnedTensor random_normal(DType dtype, const Shape& shape, unsigned seed, double deviation = 1,
                                 double mean = 0) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal(mean, deviation);
    OwnedTensor exact(DType::f32, shape);
    for (std::int64_t i = 0; i < shape.numel(); ++i)
        exact.tensor().data<float>()[i] = static_cast<float>(normal(generator));
    return OwnedTensor::converted(exact, dtype);
}

/// Integers of [low, high).
inline OwnedTensor random_integers(const Shape& shape, unsigned seed, std::int32_t low, std::int32_t high) {
    std::mt19937 generator(seed);
    std::uniform_int_distribution<std::int32_t> uniform(low, high - 1);
    OwnedTensor result(DType::i32, shape);
    for (std::int64_t i = 0; i < shape.numel(); ++i)
        result.tensor().data<std::int32_t>()[i] = uniform(generator);
    return result;
}

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
