#include "train/callbacks/nxd_records.h"

#include <gtest/gtest.h>

#include <sstream>
#include <utility>

#include "core/json.h"
#include "core/json_text.h"
#include "core/python_text.h"
#include "core/text_file.h"
#include "support/errors.h"
#include "support/golden.h"
#include "train/state/trainer_settings.h"

namespace drover {
namespace {

/// Made by tools/oracle/nxd_run.py, as the expected files below.
Json expected(const char* part) {
    return read_json_file(test::golden_path("nxd_run/expected.json")).at(part);
}

/// A run of records with given times.
class RecordedRun {
  public:
    RecordedRun(const Json& recorded, const std::filesystem::path& folder)
        : now_(recorded.at("started")),
          written_(now_),
          out_(std::fopen((folder / "out").c_str(), "w")),
          records_({.interval = recorded.at("interval"),
                    .sequences = recorded.at("batch_size").get<std::int64_t>() *
                                 recorded.at("data_parallel").get<std::int64_t>(),
                    .out = out_,
                    .metrics_file = folder / "made/results.json",
                    .parameters = Json{{"Model", "llama"}},
                    .now = [this] { return std::exchange(now_, written_); }}) {
        tell(&NxdRecords::on_train_begin);
        for (const Json& step : recorded.at("steps")) {
            state_.global_step += 1;
            state_.epoch = 0.5 * static_cast<double>(state_.global_step);
            StepReport report;
            report.seconds = step.at("seconds");
            report.update.loss = step.at("loss");
            report.update.gradient_norm = step.at("norm");
            now_ = step.at("now");
            written_ = step.at("written");  // the clock goes on while a record is written
            TrainerView view{settings_, plan_, state_, parameters_, control_};
            records_.on_step_end(view, report);
        }
    }
    ~RecordedRun() { std::fclose(out_); }

    void end(bool interrupted) {
        control_.interrupted = interrupted;
        tell(&NxdRecords::on_train_end);
        std::fflush(out_);
    }

  private:
    void tell(void (NxdRecords::*event)(TrainerView&)) {
        TrainerView view{settings_, plan_, state_, parameters_, control_};
        (records_.*event)(view);
    }

    TrainerSettings settings_;
    StepPlan plan_{};
    TrainerState state_;
    ParameterCounts parameters_;
    TrainerControl control_;
    double now_, written_;
    std::FILE* out_;
    NxdRecords records_;
};

TEST(NxdRecords, LinesAndResultsAreTheScripts) {
    for (const Json& recorded : expected("lines")) {
        const test::TemporaryFolder folder;
        RecordedRun(recorded, folder.path()).end(false);
        std::istringstream lines(read_text_file(folder / "out"));
        std::string line;
        for (const Json& wanted : recorded.at("lines")) {
            std::getline(lines, line);
            EXPECT_EQ(line, wanted.get<std::string>());
        }
        std::getline(lines, line);
        EXPECT_EQ(line, "Training finished successfully");

        const Json results = read_json_file(folder / "made/results.json").at("results");
        EXPECT_EQ(results.at("parameters"), (Json{{"Model", "llama"}}));
        const auto steps = static_cast<std::int64_t>(recorded.at("steps").size());
        std::vector<std::string> names;
        for (const Json& metric : results.at("metrics")) {
            names.push_back(metric.at("MetricName"));
            EXPECT_EQ(metric.at("AdditionalData"),
                      (Json{{"Epoch", (steps + 1) / 2 - 1}, {"Global step", steps}}));
            EXPECT_TRUE(metric.at("Timestamp").get<std::string>().ends_with("+00:00"));
        }
        EXPECT_EQ(names, (std::vector<std::string>{"Final loss", "Time to train", "Average throughput",
                                                   "Peak throughput"}));
        const auto value = [&](std::size_t i) {
            return results.at("metrics").at(i).at("MeasuredValue").get<double>();
        };
        EXPECT_EQ(value(0), recorded.at("steps").back().at("loss").get<double>());
        const double seconds =
            recorded.at("steps").back().at("written").get<double>() - recorded.at("started").get<double>();
        EXPECT_EQ(value(1), python_round(seconds / 60, 4)) << "of the whole run";
        EXPECT_EQ(value(2), recorded.at("average").get<double>());
        EXPECT_EQ(value(3), recorded.at("peak").get<double>());
    }
}

TEST(NxdRecords, AnInterruptedRunHasNoResults) {
    const test::TemporaryFolder folder;
    RecordedRun(expected("lines").at(0), folder.path()).end(true);
    EXPECT_FALSE(read_json_file(folder / "made/results.json").at("results").contains("metrics"));
    EXPECT_EQ(read_text_file(folder / "out").find("finished"), std::string::npos);
}

TEST(NxdRecords, ResultsAreAddedToAFile) {
    for (const Json& wanted : expected("results_files"))
        EXPECT_EQ(
            with_nxd_results(wanted.at("existing"), wanted.at("key"), wanted.at("data"), "results.json"),
            wanted.at("after").get<std::string>());
    test::expect_error([] { with_nxd_results("[1]", "metrics", Json::array(), "results.json"); },
                       {"results.json holds JSON, but no object", "--metrics_file"});
    test::expect_error([] { with_nxd_results("{", "metrics", Json::array(), "results.json"); },
                       {"results.json"});
}

TEST(NxdRecords, TensorBoardsFolderIsNamedAfterTheRun) {
    TrainerSettings settings;
    settings.learning_rate = 1.5e-5;
    settings.gradient_accumulation_steps = 8;
    settings.per_device_train_batch_size = 2;
    settings.warmup_steps = 2000;
    settings.max_steps = 30000;
    const std::string name = nxd_tensor_board_folder(settings);
    EXPECT_TRUE(name.starts_with("neuron_tblogs_")) << name;
    EXPECT_TRUE(name.ends_with("_lr1.5e-05_bs8_acc16_warmup2000_max30000")) << name;
}

}  // namespace
}  // namespace drover
