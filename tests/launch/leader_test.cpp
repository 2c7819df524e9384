#include <gtest/gtest.h>

#include <fstream>

#include "core/text_file.h"
#include "launch/peers.h"
#include "launch/runs.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::BackgroundRun;
using test::contains;

/// Open MPI 5 uses other names for some settings than 4, and the leader asks mpirun for its version. This
/// fake one only records its arguments.
TEST(LaunchLeader, SpeaksToTheMpirunThatIsThere) {
    const fs::path folder = testing::TempDir() + "/launch_leader_" + std::to_string(getpid());
    fs::create_directories(folder);
    std::ofstream(folder / "mpirun") << "#!/bin/sh\n[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 5.0.3' "
                                        "&& exit\necho \"$*\" >'"
                                     << (folder / "words").native() << "'\n";
    fs::permissions(folder / "mpirun", fs::perms::owner_all);
    const int port = test::free_port();
    const auto arguments = [&](int node) {
        return "launch --nnodes 2 --node_rank " + std::to_string(node) +
               " --rdzv_endpoint 127.0.0.1:" + std::to_string(port) + " --exec true";
    };
    const std::string within = "env PATH='" + folder.native() + "':\"$PATH\"";
    BackgroundRun one(arguments(0), folder / "one", within), two(arguments(1), folder / "two", within);
    EXPECT_EQ(one.exit_code(), 0) << one.output();
    EXPECT_EQ(two.exit_code(), 0) << two.output();
    const std::string words = read_text_file(folder / "words");
    EXPECT_TRUE(contains(words, "--prtemca plm ssh ")) << words;
    fs::remove_all(folder);
}

}  // namespace
}  // namespace drover
