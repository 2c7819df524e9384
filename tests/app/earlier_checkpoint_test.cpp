#include "app/mesh_runs.h"
#include "core/json_text.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// A run of an earlier build, and the tolerance for its records. Rounding depends on the instruction set.
struct EarlierRun {
    const char* name;
    double loss_tolerance;
    double norm_tolerance;
};

std::ostream& operator<<(std::ostream& out, const EarlierRun& run) {
    return out << run.name;
}

class EarlierCheckpoint : public test::MeshRuns, public ::testing::WithParamInterface<EarlierRun> {
  protected:
    /// The files that the run was started with, under the names in its flags, and the checkpoint.
    void SetUp() override {
        MeshRuns::SetUp();
        for (const char* name : {"config.json", "tokenizer", "train.txt"})
            fs::copy(golden_ / name, folder_ / name, fs::copy_options::recursive);
        fs::create_directories(folder_ / "out");
        fs::copy(golden_ / GetParam().name / "checkpoint-3", checkpoint("out", 3),
                 fs::copy_options::recursive);
    }
    /// The command that was given to the earlier build.
    test::Outcome resume(const Json& run) const {
        const std::string line =
            std::string(DROVER_BINARY) + " run_clm " + run.at("flags").get<std::string>();
        const int processes = run.at("processes").get<int>();
        return shell(processes == 1 ? line : fmt::format("{} -n {} {}", mpirun(), processes, line));
    }

    const fs::path golden_ = test::golden_path("earlier_checkpoint");
};

TEST_P(EarlierCheckpoint, GoesOnAsTheEarlierBuildDid) {
    const Json run = read_json_file(golden_ / GetParam().name / "run.json");
    const test::Outcome outcome = resume(run);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("Continuing training from global step 3\n"), std::string::npos)
        << outcome.output;
    EXPECT_EQ(outcome.output.find("Warning"), std::string::npos) << outcome.output;
    EXPECT_EQ(outcome.output.find(" != "), std::string::npos) << outcome.output;

    Json records = Json::array();
    for (const Json& record : history("out"))
        if (record.contains("loss") && record.at("step") > 3) records.push_back(record);
    const Json& expected = run.at("later_records");
    ASSERT_EQ(records.size(), expected.size());
    ASSERT_FALSE(expected.empty());
    const auto expect_near = [](const Json& actual, const Json& wanted, const char* key, double tolerance) {
        const double value = wanted.at(key).get<double>();
        EXPECT_NEAR(actual.at(key).get<double>(), value, tolerance * std::abs(value))
            << key << " of step " << wanted.at("step");
    };
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(records[i].at("step"), expected[i].at("step"));
        EXPECT_EQ(records[i].at("epoch"), expected[i].at("epoch"));
        EXPECT_EQ(records[i].at("learning_rate"), expected[i].at("learning_rate"));
        expect_near(records[i], expected[i], "loss", GetParam().loss_tolerance);
        expect_near(records[i], expected[i], "grad_norm", GetParam().norm_tolerance);
    }
    EXPECT_EQ(find_damage(checkpoint("out", 6)), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Golden, EarlierCheckpoint,
                         ::testing::Values(EarlierRun{"adamw", 1e-6, 1e-6},
                                           EarlierRun{"adafactor_bf16", 1e-3, 1e-2},
                                           EarlierRun{"adamw_fsdp", 1e-6, 1e-6}),
                         [](const auto& run) { return std::string(run.param.name); });

}  // namespace
}  // namespace drover
