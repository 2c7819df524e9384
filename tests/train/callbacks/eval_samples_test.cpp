#include "train/callbacks/eval_samples.h"

#include <gtest/gtest.h>

#include <sstream>

#include "core/json.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "support/golden.h"
#include "train/state/trainer_settings.h"

namespace drover {
namespace {

/// A callback with samples of its own, and what it showed and warned of.
struct Observed {
    std::vector<EvalSample> samples;
    std::vector<std::pair<std::int64_t, std::string>> shown;
    std::vector<std::string> warnings;

    EvalSamples callback(const std::filesystem::path& file) {
        return EvalSamples(
            [this] { return samples; }, file,
            [this](std::int64_t step, const std::string& text) { shown.emplace_back(step, text); },
            [this](const std::string& line) { warnings.push_back(line); });
    }
    static void evaluate(EvalSamples& callback, std::int64_t step) {
        const TrainerSettings settings;
        const StepPlan plan{};
        TrainerState state;
        state.global_step = step;
        state.epoch = static_cast<double>(step) / 10;
        const ParameterCounts parameters{};
        TrainerControl control{};
        TrainerView view{settings, plan, state, parameters, control};
        callback.on_evaluate(view, Json::object());
    }
};

TEST(EvalSamples, AreShownAndKeptAsLines) {
    const test::TemporaryFolder folder;
    Observed seen;
    EvalSamples callback = seen.callback(folder / "new/eval_samples.jsonl");
    seen.samples = {{"Who?", "Ada \"Fenn\"."}, {"Where?", "Here.\nThere."}};
    Observed::evaluate(callback, 5);
    seen.samples = {{"Who?", "Nobody."}};
    Observed::evaluate(callback, 10);

    ASSERT_EQ(seen.shown.size(), 2u);
    EXPECT_EQ(seen.shown[0].first, 5);
    EXPECT_EQ(seen.shown[0].second, "> Who?\n\nAda \"Fenn\".\n\n> Where?\n\nHere.\nThere.\n");
    EXPECT_EQ(seen.shown[1].first, 10);
    std::istringstream lines(read_text_file(folder / "new/eval_samples.jsonl"));
    std::vector<Json> rows;
    for (std::string line; std::getline(lines, line);) rows.push_back(parse_json(line, "a line"));
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(rows[0], (Json{{"step", 5}, {"epoch", 0.5}, {"prompt", "Who?"}, {"text", "Ada \"Fenn\"."}}));
    EXPECT_EQ(rows[1].at("text"), "Here.\nThere.");
    EXPECT_EQ(rows[2].at("step"), 10);
    EXPECT_TRUE(seen.warnings.empty());
}

TEST(EvalSamples, OtherRanksShowNothing) {
    Observed seen;
    EvalSamples callback = seen.callback({});
    Observed::evaluate(callback, 5);
    EXPECT_TRUE(seen.shown.empty());
}

TEST(EvalSamples, AFileThatCannotBeWrittenIsReportedOnce) {
    const test::TemporaryFolder folder;
    write_file_atomically(folder / "file", "");
    Observed seen;
    EvalSamples callback = seen.callback(folder / "file/eval_samples.jsonl");  // inside of a file
    seen.samples = {{"Who?", "Ada."}};
    Observed::evaluate(callback, 1);
    Observed::evaluate(callback, 2);
    EXPECT_EQ(seen.shown.size(), 2u);
    ASSERT_EQ(seen.warnings.size(), 1u);
    EXPECT_NE(seen.warnings[0].find("eval_samples.jsonl cannot be written"), std::string::npos);
}

}  // namespace
}  // namespace drover
