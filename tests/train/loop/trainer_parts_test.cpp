#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/text_file.h"
#include "support/errors.h"
#include "train/callbacks/log_printer.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/model_card.h"
#include "train/checkpoint/results_files.h"
#include "train/state/step_plan.h"
#include "train/trainer_log_golden.h"

namespace drover {
namespace {

TrainerSettings finished(TrainerSettings settings) {
    settings.finish();
    return settings;
}

TEST(StepPlan, CountsShortWindowsAndPartsOfEpochs) {
    TrainerSettings settings{
        .num_train_epochs = 2.5, .per_device_train_batch_size = 2, .gradient_accumulation_steps = 3};
    const StepPlan plan = make_step_plan(settings, 7, 13);
    EXPECT_EQ(plan.updates_per_epoch, 3);
    EXPECT_EQ(plan.max_steps, 8);  // ceil(2.5 · 3)
    EXPECT_EQ(plan.epochs, 3);
    EXPECT_EQ(plan.trained_samples, 32.5);
    EXPECT_EQ(plan.total_batch_size, 6);
    EXPECT_EQ(plan.window(0, 3), 3);
    EXPECT_EQ(plan.window(2, 3), 1);
    settings.max_steps = 7;
    settings.replicas = 4;
    const StepPlan by_steps = make_step_plan(settings, 7, 13);
    EXPECT_EQ(by_steps.max_steps, 7);
    EXPECT_EQ(by_steps.epochs, 3);
    EXPECT_EQ(by_steps.trained_samples, 7 * 24);
}

TEST(StepPlan, WarmUp) {
    EXPECT_EQ(warmup_steps_of({}, 100), 0);
    EXPECT_EQ(warmup_steps_of({.warmup_steps = 7.0, .warmup_ratio = 0.5}, 100), 7);
    EXPECT_EQ(warmup_steps_of({.warmup_steps = 0.031}, 100), 4);
    EXPECT_EQ(warmup_steps_of({.warmup_steps = 1.0}, 100), 1);  // a step, not all of them
    EXPECT_EQ(warmup_steps_of({.warmup_steps = 0.99}, 100), 99);
    EXPECT_EQ(warmup_steps_of({.warmup_ratio = 0.1}, 101), 11);
}

TEST(TrainerSettings, FillsInWhatFollows) {
    const TrainerSettings settings = finished({.lr_scheduler_type = "reduce_lr_on_plateau",
                                               .logging_steps = 7.0,
                                               .eval_strategy = IntervalStrategy::steps});
    EXPECT_EQ(settings.eval_steps, 7.0);
    EXPECT_EQ(finished({.eval_strategy = IntervalStrategy::steps}).eval_steps, 500.0);
    EXPECT_EQ(settings.best_metric_key(), "eval_loss");
    EXPECT_FALSE(settings.greater_metric_is_better());
    EXPECT_TRUE(finished({.metric_for_best_model = "eval_accuracy"}).greater_metric_is_better());
}

TEST(TrainerSettings, RejectsContradictions) {
    test::expect_error<UsageError>([&] { finished({.gradient_accumulation_steps = 0}); },
                                   {"--gradient_accumulation_steps is 0"});
    test::expect_error<UsageError>([&] { finished({.max_steps = 0}); }, {"--max_steps is 0"});
    test::expect_error<UsageError>([&] { finished({.num_train_epochs = 0}); }, {"--num_train_epochs is 0"});
    test::expect_error<UsageError>([&] { finished({.logging_steps = 0.0}); }, {"--logging_steps is 0"});
    test::expect_error<UsageError>([&] { finished({.logging_steps = 1.5}); }, {"--logging_steps is 1.5"});
    test::expect_error<UsageError>([&] { finished({.warmup_ratio = 1.5}); }, {"--warmup_ratio"});
    test::expect_error<UsageError>([&] { finished({.lr_scheduler_type = "reduce_lr_on_plateau"}); },
                                   {"reduce_lr_on_plateau", "--eval_strategy"});
    test::expect_error<UsageError>([&] { finished({.load_best_model_at_end = true}); },
                                   {"--load_best_model_at_end", "--eval_strategy is no"});
    test::expect_error<UsageError>([&] { finished({.save_strategy = IntervalStrategy::best}); },
                                   {"--save_strategy best", "--metric_for_best_model"});
    test::expect_error<UsageError>([&] { finished({.early_stopping_patience = 1}); },
                                   {"Early stopping", "--metric_for_best_model"});
    const auto best = [](double evaluate, double save) {
        return TrainerSettings{.eval_strategy = IntervalStrategy::steps,
                               .eval_steps = evaluate,
                               .save_steps = save,
                               .load_best_model_at_end = true};
    };
    EXPECT_NO_THROW(finished(best(10, 30)));
    EXPECT_NO_THROW(finished(best(0.1, 0.3)));
    test::expect_error<UsageError>([&] { finished(best(10, 25)); }, {"--save_steps (25", "--eval_steps (10"});
    test::expect_error<UsageError>([&] { finished(best(0.1, 30)); },
                                   {"--save_steps (30", "--eval_steps (0.1"});
}

class CheckpointFolders : public testing::Test {
  protected:
    void make(std::int64_t step, int age) {
        const auto folder = checkpoint_folder(out_.path(), step);
        std::filesystem::create_directories(folder);
        std::filesystem::last_write_time(folder, now_ - std::chrono::seconds(age));
    }
    std::vector<std::string> names() const {
        std::vector<std::string> found;
        for (const auto& path : checkpoints_by_age(out_.path())) found.push_back(path.filename().string());
        return found;
    }

    test::TemporaryFolder out_;
    std::filesystem::file_time_type now_ = std::filesystem::file_time_type::clock::now();
};

using Names = std::vector<std::string>;

TEST_F(CheckpointFolders, OrderedByTimeOrElseByNumber) {
    std::filesystem::create_directories(out_ / "checkpoint-x");
    std::filesystem::create_directories(out_ / "runs");
    make(10, 0);
    make(9, 0);
    EXPECT_EQ(names(), (Names{"checkpoint-9", "checkpoint-10"}));
    make(10, 60);
    EXPECT_EQ(names(), (Names{"checkpoint-10", "checkpoint-9"}));
}

TEST_F(CheckpointFolders, RotationKeepsTheNewestAndTheBest) {
    for (const int step : {1, 2, 3, 4}) make(step, 0);
    rotate_checkpoints(out_.path(), 0, std::nullopt);
    EXPECT_EQ(names().size(), 4u);
    rotate_checkpoints(out_.path(), 3, (out_ / "checkpoint-1").string());
    EXPECT_EQ(names(), (Names{"checkpoint-1", "checkpoint-3", "checkpoint-4"}));
    rotate_checkpoints(out_.path(), 1, (out_ / "checkpoint-1").string());
    EXPECT_EQ(names(), (Names{"checkpoint-1", "checkpoint-4"}));
    rotate_checkpoints(out_.path(), 1, (out_ / "checkpoint-4").string());
    EXPECT_EQ(names(), (Names{"checkpoint-4"}));
    make(5, 0);
    keep_only_checkpoint(out_.path(), (out_ / "checkpoint-4").string());
    EXPECT_EQ(names(), (Names{"checkpoint-4"}));
}

Json record() {
    Json json = Json::object();
    json["loss"] = 4.186305046081543;
    json["grad_norm"] = 1.5041594505310059;
    json["learning_rate"] = 0.009000000000000001;
    json["epoch"] = 1.0 / 3;
    return json;
}

TEST(LogLine, InEveryFormat) {
    EXPECT_EQ(log_line(record(), 1, LogFormat::hugging_face_4),
              "{'loss': 4.1863, 'grad_norm': 1.5041594505310059, 'learning_rate': 0.009000000000000001, "
              "'epoch': 0.33}");
    EXPECT_EQ(log_line(record(), 1, LogFormat::hugging_face_4, LogStyle::plain),
              "{'loss': 4.1863, 'grad_norm': 1.5041594505310059, 'learning_rate': 0.009000000000000001, "
              "'epoch': 0.3333333333333333}");
    EXPECT_EQ(log_line(record(), 1, LogFormat::hugging_face_5),
              "{'loss': '4.186', 'grad_norm': '1.504', 'learning_rate': '0.009', 'epoch': '0.3333'}");
    EXPECT_EQ(log_line(record(), 1, LogFormat::json),
              "{\"loss\": 4.186305046081543, \"grad_norm\": 1.5041594505310059, \"learning_rate\": "
              "0.009000000000000001, \"epoch\": 0.3333333333333333, \"step\": 1}");
}

TEST(MetricsTable, FormatsByKey) {
    Json metrics = Json::object();
    metrics["train_runtime"] = 90061.999;
    metrics["total_flos"] = 3.7 * (1 << 30);
    metrics["train_mem_cpu"] = 5 << 20;
    metrics["train_loss"] = 1.23456;
    metrics["train_samples"] = 12;
    EXPECT_EQ(metrics_table("train", metrics),
              "***** train metrics *****\n"
              "  total_flos    =               3GF\n"
              "  train_loss    =            1.2346\n"
              "  train_mem_cpu =               5MB\n"
              "  train_runtime = 1 day, 1:01:01.99\n"
              "  train_samples =                12\n");
}

TEST(ResultsFiles, AllResultsKeepsOtherSplits) {
    const test::TemporaryFolder folder;
    save_metrics(folder.path(), "train", {{"epoch", 1.0}, {"train_loss", INFINITY}});
    save_metrics(folder.path(), "eval", {{"epoch", 2.0}, {"eval_loss", 3.5}});
    EXPECT_EQ(read_text_file(folder / "train_results.json"),
              "{\n    \"epoch\": 1.0,\n    \"train_loss\": Infinity\n}");
    EXPECT_EQ(read_text_file(folder / "all_results.json"),
              "{\n    \"epoch\": 2.0,\n    \"eval_loss\": 3.5,\n    \"train_loss\": Infinity\n}");
}

TEST(TrainerState, ReadsItsOwnText) {
    const Json& files = test::trainer_log().at("cases").at("early_stop").at("files");
    const std::string text = files.at("checkpoint-6/trainer_state.json");
    EXPECT_EQ(TrainerState::parse(text, "golden").text(), text);
    test::expect_error([&] { TrainerState::parse("{}", "empty"); },
                       {"empty is not the state of a training run"});
    test::expect_error([&] { TrainerState::parse("{", "broken"); }, {"broken is not valid JSON"});
}

TEST(ModelCard, HasTheResultsOfTheRun) {
    const Json& golden = test::trainer_log().at("cases").at("evaluate_steps");
    const TrainerSettings settings = test::settings_of(golden.at("settings"), "out/my-model");
    TrainerState state;
    state.log_history = golden.at("log_history");
    const std::string card = model_card(
        {.name = "my-model", .datasets = {"wikitext"}, .drover_version = "1.2", .optimizer = "adamw_torch"},
        settings, state);
    EXPECT_TRUE(card.starts_with(
        "---\nlibrary_name: transformers\ntags:\n- generated_from_trainer\ndatasets:\n- wikitext\n"
        "metrics:\n- accuracy\nmodel-index:\n- name: my-model\n  results:\n"))
        << card;
    EXPECT_NE(card.find("\n# my-model\n"), std::string::npos);
    EXPECT_NE(card.find("- learning_rate: 0.01\n- train_batch_size: 2\n"), std::string::npos) << card;
    EXPECT_NE(card.find("| Training Loss | Epoch  | Step | Validation Loss | Accuracy |\n"
                        "|:-------------:|:------:|:----:|:---------------:|:--------:|\n"
                        "| No log        | 0      | 0    |"),
              std::string::npos)
        << card;
    std::size_t rows = 0;
    for (std::size_t at = 0; (at = card.find("\n| ", at)) != std::string::npos; ++at) ++rows;
    EXPECT_EQ(rows, 6u);  // heads, at the start, steps 4, 8, 12 and 14
}

}  // namespace
}  // namespace drover
