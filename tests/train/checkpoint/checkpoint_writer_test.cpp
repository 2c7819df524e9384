#include "train/checkpoint/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "backend/backend.h"
#include "io/checkpoint_manifest.h"
#include "support/golden.h"
#include "train/single_mesh.h"

namespace drover {
namespace {

/// A matrix whose left and right columns the writer has as two parts.
struct Columns {
    std::int64_t rows, left, right;
};

class CheckpointWriting : public testing::TestWithParam<Columns> {
  protected:
    static std::vector<float> part_of(const std::vector<float>& matrix, std::int64_t begin,
                                      std::int64_t count) {
        const auto [rows, left, right] = GetParam();
        std::vector<float> part;
        for (std::int64_t row = 0; row < rows; ++row) {
            const auto first = matrix.begin() + row * (left + right) + begin;
            part.insert(part.end(), first, first + count);
        }
        return part;
    }
};

/// Either copied first or, if the buffer is too small, streamed in pieces of at most a MiB: of many rows, or
/// of part of a longer row.
TEST_P(CheckpointWriting, PutsEveryPartAtItsPlace) {
    const auto [rows, left, right] = GetParam();
    std::vector<float> matrix(static_cast<std::size_t>(rows * (left + right)));
    std::iota(matrix.begin(), matrix.end(), 1.0f);
    std::vector<float> lefts = part_of(matrix, 0, left), rights = part_of(matrix, left, right);
    TensorFiles tensors;
    tensors.add_file("model.safetensors", {{"matrix", DType::f32, {rows, left + right}}});
    tensors.add_part("matrix", Tensor::of(lefts.data(), {rows, left}), 0, rows, 0, left, left + right);
    tensors.add_part("matrix", Tensor::of(rights.data(), {rows, right}), 0, rows, left, right, left + right);
    const auto backend = make_cpu_backend();
    for (const std::uint64_t buffer_bytes : {std::uint64_t{1} << 30, std::uint64_t{0}}) {
        ASSERT_GT(tensors.part_bytes(), buffer_bytes == 0 ? std::uint64_t{1} << 20 : 0);
        const test::TemporaryFolder folder;
        CheckpointWriter writer(*backend, test::single_mesh(), buffer_bytes);
        writer.begin({.folder = folder / "checkpoint-1", .tensors = tensors});
        std::ranges::fill(lefts, 0.0f);  // they may change now
        EXPECT_EQ(writer.poll(true)->error, "");
        std::ranges::copy(part_of(matrix, 0, left), lefts.begin());
        EXPECT_EQ(find_damage(folder / "checkpoint-1"), std::nullopt);
        const SafetensorsFile file(folder / "checkpoint-1/model.safetensors");
        const Tensor written = file.tensor("matrix");
        EXPECT_TRUE(std::ranges::equal(std::span(written.data<float>(), matrix.size()), matrix))
            << buffer_bytes;
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CheckpointWriting,
                         testing::Values(Columns{700, 600, 400}, Columns{3, 300'000, 200'000}),
                         [](const auto& parameter) { return "Rows" + std::to_string(parameter.param.rows); });

}  // namespace
}  // namespace drover
