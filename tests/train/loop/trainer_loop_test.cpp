#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "support/errors.h"
#include "support/golden.h"
#include "train/callbacks/early_stop.h"
#include "train/replayed_model.h"
#include "train/state/agreed_error.h"

namespace drover {
namespace {

/// Loss n in update n; skips the updates that it is told to skip.
class CountingModel final : public TrainingModel {
  public:
    UpdateResult update(std::span<const Batch> micro_batches, double learning_rate) override {
        rates.push_back(learning_rate);
        windows.push_back(micro_batches.size());
        const auto number = static_cast<double>(rates.size());
        const bool skipped = number == skipped_update;
        return {.loss = skipped ? INFINITY : number, .gradient_norm = 1, .updated = !skipped};
    }
    std::vector<BatchEvaluation> evaluate(const Batch& batch) override {
        return {{.loss = learns ? 1.0 / static_cast<double>(rates.size()) : first_loss,
                 .rows = batch.rows,
                 .targets = 10,
                 .correct = 5},
                {.loss = second_loss, .rows = 1, .targets = 10, .correct = 0}};
    }
    void save(const std::filesystem::path&) override {}
    void load(const std::filesystem::path& folder) override { loaded = folder; }
    void save_checkpoint(const CheckpointRequest& request) override { requests.push_back(request); }
    std::optional<CheckpointOutcome> checkpoint_outcome(bool wait) override {
        if (settled == requests.size() || (!wait && in_background)) return std::nullopt;
        const std::filesystem::path& folder = requests[settled++].folder;
        return CheckpointOutcome{.folder = folder,
                                 .error = settled == failing_save ? "The disk is full." : ""};
    }
    ParameterCounts parameters() const override {
        return {.total = 10, .active = 10, .without_embeddings = 7};
    }

    std::optional<double> first_loss = 1, second_loss = 4;
    double skipped_update = 0;
    bool learns = false;           ///< evaluations improve
    std::filesystem::path loaded;  ///< the last folder loaded
    bool in_background = false;    ///< checkpoints finish only when they are waited for
    std::size_t failing_save = 0;  ///< from 1
    std::vector<CheckpointRequest> requests;
    std::size_t settled = 0;
    std::vector<double> rates;
    std::vector<std::size_t> windows;
};

/// Ends every epoch after its second step.
class EpochStopper final : public TrainerCallback {
  public:
    void on_epoch_begin(TrainerView&) override { steps_ = 0; }
    void on_step_end(TrainerView& view, const StepReport&) override {
        if (++steps_ == 2) view.control.should_epoch_stop = true;
    }

  private:
    int steps_ = 0;
};

class TrainerLoop : public testing::Test {
  protected:
    TrainerSettings settings(double epochs) {
        TrainerSettings made{.num_train_epochs = epochs,
                             .per_device_train_batch_size = 2,
                             .per_device_eval_batch_size = 2,
                             .learning_rate = 1,
                             .logging_steps = 1.0,
                             .save_strategy = IntervalStrategy::no};
        made.finish();
        return made;
    }

    CountingModel model_;
    test::BlankData training_{{.samples = 10, .batch_size = 2}, 16, StreamEnd::never};
    test::BlankData evaluation_{
        {.samples = 4, .batch_size = 2, .order = SampleOrder::sequential}, 16, StreamEnd::after_one_epoch};
};

TEST_F(TrainerLoop, ASkippedUpdateDoesNotAdvanceTheSchedule) {
    model_.skipped_update = 2;
    Trainer trainer(settings(1), model_, &training_, nullptr);
    trainer.train();
    EXPECT_EQ(model_.rates, (std::vector<double>{1, 0.8, 0.8, 0.6, 1 - 0.6}));
    EXPECT_EQ(trainer.state().global_step, 5);
    // The infinite loss counts as the mean since the last record, which is 0.
    EXPECT_EQ(trainer.state().log_history[1].at("loss").get<double>(), 0);
}

TEST_F(TrainerLoop, WithoutTheFilterTheLossIsLoggedAsItIs) {
    model_.skipped_update = 2;
    TrainerSettings unfiltered = settings(1);
    unfiltered.logging_nan_inf_filter = false;
    Trainer trainer(unfiltered, model_, &training_, nullptr);
    trainer.train();
    EXPECT_TRUE(std::isinf(trainer.state().log_history[1].at("loss").get<double>()));
    EXPECT_EQ(trainer.state().log_history[2].at("loss").get<double>(), 3);
}

TEST_F(TrainerLoop, AStoppedEpochIsFollowedByTheNext) {
    EpochStopper stopper;
    Trainer trainer(settings(3), model_, &training_, nullptr);
    trainer.add_callback(stopper);
    trainer.train();
    EXPECT_EQ(trainer.state().global_step, 6);
    EXPECT_EQ(trainer.state().epoch, 2.4);
}

TEST_F(TrainerLoop, EvaluationWeighsReplicasBySamples) {
    Trainer trainer(settings(1), model_, nullptr, &evaluation_);
    const Json metrics = trainer.evaluate();
    EXPECT_EQ(metrics.at("eval_loss").get<double>(), 2);  // (2·1 + 1·4) / 3, twice
    EXPECT_EQ(metrics.at("eval_accuracy").get<double>(), 0.25);
    EXPECT_FALSE(metrics.contains("eval_model_preparation_time"));
    EXPECT_EQ(metrics.at("epoch"), 0);
}

TEST_F(TrainerLoop, EvaluationLeavesOutBatchesWithoutTargets) {
    model_.second_loss = std::nullopt;
    Trainer trainer(settings(1), model_, nullptr, &evaluation_);
    EXPECT_EQ(trainer.evaluate().at("eval_loss").get<double>(), 1);
    model_.first_loss = std::nullopt;
    EXPECT_TRUE(std::isnan(trainer.evaluate().at("eval_loss").get<double>())) << "as Hugging Face has it";
}

TEST_F(TrainerLoop, TokensPerSecond) {
    TrainerSettings counted = settings(1);
    counted.include_tokens_per_second = true;
    Trainer trainer(counted, model_, &training_, nullptr, {.seconds = [](const Stopwatch&) { return 2.0; }});
    EXPECT_EQ(trainer.train().at("train_tokens_per_second").get<double>(), 80);
    counted.max_steps = 3;
    Trainer by_steps(counted, model_, &training_, nullptr, {.seconds = [](const Stopwatch&) { return 2.0; }});
    const Json metrics = by_steps.train();
    EXPECT_EQ(metrics.at("train_tokens_per_second").get<double>(), 48);
    EXPECT_EQ(metrics.at("total_flos").get<double>(), 6.0 * 3 * 32 * 7);
}

TEST_F(TrainerLoop, NamesTheMetricsThereAre) {
    TrainerSettings best = settings(1);
    best.eval_strategy = IntervalStrategy::epoch;
    best.metric_for_best_model = "bleu";
    Trainer trainer(best, model_, &training_, &evaluation_);
    test::expect_error([&] { trainer.train(); }, {"bleu", "eval_accuracy"});
}

/// Ends the run after a step, like a signal.
class Interrupter final : public TrainerCallback {
  public:
    explicit Interrupter(std::int64_t step) : step_(step) {}
    void on_step_end(TrainerView& view, const StepReport&) override {
        if (view.state.global_step != step_) return;
        view.control.should_save = view.control.interrupted = view.control.should_training_stop = true;
    }

  private:
    std::int64_t step_;
};

/// Records what callbacks are told about checkpoints.
class SaveWitness final : public TrainerCallback {
  public:
    void on_save(TrainerView& view, const std::filesystem::path& folder) override {
        told.push_back(fmt::format("{} at {}", folder.filename().string(), view.state.global_step));
    }
    void on_save_failed(TrainerView&, const std::filesystem::path& folder, const std::string& why) override {
        told.push_back(fmt::format("{} failed: {}", folder.filename().string(), why));
    }

    std::vector<std::string> told;
};

TEST_F(TrainerLoop, AnInterruptedRunEndsWithACheckpointAndNoLastRecord) {
    Trainer trainer(settings(1), model_, &training_, nullptr);
    Interrupter interrupter(2);
    trainer.add_callback(interrupter);
    EXPECT_TRUE(trainer.train().is_null());
    EXPECT_TRUE(trainer.interrupted());
    ASSERT_EQ(model_.requests.size(), 1u);
    EXPECT_EQ(model_.requests[0].folder.filename(), "checkpoint-2");
    EXPECT_EQ(trainer.state().log_history.size(), 2u);

    const TrainerState state = TrainerState::parse(model_.requests[0].trainer_state, "state");
    const LoopState loop = LoopState::from(model_.requests[0].loop.json());
    Trainer resumed(settings(1), model_, &training_, nullptr);
    resumed.train(&state, &loop);
    EXPECT_EQ(model_.rates, (std::vector<double>{1, 0.8, 0.6, 0.4, 0.2}));
    EXPECT_FALSE(resumed.interrupted());
    // Losses 1 to 5 over five steps, as without the stop.
    EXPECT_EQ(resumed.state().log_history.back().at("train_loss").get<double>(), 3);
}

TEST_F(TrainerLoop, AnInterruptedRunSavesAlsoWhereOnlyTheBestModelIsSaved) {
    TrainerSettings best = settings(1);
    best.save_strategy = IntervalStrategy::best;
    best.eval_strategy = IntervalStrategy::steps;
    best.eval_steps = 1;
    best.metric_for_best_model = "loss";
    Trainer trainer(best, model_, &training_, &evaluation_);
    Interrupter interrupter(3);
    trainer.add_callback(interrupter);
    trainer.train();
    // All evaluations are equal, so the first is the best.
    ASSERT_EQ(model_.requests.size(), 2u);
    EXPECT_EQ(model_.requests[0].folder.filename(), "checkpoint-1");
    EXPECT_EQ(model_.requests[1].folder.filename(), "checkpoint-3");
}

TEST_F(TrainerLoop, ACheckpointBehindTheStepsIsWaitedForByTheNext) {
    model_.in_background = true;
    TrainerSettings saving = settings(1);
    saving.save_strategy = IntervalStrategy::steps;
    saving.save_steps = 2;
    Trainer trainer(saving, model_, &training_, nullptr);
    SaveWitness witness;
    trainer.add_callback(witness);
    trainer.train();
    EXPECT_EQ(witness.told,
              (std::vector<std::string>{"checkpoint-2 at 4", "checkpoint-4 at 5", "checkpoint-5 at 5"}));
}

TEST_F(TrainerLoop, AFailedSaveEndsTheRunOnlyWhereThereIsNoOther) {
    TrainerSettings saving = settings(1);
    saving.save_strategy = IntervalStrategy::steps;
    saving.save_steps = 2;
    model_.failing_save = 2;
    Trainer going_on(saving, model_, &training_, nullptr);
    SaveWitness witness;
    going_on.add_callback(witness);
    going_on.train();
    EXPECT_EQ(witness.told,
              (std::vector<std::string>{"checkpoint-2 at 2", "checkpoint-4 failed: The disk is full.",
                                        "checkpoint-5 at 5"}));
    EXPECT_EQ(going_on.save_failure(), "");

    CountingModel other;
    other.failing_save = 1;
    Trainer ending(saving, other, &training_, nullptr);
    test::expect_error<AgreedError>([&] { ending.train(); }, {"The disk is full."});
    EXPECT_EQ(other.rates.size(), 2u);
}

TEST_F(TrainerLoop, AResumedRunFindsItsSamplesWhenBatchesAreOfAnotherSize) {
    // Four of ten samples were used, in two updates of two; now an update takes four.
    const TrainerState state = [&] {
        Trainer trainer(settings(1), model_, &training_, nullptr);
        Interrupter interrupter(2);
        trainer.add_callback(interrupter);
        trainer.train();
        return trainer.state();
    }();
    const LoopState loop = model_.requests.at(0).loop;
    EXPECT_EQ(loop.samples, 4);
    TrainerSettings accumulating = settings(1);
    accumulating.gradient_accumulation_steps = 2;
    model_.windows.clear();
    Trainer resumed(accumulating, model_, &training_, nullptr);
    resumed.train(&state, &loop);
    // Three of the epoch's five batches are left.
    EXPECT_EQ(model_.windows, (std::vector<std::size_t>{2}));
    EXPECT_EQ(resumed.state().global_step, 3);
}

TEST_F(TrainerLoop, ASkipBeforeTheCheckpointStaysOneAfterIt) {
    model_.skipped_update = 2;
    Trainer trainer(settings(1), model_, &training_, nullptr);
    Interrupter interrupter(3);
    trainer.add_callback(interrupter);
    trainer.train();
    const TrainerState state = TrainerState::parse(model_.requests.at(0).trainer_state, "state");
    const LoopState loop = model_.requests[0].loop;
    Trainer resumed(settings(1), model_, &training_, nullptr);
    resumed.train(&state, &loop);
    EXPECT_EQ(model_.rates, (std::vector<double>{1, 0.8, 0.8, 0.6, 1 - 0.6}));
}

/// Records where it was opened.
class WatchedData final : public test::SampledData {
  public:
    using SampledData::SampledData;
    std::unique_ptr<BatchStream> open(BatchPosition start) override {
        opened.push_back(start);
        return SampledData::open(start);
    }

    std::vector<BatchPosition> opened;

  private:
    std::int32_t token(std::int64_t, std::int64_t) const override { return 0; }
};

/// Counts the epochs that a run begins.
class EpochCounter final : public TrainerCallback {
  public:
    void on_epoch_begin(TrainerView&) override { ++epochs; }
    int epochs = 0;
};

/// Batches of three reached the ninth of ten samples; an epoch has two batches of four, which the nine have
/// used up.
TEST_F(TrainerLoop, AResumedRunBeginsTheNextEpochWhereNoBatchIsLeft) {
    WatchedData fours({.samples = 10, .batch_size = 4, .drop_last = true}, 16, StreamEnd::never);
    TrainerSettings larger = settings(3);
    larger.per_device_train_batch_size = 4;
    TrainerState state = TrainerState::begin(larger, 6, 3);
    state.global_step = 3;
    const LoopState loop{.step = 3, .schedule_steps = 3, .last_logged_step = 3, .epoch = 0, .samples = 9};
    Trainer resumed(larger, model_, &fours, nullptr);
    EpochCounter counter;
    resumed.add_callback(counter);
    resumed.train(&state, &loop);
    ASSERT_EQ(fours.opened.size(), 1u);
    EXPECT_EQ(fours.opened[0].epoch, 1);
    EXPECT_EQ(fours.opened[0].step, 0);
    EXPECT_EQ(counter.epochs, 2);
    EXPECT_EQ(resumed.state().global_step, 6);
}

TEST_F(TrainerLoop, ACheckpointThatCouldNotBeWrittenIsNotTheBest) {
    TrainerSettings best = settings(1);
    best.save_strategy = best.eval_strategy = IntervalStrategy::steps;
    best.save_steps = best.eval_steps = 2;
    best.metric_for_best_model = "loss";
    best.load_best_model_at_end = true;
    model_.learns = true;
    model_.failing_save = 3;  // the last one, with none after it
    Trainer trainer(best, model_, &training_, &evaluation_);
    trainer.train();
    ASSERT_EQ(model_.requests.size(), 3u);
    const TrainerState last = TrainerState::parse(model_.requests[2].trainer_state, "state");
    EXPECT_EQ(last.best_model_checkpoint, model_.requests[2].folder.string());
    EXPECT_EQ(trainer.state().best_model_checkpoint, std::nullopt);
    EXPECT_EQ(model_.loaded, "");
}

TEST_F(TrainerLoop, PatienceIsNotRenewedByAResume) {
    TrainerSettings watched = settings(2);
    watched.eval_strategy = IntervalStrategy::steps;
    watched.eval_steps = 1;
    watched.metric_for_best_model = "loss";
    // All evaluations are equal: the first is the best, and the third after it ends the run.
    Trainer whole(watched, model_, &training_, &evaluation_);
    EarlyStop stop_of_whole(3, 0);
    whole.add_callback(stop_of_whole);
    whole.train();
    EXPECT_EQ(whole.state().global_step, 4);

    Trainer stopped(watched, model_, &training_, &evaluation_);
    EarlyStop stop_of_stopped(3, 0), stop_of_resumed(3, 0);
    Interrupter interrupter(3);
    stopped.add_callback(stop_of_stopped);
    stopped.add_callback(interrupter);
    stopped.train();
    const TrainerState state = TrainerState::parse(model_.requests.at(0).trainer_state, "state");
    const LoopState loop = model_.requests[0].loop;
    Trainer resumed(watched, model_, &training_, &evaluation_);
    resumed.add_callback(stop_of_resumed);
    resumed.train(&state, &loop);
    EXPECT_EQ(resumed.state().global_step, 4);
}

TEST_F(TrainerLoop, NothingIsWrittenWhereThatIsForbidden) {
    TrainerSettings saving = settings(1);
    saving.save_strategy = IntervalStrategy::steps;
    saving.save_steps = 2;
    int asked = 0;
    Trainer trainer(saving, model_, &training_, nullptr, {.before_writing = [&] {
                        if (++asked == 3) throw Error("Another run writes there.", "Choose another folder.");
                    }});
    test::expect_error([&] { trainer.train(); }, {"Another run writes there."});
    EXPECT_EQ(model_.requests.size(), 1u);
    EXPECT_EQ(model_.rates.size(), 4u);
}

/// A folder that is taken while a checkpoint is written belongs to another run, with all its checkpoints.
TEST_F(TrainerLoop, NothingIsRemovedWhereThatIsForbidden) {
    for (const bool in_background : {false, true}) {
        const test::TemporaryFolder folder;
        for (const char* name : {"checkpoint-1", "checkpoint-2"})
            std::filesystem::create_directories(folder / name);
        TrainerSettings saving = settings(1);
        saving.output_dir = folder.path();
        saving.save_strategy = IntervalStrategy::steps;
        saving.save_steps = 5;
        saving.save_total_limit = 1;
        CountingModel model;
        model.in_background = in_background;
        int asked = 0;
        Trainer trainer(saving, model, &training_, nullptr, {.before_writing = [&] {
                            if (++asked == 2)
                                throw Error("Another run writes there.", "Choose another folder.");
                        }});
        test::expect_error([&] { trainer.train(); }, {"Another run writes there."});
        EXPECT_EQ(model.requests.size(), 1u);
        EXPECT_TRUE(std::filesystem::exists(folder / "checkpoint-1")) << in_background;
        EXPECT_TRUE(std::filesystem::exists(folder / "checkpoint-2")) << in_background;
    }
}

TEST_F(TrainerLoop, TheEndIsForbiddenTooWhereNothingWasSaved) {
    Trainer trainer(settings(1), model_, &training_, nullptr, {.before_writing = [] {
                        throw Error("Another run writes there.", "Choose another folder.");
                    }});
    test::expect_error([&] { trainer.train(); }, {"Another run writes there."});
    EXPECT_EQ(model_.rates.size(), 5u);
}

TEST_F(TrainerLoop, ARunThatIsCompleteTrainsNoMore) {
    Trainer trainer(settings(1), model_, &training_, nullptr);
    trainer.train();
    const TrainerState state = trainer.state();
    const std::size_t updates = model_.rates.size();
    Trainer again(settings(1), model_, &training_, nullptr);
    again.train(&state);
    EXPECT_EQ(model_.rates.size(), updates);
}

}  // namespace
}  // namespace drover
