#include <gtest/gtest.h>

#include "core/python_json.h"
#include "core/text_file.h"
#include "train/callbacks/early_stop.h"
#include "train/callbacks/log_printer.h"
#include "train/checkpoint/results_files.h"
#include "train/loop/evaluation.h"
#include "train/replayed_model.h"
#include "train/trainer_log_golden.h"

namespace drover {
namespace {

using test::BlankData;
using test::ReplayedModel;
using test::settings_of;
using test::trainer_log;

std::string file_text(const std::filesystem::path& path) {
    return std::filesystem::exists(path) ? read_text_file(path) : "(not written)";
}

/// All of run_clm.py except the model, with the real model's results.
class TrainerLog : public testing::TestWithParam<std::string> {
  protected:
    TrainerLog()
        : case_(trainer_log().at("cases").at(GetParam())),
          settings_(settings_of(case_.at("settings"), folder_ / "out")),
          row_length_(trainer_log().at("sample_length")),
          training_(with_samples(training_sampler(settings_), "train_samples"), row_length_,
                    StreamEnd::never),
          evaluation_(with_samples(evaluation_sampler(settings_), "eval_samples"), row_length_,
                      StreamEnd::after_one_epoch),
          model_(case_, row_length_ - 1) {}

    static SamplerOptions with_samples(SamplerOptions options, const char* count) {
        options.samples = trainer_log().at(count);
        return options;
    }

    /// The oracle ran in another folder.
    std::string in_folder_of_oracle(std::string text) const {
        const std::string here = settings_.output_dir.string();
        for (std::size_t at; (at = text.find(here)) != std::string::npos;)
            text.replace(at, here.size(), "out");
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
    const double seconds = trainer_log().at("seconds");
    Trainer trainer(
        settings_, model_, &training_, &evaluation_,
        {.seconds = [=](const Stopwatch&) { return seconds; }, .model_preparation_seconds = 0.25});
    std::optional<EarlyStop> early_stop;
    if (settings_.early_stopping_patience) {
        early_stop.emplace(*settings_.early_stopping_patience, settings_.early_stopping_threshold);
        trainer.add_callback(*early_stop);
    }
    std::FILE* printed = std::tmpfile();
    ASSERT_NE(printed, nullptr);
    LogPrinter printer(LogFormat::hugging_face_5, LogStyle::beside_bar, printed);
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
        EXPECT_EQ(in_folder_of_oracle(file_text(settings_.output_dir / name)), text.get<std::string>())
            << name;
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
    for (const auto& [name, value] : trainer_log().at("cases").items()) names.push_back(name);
    return names;
}

INSTANTIATE_TEST_SUITE_P(Golden, TrainerLog, testing::ValuesIn(case_names()),
                         [](const auto& parameter) { return parameter.param; });

TEST(NumpyMean, EqualsNumpys) {
    ASSERT_FALSE(trainer_log().at("means").empty());
    for (const Json& sample : trainer_log().at("means")) {
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
