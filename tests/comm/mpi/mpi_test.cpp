// Starts real processes with mpirun; what they do is in mpi_checks.cpp.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace drover {
namespace {

struct Result {
    int status;
    std::string output;  // of all ranks and of mpirun, both streams
};

/// Failing collectives wait for half an hour unless the scenario sets another time, so ending early shows
/// that the cause was noticed; `timeout` only keeps a failing test from blocking the rest.
Result run_ranks(int ranks, const std::string& scenario) {
    const std::string command =
        fmt::format("timeout -k 1 60 {} -n {} {} {} 2>&1", MPIRUN, ranks, MPI_CHECKS, scenario);
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return {-1, "no pipe"};
    std::string output;
    std::array<char, 4096> buffer;
    for (std::size_t got; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
        output.append(buffer.data(), got);
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

void expect_failure(const Result& result, const std::string& reason) {
    EXPECT_NE(result.status, 0);
    EXPECT_NE(result.status, 124) << "did not end by itself";
    EXPECT_NE(result.output.find(reason), std::string::npos) << "no \"" << reason << "\" in:\n"
                                                             << result.output;
}

class MpiRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Mpi, MpiRanks, testing::Values(1, 2, 3, 4));

TEST_P(MpiRanks, CollectivesGiveWhatALoopOverTheRanksGives) {
    const Result result = run_ranks(GetParam(), "checks");
    EXPECT_EQ(result.status, 0) << result.output;
    // MPI may print something of its own first (about a container without /sys, for example).
    EXPECT_TRUE(result.output.ends_with(fmt::format("{} ranks: all is well\n", GetParam()))) << result.output;
}

TEST(Mpi, CollectivesPassTheDebugModesChecks) {
    const Result result = run_ranks(3, "debug_checks");
    EXPECT_EQ(result.status, 0) << result.output;
}

TEST(Mpi, ARankThatHangsIsNamedByTheOthers) {
    expect_failure(run_ranks(3, "hang"), "in barrier number 2 on axis data; received nothing from rank 1.");
}

TEST(Mpi, ARankThatLeavesEarlyIsNamedByTheOthers) {
    expect_failure(run_ranks(2, "leave"), "in barrier number 1 on axis data; received nothing from rank 1.");
}

TEST(Mpi, ARankThatHasEndedDoesNotWaitForEver) {
    expect_failure(run_ranks(2, "linger"),
                   "Rank 1 has finished its work and waited 1.0 s for the others to do so.");
}

TEST(Mpi, ARankThatFailsEndsTheOthersAndSaysWhy) {
    expect_failure(run_ranks(3, "throw"), "mpi_checks: The disk is full. Make room.\n");
    expect_failure(run_ranks(2, "throw_under_way"), "mpi_checks: The disk is full. Make room.\n");
}

TEST(Mpi, ARankThatDiesEndsTheOthers) {
    expect_failure(run_ranks(3, "exit"), "");
    expect_failure(run_ranks(3, "kill"), "signal 9");
}

TEST(Mpi, RanksThatDisagreeAreToldApart) {
    expect_failure(run_ranks(2, "other_size"), "expected ");
    expect_failure(
        run_ranks(2, "other_call"),
        "Rank 0 calls barrier, rank 1 calls all_reduce of 8 float32 (sum) (collective 2 on axis data).");
}

TEST(Mpi, StartsOncePerProcess) {
    expect_failure(run_ranks(1, "twice"), "MPI was started twice in one process.");
}

}  // namespace
}  // namespace drover

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    // More ranks than cores, running as root in containers, and no access to the memory of other processes.
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
    // If one has failed, mpirun need not give the others time.
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 1);
    // MPI itself leaks memory.
    const char* asan = getenv("ASAN_OPTIONS");
    setenv("ASAN_OPTIONS", fmt::format("{}:detect_leaks=0", asan == nullptr ? "" : asan).c_str(), 1);
    return RUN_ALL_TESTS();
}
