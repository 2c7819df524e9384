#include "backend/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/backend_under_test.h"
#include "backend/operation_profile.h"
#include "backend/run_settings.h"

namespace drover::test::recorder_test {
namespace {

/// y = x · w, then y += z, through a recorder. The product's sums are long enough to be split into parts,
/// which are combined in scratch memory.
class RecordedSequence : public ::testing::Test {
  protected:
    static constexpr std::int64_t rows = 64, length = 8192;

    /// x = z = value and w = 1, so that every element of y is value · (length + 1).
    void run(float value, const RecordingKey& key = {}) {
        bench_.run(Fill{.x = x_, .value = value});
        bench_.run(Fill{.x = z_, .value = value});
        backend_.run_recorded(*recorder_, backend_.main_stream(), key, [&] {
            ++calls_;
            backend_.run(backend_.main_stream(), Gemm{.a = x_, .b = w_, .c = y_});
            backend_.run(backend_.main_stream(), Add{.into = y_, .x = z_});
            inside_();
        });
        for (const double element : bench_.values_of(y_))
            ASSERT_EQ(element, static_cast<double>(value) * (length + 1));
    }

    /// Scratch memory moves.
    void grow_scratch() {
        constexpr std::int64_t width = 8192;
        const Tensor c = bench_.make(DType::bf16, {width, width}), a = bench_.make(DType::bf16, {width, 8}),
                     b = bench_.make(DType::bf16, {8, width}), bias = bench_.make(DType::f32, {width});
        bench_.run(Gemm{.a = a, .b = b, .c = c, .bias = bias, .accumulate = true});
    }

    Workbench bench_;
    Backend& backend_ = bench_.backend();
    Tensor x_ = bench_.make(DType::f32, {rows, length}), w_ = bench_.make(DType::f32, {length, rows}),
           y_ = bench_.make(DType::f32, {rows, rows}), z_ = bench_.make(DType::f32, {rows, rows});
    std::unique_ptr<Recorder> recorder_ = backend_.make_recorder();
    std::function<void()> inside_ = [] {};
    int calls_ = 0;

    void SetUp() override { bench_.run(Fill{.x = w_, .value = 1}); }
};

TEST_F(RecordedSequence, ReadsWhatTheMemoryHoldsEachTime) {
    for (int i = 1; i <= 5; ++i) run(static_cast<float>(i));
    EXPECT_EQ(calls_, tests_use_cuda() ? 2 : 5);
}

TEST_F(RecordedSequence, IsToldApartByItsKey) {
    const std::array<Tensor, 2> operands = {x_, bench_.make(DType::f32, {rows, length})};
    for (int i = 1; i <= 4; ++i)
        for (std::int64_t which : {0, 1}) {
            x_ = operands[static_cast<std::size_t>(which)];
            run(static_cast<float>(2 * i + which), {which});
        }
    EXPECT_EQ(calls_, tests_use_cuda() ? 4 : 8);
}

TEST_F(RecordedSequence, FollowsScratchMemoryThatMoves) {
    for (int i = 1; i <= 3; ++i) run(static_cast<float>(i));
    grow_scratch();
    // The former scratch memory is now used by something else.
    const Tensor other = bench_.make(DType::f32, {std::int64_t{1} << 25});
    bench_.run(Fill{.x = other, .value = 5});
    calls_ = 0;
    for (int i = 1; i <= 3; ++i) run(static_cast<float>(i));
    EXPECT_EQ(calls_, tests_use_cuda() ? 1 : 3);
    for (const double element : bench_.values_of(other)) ASSERT_EQ(element, 5);
}

TEST_F(RecordedSequence, RunsAsItIsWhenItCannotBeRecorded) {
    inside_ = [&] { backend_.synchronize(backend_.main_stream()); };
    for (int i = 1; i <= 4; ++i) run(static_cast<float>(i));
    EXPECT_EQ(calls_, tests_use_cuda() ? 5 : 4);  // one of them unsuccessful
    EXPECT_EQ(recorder_->replays(), 0);
    inside_ = [] {};
    for (int i = 1; i <= 3; ++i) run(static_cast<float>(i), {1});
    EXPECT_EQ(recorder_->replays(), tests_use_cuda() ? 2 : 0);
}

TEST_F(RecordedSequence, IsSeenByAnObserver) {
    for (int i = 1; i <= 3; ++i) run(static_cast<float>(i));
    const OperationProfile profile(backend_);
    run(4);
    std::vector<std::string> names;
    for (const OperationTotal& total : profile.totals()) names.emplace_back(total.cost.name);
    EXPECT_NE(std::find(names.begin(), names.end(), "gemm data gradient"), names.end());
    EXPECT_NE(std::find(names.begin(), names.end(), "add"), names.end());
}

TEST(Recorder, CanBeTurnedOff) {
    if (!tests_use_cuda()) GTEST_SKIP() << "only a GPU's sequences are recorded";
    const std::unique_ptr<Backend> backend = make_test_backend({.cuda_graphs = false});
    const std::unique_ptr<Recorder> recorder = backend->make_recorder();
    int calls = 0;
    for (int i = 0; i < 4; ++i) recorder->run(backend->main_stream(), {}, [&] { ++calls; });
    EXPECT_EQ(calls, 4);
}

}  // namespace
}  // namespace drover::test::recorder_test
