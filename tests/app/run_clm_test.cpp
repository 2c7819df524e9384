#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "support/golden.h"
#include "support/run_drover.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::Outcome;

/// The recorded runs of run_clm.py, by name; those that it refused or failed in have their own tests.
std::vector<std::string> recorded_runs() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(test::golden_path("run_clm")))
        if (entry.path().extension() == ".json" && read_json_file(entry.path()).at("exit_code") == 0)
            names.push_back(entry.path().stem());
    std::sort(names.begin(), names.end());
    return names;
}

Json recorded(const std::string& name) {
    return read_json_file(test::golden_path("run_clm/" + name + ".json"));
}

std::vector<std::string> keys_of(const Json& object) {
    std::vector<std::string> keys;
    for (const auto& item : object.items()) keys.push_back(item.key());
    return keys;
}

/// Tolerances for the recorded numbers. Everything without a limit must be equal.
struct Limits {
    double loss;

    explicit Limits(const Json& record) : loss(record.at("loss_tolerance").get<double>()) {}

    /// The largest difference allowed for the number `key`; 0 means equal.
    double of(const std::string& key, double expected) const {
        if (key.ends_with("loss")) return loss;
        if (key == "perplexity" || key == "grad_norm") return expected * loss * 4;
        if (key == "eval_accuracy")
            return loss * 4;  // among some 3,000 predictions, a near tie may go either way
        return 0;
    }
};

/// Compares the written values with the recorded ones, key by key and in order; a recorded null under the
/// name of a duration or a rate matches any number.
void expect_like(const Json& actual, const Json& expected, const Limits& limits, const std::string& where,
                 const std::string& key = "") {
    const bool is_time =
        key.ends_with("_runtime") || key.ends_with("_per_second") || key.ends_with("_preparation_time");
    if (is_time && expected.is_null()) {
        EXPECT_TRUE(actual.is_number()) << where;
    } else if (expected.is_object()) {
        ASSERT_TRUE(actual.is_object()) << where << " is " << actual;
        EXPECT_EQ(keys_of(actual), keys_of(expected)) << where;
        for (const auto& item : expected.items())
            if (actual.contains(item.key()))
                expect_like(actual.at(item.key()), item.value(), limits, where + "." + item.key(),
                            item.key());
    } else if (expected.is_array()) {
        ASSERT_TRUE(actual.is_array()) << where << " is " << actual;
        ASSERT_EQ(actual.size(), expected.size()) << where;
        for (std::size_t i = 0; i < expected.size(); ++i)
            expect_like(actual[i], expected[i], limits, where + "[" + std::to_string(i) + "]", key);
    } else if (expected.is_number_float()) {
        ASSERT_TRUE(actual.is_number_float()) << where << " is " << actual << ", not " << expected;
        const double value = expected.get<double>();
        EXPECT_LE(std::abs(actual.get<double>() - value), limits.of(key, value))
            << where << " is " << actual << ", not " << expected;
    } else if (key != "transformers_version") {
        EXPECT_EQ(actual, expected) << where;
    }
}

/// A record as printed on the console, {'loss': '8.319', …}, as JSON; none of these values contains a quote.
Json printed_record(std::string line) {
    std::replace(line.begin(), line.end(), '\'', '"');
    return parse_json(line, line);
}

/// The first line of `output` with a record that begins with `key`, from its brace on; empty if there is
/// none.
std::string line_with(const std::string& output, const std::string& key) {
    const auto begin = output.find("{'" + key + "'");
    return begin == std::string::npos ? "" : output.substr(begin, output.find('\n', begin) - begin);
}

/// Printed numbers have four digits, so the last one may differ even if the numbers agree.
void expect_printed_like(const std::string& actual, const std::string& expected, const Limits& limits) {
    ASSERT_FALSE(actual.empty()) << "nothing printed like " << expected;
    const Json actual_record = printed_record(actual);
    const Json expected_record = printed_record(expected);
    EXPECT_EQ(keys_of(actual_record), keys_of(expected_record)) << actual;
    for (const auto& [key, value] : expected_record.items()) {
        if (value == "*" || !actual_record.contains(key)) continue;
        if (value.is_number()) {
            EXPECT_EQ(actual_record.at(key), value) << actual;
            continue;
        }
        ASSERT_TRUE(actual_record.at(key).is_string()) << actual << " where " << expected << " has text";
        const std::string text = value.get<std::string>();
        const double number = std::stod(text);
        const double limit = limits.of(key, number);
        if (limit == 0) {
            EXPECT_EQ(actual_record.at(key), text) << actual;
        } else {
            EXPECT_NEAR(std::stod(actual_record.at(key).get<std::string>()), number,
                        limit + std::abs(number) * 1e-3)
                << actual;
        }
    }
}

class RunClm : public ::testing::Test {
  protected:
    void SetUp() override {
        setenv("DROVER_CACHE", (folder_ / "cache").c_str(), 1);
        setenv("HF_HOME", (folder_ / "huggingface").c_str(), 1);
        setenv("OMP_NUM_THREADS", "1", 1);  // the models are too small for more
    }

    void TearDown() override {
        unsetenv("DROVER_CACHE");
        unsetenv("HF_HOME");
        unsetenv("OMP_NUM_THREADS");
    }

    /// Runs the command line of `record` into out(); standard error goes to a file that is shown on failure.
    Outcome train(const Json& record) {
        const fs::path data = test::golden_path("run_clm");
        const std::vector<std::pair<std::string, fs::path>> places = {
            {"{data}", data},
            {"{config}", data / "configs"},
            {"{model}", data / "saved"},
            {"{tokenizer}", fs::path(DROVER_SOURCE_DIR) / "examples/tokenizers/shakespeare-4k"},
            {"{out}", out()},
        };
        std::string command = "run_clm";
        for (std::string argument : record.at("arguments").get<std::vector<std::string>>()) {
            for (const auto& [place, path] : places)
                if (const auto at = argument.find(place); at != std::string::npos)
                    argument.replace(at, place.size(), path.string());
            command += " '" + argument + "'";
        }
        const fs::path errors = folder_ / "stderr";
        Outcome outcome = test::run_drover(command + " 2>'" + errors.string() + "'", folder_.path().string());
        EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << read_text_file(errors);
        return outcome;
    }

    fs::path out() const { return folder_ / "out"; }

    Json written(const std::string& name) const { return read_json_file(out() / (name + ".json")); }

    void expect_history_like(const Json& expected) {
        Json state = written("trainer_state");
        const Json history = state.at("log_history");
        expect_like(history, expected.at("log_history"), Limits(expected), "log_history");
        state.erase("log_history");
        Json& best = state.at("best_model_checkpoint");
        if (best.is_string()) best = "{out}/" + fs::relative(best.get<std::string>(), out()).string();
        expect_like(state, expected.at("trainer_state"), Limits(expected), "trainer_state");
    }

    void expect_files_like(const Json& expected, const std::vector<std::string>& names) {
        for (const std::string& name : names)
            if (expected.contains(name))
                expect_like(written(name), expected.at(name), Limits(expected), name);
    }

    /// Checkpoints have their own tests, and the pickle of Python objects is not written here.
    void expect_present(const Json& expected) {
        for (const std::string& file : expected.at("files").get<std::vector<std::string>>())
            if (!file.starts_with("checkpoint-") && file != "training_args.bin") {
                EXPECT_TRUE(fs::exists(out() / file)) << file << " was not written";
            }
    }

  private:
    test::TemporaryFolder folder_;
};

class RecordedRun : public RunClm, public ::testing::WithParamInterface<std::string> {};

TEST_P(RecordedRun, GivesTheSameNumbersAndFiles) {
    const Json expected = recorded(GetParam());
    const Outcome outcome = train(expected);
    if (HasFailure()) return;
    expect_present(expected);
    if (expected.contains("trainer_state")) expect_history_like(expected);
    expect_files_like(expected,
                      {"train_results", "eval_results", "all_results", "config", "generation_config"});
    if (expected.contains("eval_results")) {
        const Json results = written("eval_results");
        EXPECT_DOUBLE_EQ(results.at("perplexity").get<double>(),
                         std::exp(results.at("eval_loss").get<double>()));
    }
    for (const std::string& line : expected.at("printed").get<std::vector<std::string>>())
        if (line.starts_with("{'loss'"))
            expect_printed_like(line_with(outcome.output, "loss"), line, Limits(expected));
        else if (line.starts_with("{'train_runtime'"))
            expect_printed_like(line_with(outcome.output, "train_runtime"), line, Limits(expected));
}

INSTANTIATE_TEST_SUITE_P(RunClm, RecordedRun, ::testing::ValuesIn(recorded_runs()),
                         [](const auto& run) { return run.param; });

// run_clm.py trains and then fails: its accuracy cannot handle the router's logits. What it wrote before is
// recorded; the evaluation loss comes from the run that computes nothing else.
TEST_F(RunClm, MixtralIsEvaluatedWithItsAuxiliaryLoss) {
    const Json expected = recorded("mixtral_aux_eval");
    const Json loss_only = recorded("mixtral_aux_eval_loss_only");
    ASSERT_NE(expected.at("exit_code"), 0);
    train(expected);
    if (HasFailure()) return;
    expect_history_like(expected);
    expect_files_like(expected, {"train_results", "config", "generation_config"});
    Json results = written("eval_results");
    EXPECT_TRUE(results.contains("eval_accuracy"));
    results.erase("eval_accuracy");
    expect_like(results, loss_only.at("eval_results"), Limits(loss_only), "eval_results");
}

TEST_F(RunClm, StartsAgainFromTheModelThatItSaved) {
    Json record = recorded("adamw_linear");
    train(record);
    if (HasFailure()) return;
    const Json trained = written("eval_results");
    for (Json& argument : record.at("arguments"))
        if (argument == "--config_name")
            argument = "--model_name_or_path";
        else if (argument == "{config}/llama.json")
            argument = "{out}";
        else if (argument == "--do_train")
            argument = "--overwrite_output_dir";
    train(record);
    if (HasFailure()) return;
    for (const char* key : {"eval_loss", "eval_accuracy", "perplexity"})
        EXPECT_EQ(written("eval_results").at(key), trained.at(key)) << key;
}

// run_clm.py 5 has only --dtype; version 4's name means the same here.
TEST_F(RunClm, TakesTheOldNameOfDtype) {
    const Json refused = recorded("continued_torch_dtype");
    ASSERT_NE(refused.at("exit_code"), 0);
    train(refused);
    if (HasFailure()) return;
    const Json expected = recorded("continued_bfloat16");
    expect_history_like(expected);
    expect_files_like(expected, {"train_results", "eval_results", "all_results", "config"});
}

}  // namespace
}  // namespace drover
