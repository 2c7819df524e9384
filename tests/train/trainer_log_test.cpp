#include <gtest/gtest.h>

#include <fstream>

#include "core/python_text.h"
#include "train/early_stop.h"
#include "train/evaluation.h"
#include "train/log_printer.h"
#include "train/replayed_model.h"
#include "train/results_files.h"

namespace drover {
namespace {

using test::BlankData;
using test::ReplayedModel;

const Json& golden() {
    static const Json file = read_json_file(test::golden_path("trainer_log.json"));
    return file;
}

IntervalStrategy strategy(const Json& settings, const char* key, IntervalStrategy otherwise) {
    const std::string name = settings.value(key, std::string());
    if (name == "no") return IntervalStrategy::no;
    if (name == "steps") return IntervalStrategy::steps;
    if (name == "epoch") return IntervalStrategy::epoch;
    if (name == "best") return IntervalStrategy::best;
    return otherwise;
}

std::optional<double> steps(const Json& settings, const char* key) {
    if (!settings.contains(key) || settings.at(key).is_null()) return std::nullopt;
    return settings.at(key).get<double>();
}

/// The arguments that the oracle gave to the real Trainer.
TrainerSettings settings_of(const Json& json, const std::filesystem::path& output_dir) {
    TrainerSettings settings;
    settings.output_dir = output_dir;
    settings.num_train_epochs = json.value("num_train_epochs", 3.0);
    settings.max_steps = json.value("max_steps", std::int64_t{-1});
    settings.per_device_train_batch_size = json.at("per_device_train_batch_size");
    settings.per_device_eval_batch_size = json.at("per_device_eval_batch_size");
    settings.gradient_accumulation_steps = json.value("gradient_accumulation_steps", std::int64_t{1});
    settings.learning_rate = json.at("learning_rate");
    settings.lr_scheduler_type = json.value("lr_scheduler_type", std::string("linear"));
    settings.lr_scheduler_kwargs = json.value("lr_scheduler_kwargs", Json(nullptr));
    settings.warmup_steps = json.value("warmup_steps", 0.0);
    settings.logging_strategy = strategy(json, "logging_strategy", IntervalStrategy::steps);
    settings.logging_steps = steps(json, "logging_steps");
    settings.logging_first_step = json.value("logging_first_step", false);
    settings.eval_strategy = strategy(json, "eval_strategy", IntervalStrategy::no);
    settings.eval_steps = steps(json, "eval_steps");
    settings.eval_delay = json.value("eval_delay", 0.0);
    settings.eval_on_start = json.value("eval_on_start", false);
    settings.save_strategy = strategy(json, "save_strategy", IntervalStrategy::steps);
    settings.save_steps = steps(json, "save_steps");
    settings.save_total_limit = json.value("save_total_limit", std::int64_t{0});
    settings.load_best_model_at_end = json.value("load_best_model_at_end", false);
    settings.metric_for_best_model = json.value("metric_for_best_model", std::string());
    settings.dataloader_drop_last = json.value("dataloader_drop_last", false);
    settings.prediction_loss_only = json.value("prediction_loss_only", false);
    if (json.contains("include_num_input_tokens_seen")) settings.include_num_input_tokens_seen = CountTokens::all;
    if (json.contains("early_stopping")) {
        settings.early_stopping_patience = json.at("early_stopping")[0].get<std::int64_t>();
        settings.early_stopping_threshold = json.at("early_stopping")[1];
    }
    settings.finish();
    return settings;
}

SamplerOptions sampler(std::int64_t samples, std::int64_t batch, SampleOrder order, bool drop_last) {
    return {.samples = samples, .batch_size = batch, .order = order, .drop_last = drop_last};
}

std::string file_text(const std::filesystem::path& path) {
    return std::filesystem::exists(path) ? read_text_file(path) : "(not written)";
}

/// The whole of run_clm.py behind the model, with the answers that the real model gave.
class TrainerLog : public testing::TestWithParam<std::string> {
  protected:
    TrainerLog()
        : case_(golden().at("cases").at(GetParam())),
          settings_(settings_of(case_.at("settings"), folder_ / "out")),
          row_length_(golden().at("sample_length")),
          training_(sampler(golden().at("train_samples"), settings_.per_device_train_batch_size,
                            SampleOrder::shuffled, settings_.dataloader_drop_last),
                    row_length_, StreamEnd::never),
          evaluation_(sampler(golden().at("eval_samples"), settings_.per_device_eval_batch_size,
                              SampleOrder::sequential, settings_.dataloader_drop_last),
                      row_length_, StreamEnd::after_one_epoch),
          model_(case_, row_length_ - 1) {}

    /// The oracle ran in another folder.
    std::string in_folder_of_oracle(std::string text) const {
        const std::string here = settings_.output_dir.string();
        for (std::size_t at; (at = text.find(here)) != std::string::npos;) text.replace(at, here.size(), "out");
        return text;
    }

    test::TemporaryFolder folder_;
    const Json& case_;
    TrainerSettings settings_;
    std::int64_t row_length_;
    BlankData training_, evaluation_;
    ReplayedModel model_;
};

TEST_P(TrainerLog, IsWhatTheRealTrainerLogsPrintsAndWrites) {
    const double seconds = golden().at("seconds");
    Trainer trainer(settings_, model_, &training_, &evaluation_,
                    {.seconds = [=](const Stopwatch&) { return seconds; }, .model_preparation_seconds = 0.25});
    std::optional<EarlyStop> early_stop;
    if (settings_.early_stopping_patience) {
        early_stop.emplace(*settings_.early_stopping_patience, settings_.early_stopping_threshold);
        trainer.add_callback(*early_stop);
    }
    std::FILE* printed = std::tmpfile();
    ASSERT_NE(printed, nullptr);
    LogPrinter printer(LogFormat::hugging_face_5, true, printed);
    trainer.add_callback(printer);

    if (case_.at("settings").value("do_train", true)) {
        std::optional<TrainerState> resumed;
        if (case_.contains("resume_state"))
            resumed = TrainerState::parse(case_.at("resume_state").get<std::string>(), "resume_state");
        Json metrics = trainer.train(resumed ? &*resumed : nullptr);
        metrics["train_samples"] = training_.samples();
        std::fputs(metrics_table("train", metrics).c_str(), printed);
        save_metrics(settings_.output_dir, "train", metrics);
        trainer.save_state();
    }
    Json metrics = trainer.evaluate();
    metrics["eval_samples"] = evaluation_.samples();
    metrics["perplexity"] = perplexity(metrics.at("eval_loss"));
    std::fputs(metrics_table("eval", metrics).c_str(), printed);
    save_metrics(settings_.output_dir, "eval", metrics);

    EXPECT_TRUE(model_.all_played());
    if (case_.contains("log_history")) {
        EXPECT_EQ(python_json(trainer.state().log_history, 1), python_json(case_.at("log_history"), 1));
    }
    for (const auto& [name, text] : case_.at("files").items())
        EXPECT_EQ(in_folder_of_oracle(file_text(settings_.output_dir / name)), text.get<std::string>()) << name;
    std::string output(static_cast<std::size_t>(std::ftell(printed)), '\0');
    std::rewind(printed);
    EXPECT_EQ(std::fread(output.data(), 1, output.size(), printed), output.size());
    EXPECT_EQ(output, case_.at("stdout").get<std::string>());
    std::fclose(printed);

    std::size_t checkpoints = 0;
    for (const auto& entry : std::filesystem::directory_iterator(settings_.output_dir))
        checkpoints += entry.is_directory();
    std::size_t expected = 0;
    for (const auto& [name, text] : case_.at("files").items()) expected += name.starts_with("checkpoint-");
    EXPECT_EQ(checkpoints, expected);
    EXPECT_EQ(model_.loaded.empty(), !settings_.load_best_model_at_end);
}

std::vector<std::string> case_names() {
    std::vector<std::string> names;
    for (const auto& [name, value] : golden().at("cases").items()) names.push_back(name);
    return names;
}

INSTANTIATE_TEST_SUITE_P(Golden, TrainerLog, testing::ValuesIn(case_names()),
                         [](const auto& parameter) { return parameter.param; });

TEST(NumpyMean, EqualsNumpys) {
    for (const Json& sample : golden().at("means")) {
        std::vector<float> values;
        if (sample.contains("values"))
            for (const Json& value : sample.at("values")) values.push_back(value.get<float>());
        else
            for (std::int64_t i = 0; i < sample.at("count").get<std::int64_t>(); ++i)
                values.push_back(static_cast<float>(static_cast<double>(i * 7919 % 10007) / 1000));
        EXPECT_EQ(static_cast<double>(numpy_mean(values)), sample.at("mean").get<double>()) << values.size();
    }
}

}  // namespace
}  // namespace drover
