#include <gtest/gtest.h>

#include "train/callbacks/communication_report.h"
#include "train/callbacks/progress_bar.h"
#include "train/callbacks/run_banner.h"
#include "train/callbacks/run_summary.h"
#include "train/state/trainer_settings.h"

namespace drover {
namespace {

/// A run whose callbacks can be called by hand.
struct PlayedRun {
    TrainerSettings settings{.per_device_train_batch_size = 4};
    StepPlan plan = make_step_plan(settings, 500, 2000);
    TrainerState state = TrainerState::begin(settings, 1500, 3);
    ParameterCounts parameters{
        .total = 1234567, .active = 1000000, .without_embeddings = 900000, .multiplied = 1000000};
    TrainerControl control;
    TrainerView view{settings, plan, state, parameters, control};

    void step(TrainerCallback& callback, double seconds) {
        callback.on_step_begin(view);
        ++state.global_step;
        callback.on_step_end(view, {.update = {.loss = 4.18631, .gradient_norm = 1.5},
                                    .learning_rate = 1e-3,
                                    .seconds = seconds,
                                    .tokens = 4096,
                                    .samples = 4});
    }
};

std::string contents(std::FILE* file) {
    std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
    std::rewind(file);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
    std::fclose(file);
    return text;
}

/// The first step (warm-up) took longer and does not count; nor does the time between steps.
TEST(CommunicationReport, IsTheMeanOfStepsButTheFirst) {
    PlayedRun run;
    CommunicationTimes times;
    CommunicationReport report([&] {
        times.collectives += 5;
        times.busy_seconds += 0.5;
        times.waited_seconds += 0.125;
        return times;
    });
    EXPECT_EQ(report.text(), "");
    for (int step = 0; step < 3; ++step) {
        run.step(report, 1);
        times.busy_seconds += 100;
    }
    EXPECT_EQ(report.text(),
              "Communication: 5 collectives, 0.5 s per step under way, 0.125 s waited for; 75 % behind "
              "computing.\n");
}

TEST(ProgressText, ShowsWhatIsKnown) {
    const ProgressNumbers numbers{
        .step = 25,
        .steps = 100,
        .last = {.update = {.loss = 4.18631, .gradient_norm = 1.5}, .learning_rate = 1e-3},
        .seconds = 50,
        .steps_timed = 25,
        .tokens = 615000,
        .share_of_peak = 0.41};
    const std::string plain = "25/100 loss 4.186 lr 0.001 norm 1.5 12.3k tok/s 41% of peak 0:02:30 left";
    EXPECT_EQ(progress_text(numbers, 0), plain);
    EXPECT_EQ(progress_text(numbers, 40), plain.substr(0, 39));
    EXPECT_EQ(progress_text(numbers, 120), " 25% [#######.......................] " + plain);
}

TEST(ProgressBar, LeavesTheLineBeforeARecordIsPrinted) {
    PlayedRun run;
    std::FILE* out = std::tmpfile();
    ProgressBar bar(1e12, out, 100);
    bar.on_train_begin(run.view);
    run.step(bar, 0.5);
    bar.on_log(run.view, Json::object());
    bar.on_train_end(run.view);
    const std::string text = contents(out);
    EXPECT_TRUE(text.starts_with("\r  0% [")) << text;
    EXPECT_NE(text.find("8.2k tok/s 5% of peak"), std::string::npos) << text;
    EXPECT_TRUE(text.ends_with("\x1b[K\r\x1b[K")) << text;
}

TEST(ProgressBar, TheShareIsOfThePeakOfAllProcesses) {
    for (const std::int64_t replicas : {1, 4}) {  // with tensor parallelism or SPMD, fewer than processes
        PlayedRun run;
        run.settings.replicas = replicas;
        std::FILE* out = std::tmpfile();
        ProgressBar bar(4e11, out, 100);
        bar.on_train_begin(run.view);
        run.step(bar, 0.5);
        const std::string text = contents(out);
        EXPECT_NE(text.find("8.2k tok/s 12% of peak"), std::string::npos) << text;
    }
}

TEST(ProgressBar, WithoutATerminalAShortRunIsQuiet) {
    PlayedRun run;
    std::FILE* out = std::tmpfile();
    ProgressBar bar(0, out, 0);
    bar.on_train_begin(run.view);
    for (int i = 0; i < 5; ++i) run.step(bar, 0.5);
    bar.on_train_end(run.view);
    EXPECT_EQ(contents(out), "");
}

TEST(RunSummary, HasMedianAndRates) {
    PlayedRun run;
    RunSummary summary;
    EXPECT_EQ(summary.text(), "");
    for (const double seconds : {3.0, 1.0, 2.5, 2.0, 1.5}) run.step(summary, seconds);
    EXPECT_EQ(summary.median_step_seconds(), 1.75);
    EXPECT_EQ(summary.text(),
              "Parameters: 1,234,567 in total, 1,000,000 active per token.\n"
              "Steps: 5, median 1.75 s per step.\n"
              "Speed: 2 sequences/s, 2,048 tokens/s (time in steps only).\n");
    run.step(summary, 9.0);
    EXPECT_EQ(summary.median_step_seconds(), 2.0);
}

TEST(RunBanner, CountsWithThousands) {
    PlayedRun run;
    EXPECT_EQ(training_banner(run.view),
              "***** Running training *****\n"
              "  Num examples = 2,000\n"
              "  Num Epochs = 3\n"
              "  Num update steps per epoch = 500\n"
              "  Instantaneous batch size per device = 4\n"
              "  Total train batch size (w. parallel, distributed & accumulation) = 4\n"
              "  Gradient Accumulation steps = 1\n"
              "  Total optimization steps = 1,500\n"
              "  Number of trainable parameters = 1,234,567\n");
    EXPECT_EQ(evaluation_banner(run.view, 12345),
              "\n***** Running Evaluation *****\n  Num examples = 12345\n  Batch size = 8\n");
}

}  // namespace
}  // namespace drover
