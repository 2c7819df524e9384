#include "model/device_batch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/backend.h"
#include "support/golden.h"

namespace drover {
namespace {

TEST(TargetRows, PayOnlyWhereFewTokensHaveATarget) {
    // Rows that are trained as a whole lack only their last target, however short they are.
    for (const std::int64_t row_length : {8, 16, 512, 2048, 4096})
        for (const std::int64_t rows : {1, 2, 7, 64, 1024})
            EXPECT_EQ(TargetRows::count(rows * (row_length - 1), rows * row_length), 0)
                << rows << " x " << row_length;
    EXPECT_EQ(TargetRows::count(0, 0), 0);     // a rank without rows
    EXPECT_EQ(TargetRows::count(1, 64), 0);    // as many rows as tokens
    EXPECT_EQ(TargetRows::count(0, 128), 64);  // the weight's gradient is made from rows without a target
    EXPECT_EQ(TargetRows::count(64, 128), 64);
    EXPECT_EQ(TargetRows::count(65, 128), 0);
    EXPECT_EQ(TargetRows::count(65, 256), 128);
    EXPECT_EQ(TargetRows::count(1638, 16384), 1792);  // steps of 256
    EXPECT_EQ(TargetRows::count(14080, 16384), 14080);
    EXPECT_EQ(TargetRows::count(14081, 16384), 0);
}

TEST(TargetRows, HaveFewSizesAndRoomForEveryTarget) {
    for (const std::int64_t tokens : {1, 63, 100, 2048, 5000, 16384, 100000}) {
        std::vector<std::int64_t> sizes;
        for (std::int64_t targets = 0; targets <= tokens; ++targets) {
            const std::int64_t rows = TargetRows::count(targets, tokens);
            if (rows == 0) continue;
            ASSERT_GE(rows, targets);
            ASSERT_LT(rows, tokens);
            if (sizes.empty() || sizes.back() != rows) sizes.push_back(rows);
        }
        EXPECT_LE(sizes.size(), 64u) << tokens;
    }
}

class UploadedTargets : public ::testing::Test {
  protected:
    static constexpr std::int64_t rows = 4, row_length = 48, vocab = 100;

    UploadedTargets() {
        Arena measuring = Arena::measuring(Device::cpu);
        buffers_.plan(measuring, rows, row_length, 1);
        const std::size_t bytes = measuring.plan().total;
        arena_ = std::make_unique<Arena>(backend_->allocate(bytes), bytes, Device::cpu);
        buffers_.plan(*arena_, rows, row_length, 1);
    }

    DeviceBatch upload(const std::vector<std::int32_t>& labels) {
        const std::vector<std::int32_t> ids(labels.size(), 1);
        return buffers_.upload(*backend_, backend_->main_stream(),
                               Batch::full_rows(rows, row_length, ids, labels), vocab);
    }

    std::unique_ptr<Backend> backend_ = make_cpu_backend();
    std::unique_ptr<Arena> arena_;
    BatchBuffers buffers_;
};

TEST_F(UploadedTargets, AreListedInOrder) {
    std::vector<std::int32_t> labels(rows * row_length, no_label);
    labels[0] = 5;                   // the first of a row predicts nothing
    labels[7] = 6;                   // the target of token 6
    labels[row_length - 1] = 7;      // of the last token but one
    labels[3 * row_length + 1] = 0;  // of token 144
    const DeviceBatch batch = upload(labels);
    ASSERT_TRUE(batch.target_rows);
    const std::vector<double> tokens = test::values(batch.target_rows.tokens),
                              targets = test::values(batch.target_rows.targets),
                              row_of_token = test::values(batch.target_rows.row_of_token);
    std::vector<double> expected_tokens(64, -1), expected_targets(64, no_label),
        expected_rows(rows * row_length, -1);
    std::copy_n(std::vector<double>{6, row_length - 2, 3 * row_length}.begin(), 3, expected_tokens.begin());
    std::copy_n(std::vector<double>{6, 7, 0}.begin(), 3, expected_targets.begin());
    expected_rows[6] = 0;
    expected_rows[row_length - 2] = 1;
    expected_rows[3 * row_length] = 2;
    EXPECT_EQ(tokens, expected_tokens);
    EXPECT_EQ(targets, expected_targets);
    EXPECT_EQ(row_of_token, expected_rows);
}

TEST_F(UploadedTargets, AreNotListedWhenAllTokensHaveOne) {
    EXPECT_FALSE(upload(std::vector<std::int32_t>(rows * row_length, 3)).target_rows);
}

TEST_F(UploadedTargets, AreNotListedForAShape) {
    const DeviceBatch batch =
        buffers_.upload(*backend_, backend_->main_stream(), Batch::of_shape(rows, row_length), vocab);
    EXPECT_FALSE(batch.target_rows);
}

}  // namespace
}  // namespace drover
