#pragma once

#include <fmt/format.h>

#include <cmath>

#include "app/checkpoint_runs.h"

namespace drover::test {

/// Small runs of `drover run_clm` on several processes started by mpirun, and on one.
class MeshRuns : public CheckpointRuns {
  protected:
    void SetUp() override {
        CheckpointRuns::SetUp();
        // There is no point in waiting for processes that cannot answer.
        setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 1);
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
        setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // Open MPI leaks memory
    }
    void TearDown() override {
        for (const char* name : {"OMPI_MCA_odls_base_sigkill_timeout",
                                 "OMPI_MCA_btl_vader_single_copy_mechanism", "ASAN_OPTIONS"})
            unsetenv(name);
        CheckpointRuns::TearDown();
    }

    static std::string mpirun() {
        return std::string(DROVER_MPIRUN) + " --allow-run-as-root --oversubscribe --bind-to none";
    }
    /// The whole command; `more` may override anything.
    std::string command(int processes, const std::string& output, const std::string& more) const {
        return fmt::format("{} -n {} {} {}", mpirun(), processes, DROVER_BINARY, words(output, more));
    }
    /// Runs it in the test's folder; returns stdout and stderr together.
    Outcome shell(const std::string& line) const {
        return run_shell(line + " 2>&1", folder_.path().string());
    }
    Outcome train_on(int processes, const std::string& output, const std::string& more) const {
        return processes == 1 ? train(output, more) : shell(command(processes, output, more));
    }

    Json history(const std::string& output) const {
        const std::filesystem::path file = folder_ / output / "trainer_state.json";
        return parse_python_json(read_text_file(file), file.string()).at("log_history");
    }

    /// The records of two runs agree, except for values that depend on a clock. Numbers may differ by
    /// rounding.
    void expect_same_records(const std::string& actual, const std::string& expected,
                             const std::vector<std::string>& except = {}) const {
        const Json a = history(actual), b = history(expected);
        ASSERT_EQ(a.size(), b.size());
        for (std::size_t i = 0; i < b.size(); ++i)
            for (const auto& [key, value] : b[i].items()) {
                if (key.ends_with("_runtime") || key.ends_with("_per_second")) continue;
                if (std::find(except.begin(), except.end(), key) != except.end()) continue;
                ASSERT_TRUE(a[i].contains(key)) << key << " of record " << i;
                EXPECT_NEAR(a[i].at(key).get<double>(), value.get<double>(),
                            1e-4 * std::abs(value.get<double>()))
                    << key << " of record " << i;
            }
    }
};

}  // namespace drover::test
