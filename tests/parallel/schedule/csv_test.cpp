#include "parallel/schedule/csv.h"

#include <gtest/gtest.h>

#include "core/text_file.h"
#include "parallel/schedule/generators.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

TEST(ScheduleCsv, IdleCellsShowTheMoments) {
    EXPECT_EQ(to_csv_with_idle_cells(one_forward_one_backward(2, 2)),
              "0F0,0F1,,0B0,,0B1\r\n,1F0,1B0,1F1,1B1\r\n");
    const std::string text = to_csv_with_idle_cells(zero_bubble(3, 1, 3));
    EXPECT_EQ(text,
              "0F0,0F1,0F2,,,0I0,0W0,0I1,0W1,0I2,0W2\r\n"
              ",1F0,1F1,,1I0,1F2,1I1,1W0,1I2,1W1,1W2\r\n"
              ",,2F0,2I0,2F1,2I1,2F2,2I2,2W0,2W1,2W2\r\n");
    EXPECT_EQ(parse_schedule_csv(text, "test"), zero_bubble(3, 1, 3));
}

TEST(ScheduleCsv, AFileIsReadAsItWasWritten) {
    const test::TemporaryFolder folder;
    write_file_atomically(folder / "schedule.csv", to_csv(interleaved(4, 3, 8)));
    EXPECT_EQ(read_schedule_csv(folder / "schedule.csv"), interleaved(4, 3, 8));
    write_file_atomically(folder / "bad.csv", "0F0,0B0\n1F0,,1Q0\n");
    test::expect_error([&] { read_schedule_csv(folder / "bad.csv"); }, {"bad.csv: row 2, cell 3: \"1Q0\""});
}

TEST(ScheduleCsv, BadFilesAreRefusedWithWhatIsWrong) {
    const auto expect_refused = [](std::string_view text, std::string_view part) {
        test::expect_error([&] { parse_schedule_csv(text, "some.csv"); }, {"some.csv: ", part});
    };
    expect_refused("", "no computation");
    expect_refused("0UNSHARD\n", "no computation");
    expect_refused("0F0,\x01\xff\n", "row 1, cell 2: \"??\" is not an action");
    expect_refused("0F0,0123456789012345678901234567890123456789\n", "\"012345678901234567890123…\"");
    expect_refused("0F0,2F0\n1F0\n", "3 stages of the pipeline schedule cannot be dealt to 2 rows");
    expect_refused("0F9999999\n", "1 computations, too few for 1 stages and 10000000 micro-batches");
    expect_refused("1F0,1B0\n0F0,0B0\n", "rank 0 has 1F0, which is not its stage");
    expect_refused("0B0,0F0\n", "rank 0 has 0B0 before its forward");
    expect_refused("0F0,0F0\n", "rank 0 has 0F0 twice");
    expect_refused("0F0,0I0,0B0\n", "rank 0 has 0B0 after another backward of it");
    expect_refused("0F0,0B0,0I0\n", "rank 0 has 0I0 after another backward of it");
    expect_refused("0F0,0W0,0I0\n", "rank 0 has 0W0 before its input's gradient");
    expect_refused("0F0,0B0,0W0\n", "rank 0 has 0W0 after another weight gradient of it");
    expect_refused("0F0,0F1,0B0\n", "stage 0 has no backward of micro-batch 1");
    expect_refused("0F0,0I0\n", "stage 0 has no weight gradient of micro-batch 0");
    expect_refused("0F0,0B0,0F2,0B2\n", "stage 0 has no forward of micro-batch 1");
}

TEST(ScheduleCsv, ASchedulesShapeMustBeItsOwn) {
    PipelineSchedule schedule = one_forward_one_backward(2, 2);
    schedule.shape.micro_batches = 1;
    test::expect_error([&] { check_computation(schedule); }, {"0F1, but there are 1 micro-batches"});
    schedule.shape = {3, 1, 2};
    test::expect_error([&] { check_computation(schedule); }, {"for 3 ranks and has 2"});
    schedule.shape = {2, 0, 2};
    test::expect_error([&] { check_computation(schedule); }, {"0 chunks"});
}

}  // namespace
}  // namespace drover
