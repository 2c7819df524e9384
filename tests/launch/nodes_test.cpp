// `drover launch` on two nodes: network namespaces of this machine, which have their own addresses and ports
// and a virtual link between them. There is no ssh.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "launch/peers.h"
#include "launch/runs.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::BackgroundRun;
using test::contains;
using test::free_port;
using test::Outcome;
using test::run;

class LaunchNodes : public testing::Test {
  protected:
    LaunchNodes() : folder_(testing::TempDir() + "/launch_nodes_" + std::to_string(getpid())) {
        fs::create_directories(folder_);
    }
    ~LaunchNodes() override {
        for (const int node : {0, 1}) command(fmt::format("ip netns del {}", name(node)));
        std::error_code ignored;  // what a killed job left may be going away by itself
        fs::remove_all(folder_, ignored);
    }
    void SetUp() override {
        bool made = true;
        for (const int node : {0, 1}) made = made && command(fmt::format("ip netns add {}", name(node)));
        made = made && command(fmt::format("ip link add {0} netns {0} type veth peer name {1} netns {1}",
                                           name(0), name(1)));
        for (const int node : {0, 1})
            made = made &&
                   command(fmt::format("ip -n {0} addr add {1}/24 dev {0}", name(node), address(node))) &&
                   command(fmt::format("ip -n {0} link set lo up && ip -n {0} link set {0} up", name(node)));
        made = made && command(within(0) + " true");
        if (!made)
            GTEST_SKIP() << "Two nodes need network namespaces: root, iproute2 (ip netns) and unshare --uts.";
    }

    static bool command(const std::string& words) {
        return std::system((words + " >/dev/null 2>&1").c_str()) == 0;
    }
    /// The name of a namespace and of its end of the link.
    static std::string name(int node) { return fmt::format("drv{}n{}", getpid() % 1'000'000, node); }
    static std::string address(int node) { return fmt::format("10.213.7.{}", node + 1); }
    /// The command prefix that runs a program as on that node, which has its own host name.
    static std::string within(int node) {
        return fmt::format("ip netns exec {} unshare --uts sh -c 'hostname node{}; exec \"$@\"' sh",
                           name(node), node);
    }
    /// Starts drover launch on a node; --node_rank is in `flags` or missing. Open MPI's own folder is in the
    /// test's, because elsewhere its name is that of any test's node.
    std::unique_ptr<BackgroundRun> start(int node, const std::string& flags, const std::string& what) const {
        const std::string arguments =
            fmt::format("launch --nnodes 2 --master_addr {} --master_port 9010 {} --exec {} {}", address(0),
                        flags, test::launch_program, what);
        static int runs = 0;
        const fs::path output = folder_ / fmt::format("{}.{}", node, ++runs);
        std::ofstream{output};  // so that it can be read from now on
        return std::make_unique<BackgroundRun>(
            arguments, output,
            within(node) + fmt::format(" env NOTE=note{} TMPDIR={}", node, folder_.native()));
    }

    const fs::path folder_;
};

TEST_F(LaunchNodes, ProcessesOfBothAreOneWorld) {
    const auto second = start(1, "--nproc_per_node 1 --node_rank 1", "sum");
    const auto first = start(0, "--nproc_per_node 2 --node_rank 0", "sum");
    EXPECT_EQ(first->exit_code(), 0) << first->output();
    EXPECT_EQ(second->exit_code(), 0) << second->output();
    for (const int rank : {0, 1, 2})
        EXPECT_TRUE(contains(first->output(), fmt::format("rank {} of 3: sum 6\n", rank))) << first->output();
    EXPECT_TRUE(contains(first->output(), "drover: Node 1 has joined: node1 at 10.213.7.2, 1 process.\n"))
        << first->output();
}

TEST_F(LaunchNodes, NodesFindTheirNumbersAndKeepTheirEnvironment) {
    const auto second = start(1, "--nproc_per_node 2", "tell");
    const auto first = start(0, "--nproc_per_node 1", "tell");
    EXPECT_EQ(first->exit_code(), 0) << first->output();
    EXPECT_EQ(second->exit_code(), 0) << second->output();
    for (const char* part : {"RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 ", "NOTE=note0\n",
                             "RANK=2 WORLD_SIZE=3 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 ", "NOTE=note1\n"})
        EXPECT_TRUE(contains(first->output(), part)) << first->output();
}

TEST_F(LaunchNodes, AFailureIsEveryNodesStatus) {
    const auto second = start(1, "--node_rank 1", "fail");
    const auto first = start(0, "--node_rank 0", "fail");
    EXPECT_EQ(first->exit_code(), 7) << first->output();
    EXPECT_EQ(second->exit_code(), 7) << second->output();
}

TEST_F(LaunchNodes, ANodeOfAnotherJobIsRefused) {
    const auto first = start(0, "--node_rank 0 --rdzv_id mine", "sum");
    const auto other = start(1, "--node_rank 1 --rdzv_id yours", "sum");
    EXPECT_EQ(other->exit_code(), 1);
    EXPECT_TRUE(contains(other->output(),
                         "refused this node: it belongs to another job (--rdzv_id) or has "
                         "another secret."))
        << other->output();
    // Node 0 keeps waiting, and accepts the right one.
    const auto second = start(1, "--node_rank 1 --rdzv_id mine", "sum");
    EXPECT_EQ(second->exit_code(), 0) << second->output();
    EXPECT_EQ(first->exit_code(), 0) << first->output();
    EXPECT_TRUE(
        contains(first->output(), "drover: A node at 10.213.7.2 was refused: it belongs to another job"));
}

TEST_F(LaunchNodes, ASignalToAnyNodeLetsEveryProcessSave) {
    const auto second = start(1, "--node_rank 1", "wait");
    const auto first = start(0, "--node_rank 0", "wait");
    ASSERT_TRUE(first->wait_until([&] {
        return contains(first->output(), "rank 0 is") && contains(first->output(), "rank 1 is");
    })) << first->output();
    second->send(SIGTERM);
    EXPECT_EQ(first->exit_code(), 0) << first->output();
    EXPECT_EQ(second->exit_code(), 0) << second->output();
    EXPECT_TRUE(contains(first->output(), "rank 0 has saved\n")) << first->output();
    EXPECT_TRUE(contains(first->output(), "rank 1 has saved\n")) << first->output();
}

TEST_F(LaunchNodes, ALauncherThatDiesEndsTheJob) {
    for (const int dying : {1, 0}) {
        const std::unique_ptr<BackgroundRun> nodes[] = {start(0, "--node_rank 0", "wait"),
                                                        start(1, "--node_rank 1", "wait")};
        const auto started = [&] {
            return contains(nodes[0]->output(), "rank 0 is") && contains(nodes[0]->output(), "rank 1 is");
        };
        ASSERT_TRUE(nodes[0]->wait_until(started)) << nodes[0]->output();
        nodes[dying]->send(SIGKILL);
        EXPECT_EQ(nodes[1 - dying]->exit_code(), 1) << nodes[1 - dying]->output();
        EXPECT_TRUE(contains(nodes[1 - dying]->output(), fmt::format("The launcher of node {}", dying)))
            << nodes[1 - dying]->output();
    }
}

TEST(LaunchOneMachine, MayPlaySeveralNodes) {
    const fs::path folder = testing::TempDir() + "/launch_one_" + std::to_string(getpid());
    fs::create_directories(folder);
    const std::string place = fmt::format("--nnodes 2 --rdzv_endpoint 127.0.0.1:{}", free_port());
    const std::string job = fmt::format("{} --exec {} sum", place, test::launch_program);
    BackgroundRun one("launch --node_rank 0 " + job, folder / "one");
    BackgroundRun two("launch --node_rank 1 " + job, folder / "two");
    EXPECT_EQ(one.exit_code(), 0) << one.output();
    EXPECT_EQ(two.exit_code(), 0) << two.output();
    EXPECT_TRUE(contains(one.output() + two.output(), "rank 1 of 2: sum 3\n"))
        << one.output() << two.output();
    fs::remove_all(folder);
}

TEST(LaunchOneMachine, NamesTheNodesThatDoNotCome) {
    const std::string place = fmt::format("--master_addr 127.0.0.1 --master_port {}", free_port());
    const std::string flags = "launch --nnodes 3 --rdzv_conf join_timeout=1 " + place;
    const Outcome first = run(flags + " --node_rank 0 run_clm");
    EXPECT_EQ(first.exit_code, 1);
    EXPECT_TRUE(contains(first.output, "drover: Of 3 nodes, nodes 1 and 2 did not arrive within 1 s."))
        << first.output;
    const Outcome second = run(flags + " --node_rank 1 run_clm");
    EXPECT_EQ(second.exit_code, 1);
    EXPECT_EQ(test::count_of(second.output, "drover: Waiting for node 0 at 127.0.0.1:"), 1u) << second.output;
    EXPECT_TRUE(contains(second.output, "drover: Node 0 did not appear at 127.0.0.1:")) << second.output;
    const Outcome elsewhere = run("launch --nnodes 2 --node_rank 0 --master_addr 192.0.2.77 run_clm");
    EXPECT_TRUE(contains(elsewhere.output, "drover: Node 0 cannot listen on 192.0.2.77:29500: "))
        << elsewhere.output;
}

}  // namespace
}  // namespace drover
