#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/json_text.h"
#include "support/errors.h"
#include "support/golden.h"

namespace drover {
namespace {

TEST(Schedule, AllOfTransformersValues) {
    const Json golden = read_json_file(test::golden_path("schedules.json"));
    int checked = 0;
    for (const Json& test_case : golden.at("cases")) {
        const std::string name = test_case.at("scheduler");
        const std::vector<double> expected = test_case.at("values");
        const double base = test_case.at("learning_rate");
        if (name == "reduce_lr_on_plateau") {
            PlateauSchedule schedule(base, false, test_case.at("kwargs"));
            const std::vector<double> metrics = test_case.at("metrics");
            for (std::size_t step = 0; step < expected.size(); ++step) {
                EXPECT_NEAR(schedule.rate(), expected[step], base * 1e-12)
                    << test_case.at("name") << " " << step;
                schedule.observe(metrics[step]);
            }
        } else {
            const Schedule schedule(name, base, test_case.at("warmup_steps"),
                                    test_case.at("num_training_steps"), test_case.at("kwargs"));
            for (std::size_t step = 0; step < expected.size(); ++step)
                EXPECT_NEAR(schedule.rate(static_cast<std::int64_t>(step)), expected[step], base * 1e-12)
                    << test_case.at("name") << " " << step;
        }
        ++checked;
    }
    EXPECT_GT(checked, 100);
}

/// To the bit: the script's formulas in the script's order. Made by tools/oracle/nxd_run.py.
TEST(Schedule, RunLlamaNxdsValues) {
    const Json golden = read_json_file(test::golden_path("nxd_run/expected.json"));
    for (const Json& rates : golden.at("rates")) {
        const Schedule schedule(
            "nxd_cosine", rates.at("lr"), rates.at("warmup_steps"), rates.at("max_steps"),
            Json{{"min_lr", rates.at("min_lr")}, {"constant_steps", rates.at("constant_steps")}});
        std::int64_t step = 0;
        for (const Json& value : rates.at("values")) {
            EXPECT_DOUBLE_EQ(schedule.rate(step), value.get<double>()) << rates.dump() << " " << step;
            ++step;
        }
    }
}

TEST(Schedule, WrongArgumentsAreNamed) {
    const auto expect = [](std::string_view name, const char* arguments, std::string_view part) {
        SCOPED_TRACE(arguments);
        test::expect_error<UsageError>([&] { Schedule(name, 1e-3, 0, 10, parse_json(arguments, "kwargs")); },
                                       {part});
    };
    expect("cosin", "{}", "\"cosin\"");
    expect("cosine", R"({"cycles": 2})", "\"cycles\"");
    expect("cosine", "[]", "JSON object");
    expect("cosine_with_min_lr", "{}", "min_lr");
    expect("cosine_with_min_lr", R"({"min_lr": 1, "min_lr_rate": 1})", "not both");
    expect("warmup_stable_decay", "{}", "num_decay_steps");
    expect("warmup_stable_decay", R"({"num_decay_steps": 2, "decay_type": "x"})", "decay_type");
    expect("polynomial", R"({"lr_end": 1})", "lr_end");
    expect("polynomial", R"({"power": "two"})", "power");
}

}  // namespace
}  // namespace drover
