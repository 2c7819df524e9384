#include "io/gguf_header.h"

#include <gtest/gtest.h>

#include "io/raw_files.h"
#include "support/golden.h"

namespace drover {
namespace {

TEST(GgufHeader, IsWhatThePackageGgufWrites) {
    GgufHeader header;
    header.text("general.architecture", "llama");
    header.text("a.text", "übung");
    header.number("a.number", 4'000'000'000);
    header.real("a.real", 1e-5);
    header.boolean("a.boolean", true);
    header.texts("a.texts", {"one", "", "three"});
    header.reals("a.reals", {0.5f, -1.25f});
    header.numbers("a.numbers", {1, -2, 3});
    header.tensor("odd", GgmlType::f32, {5});
    header.tensor("matrix", GgmlType::f16, {3, 4});
    header.tensor("quantized", GgmlType::q8_0, {2, 64});
    const std::string file = test::read_raw(test::golden_path("gguf/header.gguf"));
    const std::string bytes = header.bytes();
    EXPECT_EQ(bytes, file.substr(0, bytes.size()));
    EXPECT_EQ(header.offset_of(0), bytes.size());
    EXPECT_EQ(header.offset_of(1), bytes.size() + 32);
    EXPECT_EQ(header.offset_of(2), bytes.size() + 64);
    EXPECT_EQ(header.file_size(), file.size());
}

}  // namespace
}  // namespace drover
