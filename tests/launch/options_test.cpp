// The meaning of the flags of `drover launch`, and the resulting command line of mpirun.

#include "launch/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "args/command.h"
#include "core/error.h"
#include "launch/command_line.h"
#include "launch/machine.h"
#include "launch/message.h"
#include "support/errors.h"

namespace drover {
namespace {

using Words = std::vector<std::string>;
using Variables = LaunchEnvironmentVariables;

LaunchFlags flags_of_run_clm() {
    LaunchFlags flags;
    flags.words = {"run_clm", "--do_train"};
    return flags;
}

/// Flags for `nodes` nodes.
LaunchFlags flags_of_nodes(const std::string& nodes) {
    LaunchFlags flags = flags_of_run_clm();
    flags.nnodes = nodes;
    flags.master_addr = "node0";
    return flags;
}

std::string cause_of_refusal(const LaunchFlags& flags, const Variables& variables = {}) {
    return test::cause_of<UsageError>([&] { read_launch_options(flags, variables); });
}

TEST(LaunchOptions, WithoutFlagsThereIsOneProcessOnOneNode) {
    const LaunchOptions options = read_launch_options(flags_of_run_clm(), {});
    EXPECT_EQ(options.nodes, 1);
    EXPECT_EQ(count_processes(options.processes), 1);
    EXPECT_TRUE(options.own_command);
    EXPECT_EQ(options.program, (Words{"run_clm", "--do_train"}));
    EXPECT_TRUE(options.remarks.empty());
}

TEST(LaunchOptions, ProcessesAreANumberOrAKind) {
    LaunchFlags flags = flags_of_run_clm();
    flags.nproc_per_node = "8";
    EXPECT_EQ(count_processes(read_launch_options(flags, {}).processes), 8);
    flags.nproc_per_node = "cpu";
    EXPECT_EQ(count_processes(read_launch_options(flags, {}).processes), usable_cores());
    flags.nproc_per_node = "auto";
    EXPECT_GE(count_processes(read_launch_options(flags, {}).processes), 1);
    for (const char* wrong : {"0", "-1", "many", "2x", "99999999999"}) {
        flags.nproc_per_node = wrong;
        EXPECT_EQ(cause_of_refusal(flags), std::string("--nproc_per_node is \"") + wrong + "\".");
    }
}

TEST(LaunchOptions, NodesMeetAtTheMasterOrTheEndpoint) {
    LaunchFlags flags = flags_of_nodes("2");
    flags.node_rank = "1";
    flags.master_port = "9010";
    LaunchOptions options = read_launch_options(flags, {});
    EXPECT_EQ(options.nodes, 2);
    EXPECT_EQ(options.node_rank, 1);
    EXPECT_EQ(options.master_address, "node0");
    EXPECT_EQ(options.master_port, 9010);

    flags = flags_of_run_clm();
    flags.nnodes = "2:4";
    flags.rdzv_endpoint = "10.0.0.1:400";
    flags.rdzv_id = "secret";
    flags.rdzv_conf = "join_timeout=30,is_host=1";
    options = read_launch_options(flags, {{"NODE_RANK", ""}});
    EXPECT_EQ(options.nodes, 4);
    EXPECT_EQ(options.node_rank, any_node);
    EXPECT_EQ(options.master_address, "10.0.0.1");
    EXPECT_EQ(options.master_port, 400);
    EXPECT_EQ(options.job_id, "secret");
    EXPECT_EQ(options.join_timeout.count(), 30);
    ASSERT_EQ(options.remarks.size(), 3u);
    EXPECT_EQ(options.remarks[0], "A job does not grow or shrink; 4 nodes are waited for.");
    EXPECT_TRUE(options.remarks[1].starts_with("The nodes recognise each other only by --rdzv_id"));
    EXPECT_TRUE(options.remarks[2].starts_with("--rdzv_conf is_host has no effect."));
}

TEST(LaunchOptions, TheEnvironmentSpeaksWhereFlagsDoNot) {
    const Variables by_name{{"NNODES", "3"}, {"NODE_RANK", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "5"}};
    LaunchOptions options = read_launch_options(flags_of_run_clm(), by_name);
    EXPECT_EQ(options.nodes, 3);
    EXPECT_EQ(options.node_rank, 2);
    EXPECT_EQ(options.master_address, "a");
    EXPECT_EQ(options.master_port, 5);

    LaunchFlags flags = flags_of_nodes("4");
    flags.node_rank = "1";
    options = read_launch_options(flags, by_name);
    EXPECT_EQ(options.nodes, 4);
    EXPECT_EQ(options.node_rank, 1);
    EXPECT_EQ(options.master_address, "node0");

    // RANK and WORLD_SIZE count nodes, unless a per-process launcher has set them.
    Variables platform{{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"MASTER_ADDR", "a"}};
    options = read_launch_options(flags_of_run_clm(), platform);
    EXPECT_EQ(options.nodes, 2);
    EXPECT_EQ(options.node_rank, 1);
    ASSERT_EQ(options.remarks.size(), 3u);
    EXPECT_EQ(options.remarks[0], "WORLD_SIZE=2 is taken as the number of nodes.");
    EXPECT_EQ(options.remarks[2], "RANK=1 is taken as the number of this node.");
    platform["LOCAL_RANK"] = "0";
    EXPECT_EQ(read_launch_options(flags_of_run_clm(), platform).nodes, 1);
    EXPECT_EQ(read_launch_options(flags_of_run_clm(), {{"WORLD_SIZE", "2"}}).nodes, 1);

    flags = flags_of_run_clm();
    flags.standalone = true;
    EXPECT_EQ(read_launch_options(flags, by_name).nodes, 1);
}

TEST(LaunchOptions, WhatProtectsAJobOfSeveralNodesIsSaid) {
    LaunchFlags flags = flags_of_nodes("2");
    ASSERT_EQ(read_launch_options(flags, {}).remarks.size(), 1u);
    EXPECT_TRUE(read_launch_options(flags, {}).remarks[0].starts_with("This job has no secret: "));
    LaunchOptions options = read_launch_options(flags, {{"DROVER_LAUNCH_SECRET", "0123456789abcdef"}});
    EXPECT_EQ(options.secret, "0123456789abcdef");
    EXPECT_TRUE(options.remarks.empty());
    test::expect_error(
        [&] {
            read_launch_options(flags, {{"DROVER_LAUNCH_SECRET", "0123456789abcde"}});
        },
        {"DROVER_LAUNCH_SECRET has 15 characters"});
    test::expect_error(
        [&] {
            read_launch_options(flags, {{"DROVER_LAUNCH_SECRET", ""}});
        },
        {"DROVER_LAUNCH_SECRET has 0 characters"});
    flags.secret_file = "";
    EXPECT_EQ(cause_of_refusal(flags), "--secret_file is \"\".");
    flags.secret_file = "file";
    options = read_launch_options(flags, {});
    EXPECT_EQ(options.secret_file, "file");
    EXPECT_TRUE(options.remarks.empty());
}

TEST(LaunchOptions, ScriptsAndModulesOfTorchrunMeanOwnCommands) {
    LaunchFlags flags;
    flags.words = {"../examples/pytorch/run_clm.py", "--bf16=true"};
    LaunchOptions options = read_launch_options(flags, {});
    EXPECT_EQ(options.program, (Words{"run_clm", "--bf16=true"}));
    EXPECT_EQ(options.remarks, Words{"../examples/pytorch/run_clm.py is drover's own run_clm."});
    flags.words = {"run_llama_nxd.py", "--tb_dir", "tb"};
    EXPECT_EQ(read_launch_options(flags, {}).program, (Words{"run_llama_nxd", "--tb_dir", "tb"}));
    flags.words = {"run_llama_nxd"};
    EXPECT_TRUE(read_launch_options(flags, {}).remarks.empty());
    flags.module = true;
    flags.words = {"examples.run_clm"};
    EXPECT_EQ(read_launch_options(flags, {}).program, Words{"run_clm"});
    flags.module = false;
    EXPECT_EQ(cause_of_refusal(flags),
              "\"examples.run_clm\" is not a command that runs on several processes.");
    flags.exec = true;
    options = read_launch_options(flags, {});
    EXPECT_EQ(options.program, Words{"examples.run_clm"});
    EXPECT_FALSE(options.own_command);
}

/// A value left over would be taken for the program to start.
TEST(LaunchOptions, FlagsOfTorchrunWithoutEffectTakeTheirValues) {
    const Words given{"--rdzv_backend c10d",
                      "-t 3",
                      "--tee 3",
                      "--local_ranks_filter 0",
                      "--local-ranks-filter 0",
                      "--duplicate_stdout_filters x",
                      "--duplicate_stderr_filters x",
                      "--log_line_prefix_template x",
                      "--logs_specs x",
                      "--start_method spawn",
                      "--event_log_handler null",
                      "--run_path",
                      "--role trainer",
                      "--monitor_interval 5",
                      "--local_addr 10.0.0.1",
                      "--numa_binding node",
                      "--signals_to_handle SIGTERM",
                      "--virtual_local_rank"};
    for (const std::string& flag : given) {
        const CommandLine line("", "");
        LaunchFlags flags;
        add_launch_flags(line.program(), flags);
        std::istringstream text(flag + " run_clm --do_train");
        const Words words{std::istream_iterator<std::string>(text), {}};
        EXPECT_EQ(line.run(words), std::nullopt) << flag;
        EXPECT_EQ(line.program().words(), (Words{"run_clm", "--do_train"})) << flag;
        ASSERT_EQ(flags.explained.size(), 1u) << flag;
        EXPECT_NE(flags.explained[0].find(" has no effect. "), std::string::npos) << flags.explained[0];
    }
}

TEST(LaunchOptions, RefusalsNameTheFlag) {
    LaunchFlags flags = flags_of_nodes("2");
    flags.node_rank = "2";
    EXPECT_EQ(cause_of_refusal(flags), "--node_rank is \"2\".");
    flags = flags_of_nodes("2");
    flags.master_port = "70000";
    EXPECT_EQ(cause_of_refusal(flags), "--master_port is \"70000\".");
    flags = flags_of_nodes("2");
    flags.master_addr.clear();
    EXPECT_EQ(cause_of_refusal(flags), "The job has 2 nodes, but no address of node 0.");
    EXPECT_EQ(cause_of_refusal(flags, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "x"}}),
              "The variable MASTER_PORT is \"x\".");
    flags = flags_of_nodes("2");
    flags.hostfile = "hosts";
    EXPECT_EQ(cause_of_refusal(flags), "--hostfile is given, and --nnodes is 2.");
    flags = flags_of_run_clm();
    flags.node_rank = "1";
    EXPECT_EQ(cause_of_refusal(flags), "--node_rank is 1, but there is one node.");
    flags = flags_of_run_clm();
    flags.log = flags.log_dir = "x";
    EXPECT_EQ(cause_of_refusal(flags), "--log and --log_dir are given.");
    flags.log.clear();
    flags.words = {};
    EXPECT_EQ(cause_of_refusal(flags), "Nothing to start is given.");
    flags.words = {"--nproc", "2"};
    EXPECT_EQ(cause_of_refusal(flags), "The flag --nproc is unknown.");
}

MpirunPlan plan_of_tell() {
    return {.drover = "/opt/drover", .program = {"tell", "me"}};
}

TEST(MpirunCommandLine, OnOneMachine) {
    MpirunPlan plan = plan_of_tell();
    plan.processes = 2;
    plan.variables = {"HF_HOME", "OMP_PLACES"};
    EXPECT_EQ(mpirun_words(plan), (Words{"mpirun", "-np", "2", "--mca", "ras", "^slurm,gridengine,tm,lsf",
                                         "--map-by", "slot", "--bind-to", "none", "-x", "HF_HOME", "-x",
                                         "OMP_PLACES", "/opt/drover", "launch-process", "tell", "me"}));
    plan.variables.clear();
    plan.as_root = plan.oversubscribe = plan.files_only = true;
    plan.log_folder = "logs";
    plan.more = {"--tag-output", "--bind-to", "numa"};
    EXPECT_EQ(mpirun_words(plan), (Words{"mpirun",
                                         "--allow-run-as-root",
                                         "-np",
                                         "2",
                                         "--mca",
                                         "ras",
                                         "^slurm,gridengine,tm,lsf",
                                         "--oversubscribe",
                                         "--map-by",
                                         "slot",
                                         "--tag-output",
                                         "--bind-to",
                                         "numa",
                                         "/opt/drover",
                                         "launch-process",
                                         "--log_dir",
                                         "logs",
                                         "--files_only",
                                         "tell",
                                         "me"}));
}

TEST(MpirunCommandLine, OnOneMachineProcessesUseSharedMemoryAlone) {
    MpirunPlan plan = plan_of_tell();
    plan.one_machine = true;
    plan.preloaded = "loopback.so";
    EXPECT_EQ(mpirun_words(plan),
              (Words{"mpirun", "-np", "1", "--mca", "ras", "^slurm,gridengine,tm,lsf", "--mca", "btl",
                     "^tcp,ofi,openib", "--map-by", "slot", "--bind-to", "none", "/opt/drover",
                     "launch-process", "--preloaded", "loopback.so", "tell", "me"}));
    const auto is_kept_inside = [&](const Words& more) {
        plan.more = more;
        const Words words = mpirun_words(plan);
        return std::find(words.begin(), words.end(), "^tcp,ofi,openib") != words.end();
    };
    EXPECT_FALSE(is_kept_inside({"--mca", "btl", "self,tcp"}));
    EXPECT_FALSE(is_kept_inside({"--tag-output", "-gmca", "btl", "self,tcp"}));
    EXPECT_TRUE(is_kept_inside({"--mca", "btl_vader_single_copy_mechanism", "none"}));
    EXPECT_TRUE(is_kept_inside({"--mca", "x", "btl"}));
    plan.connections_chosen = true;
    EXPECT_FALSE(is_kept_inside({}));
}

TEST(MpirunCommandLine, OnTheMachinesOfAHostfile) {
    MpirunPlan plan = plan_of_tell();
    plan.hostfile = "hosts";
    plan.hostfile_machines = 3;
    plan.processes = 2;
    EXPECT_EQ(mpirun_words(plan),
              (Words{"mpirun", "--hostfile", "hosts", "-np", "6", "--map-by", "ppr:2:node", "--bind-to",
                     "none", "/opt/drover", "launch-process", "tell", "me"}));
    plan.processes = 0;
    EXPECT_EQ(mpirun_words(plan), (Words{"mpirun", "--hostfile", "hosts", "--map-by", "slot", "--bind-to",
                                         "none", "/opt/drover", "launch-process", "tell", "me"}));
}

TEST(MpirunCommandLine, OnNodesWithLaunchers) {
    MpirunPlan plan = plan_of_tell();
    plan.nodes = {{"10.0.0.1", 2}, {"10.0.0.2", 3}};
    plan.network = "10.0.0.0/24";
    EXPECT_EQ(mpirun_words(plan), (Words{"mpirun",
                                         "-np",
                                         "5",
                                         "--host",
                                         "10.0.0.1:2,10.0.0.2:3",
                                         "--leave-session-attached",
                                         "--mca",
                                         "plm",
                                         "rsh",
                                         "--mca",
                                         "plm_rsh_agent",
                                         "/opt/drover launch-agent",
                                         "--mca",
                                         "plm_rsh_no_tree_spawn",
                                         "1",
                                         "--mca",
                                         "ras",
                                         "^slurm,gridengine,tm,lsf",
                                         "--mca",
                                         "oob_tcp_if_include",
                                         "10.0.0.0/24",
                                         "--mca",
                                         "btl_tcp_if_include",
                                         "10.0.0.0/24",
                                         "--map-by",
                                         "slot",
                                         "--bind-to",
                                         "none",
                                         "/opt/drover",
                                         "launch-process",
                                         "tell",
                                         "me"}));
    plan.drover = "/opt/my programs/drover";
    test::expect_error([&] { mpirun_words(plan); }, {"/opt/my programs/drover"});
}

TEST(MpirunCommandLine, OpenMpi5HasOtherNames) {
    MpirunPlan plan = plan_of_tell();
    plan.major_version = 5;
    plan.nodes = {{"10.0.0.1", 1}, {"10.0.0.2", 1}};
    plan.network = "10.0.0.0/24";
    const Words words = mpirun_words(plan);
    const auto setting = [&](const std::string& name) {
        const auto found = std::find(words.begin(), words.end(), name);
        return found == words.end() ? "" : *(found - 1) + " = " + *(found + 1);
    };
    EXPECT_EQ(setting("plm"), "--prtemca = ssh");
    EXPECT_EQ(setting("plm_ssh_agent"), "--prtemca = /opt/drover launch-agent");
    EXPECT_EQ(setting("plm_ssh_no_tree_spawn"), "--prtemca = 1");
    EXPECT_EQ(setting("prte_if_include"), "--prtemca = 10.0.0.0/24");
    EXPECT_EQ(setting("btl_tcp_if_include"), "--mca = 10.0.0.0/24");
}

TEST(MpirunCommandLine, HandsSettingsOn) {
    EXPECT_EQ(variables_to_pass({{"DROVER_CACHE", "a"},
                                 {"HOME", "b"},
                                 {"CUDA_VISIBLE_DEVICES", "0"},
                                 {"OMP_NUM_THREADS", "4"},
                                 {"NCCL_DEBUG", "INFO"},
                                 {"HF_HOME", "c"},
                                 {"PJRT_DEVICE", "CUDA"},
                                 {"PATH", "d"},
                                 {"RANK", "1"},
                                 {"XLA_FLAGS", "e"},
                                 {"XLA_USE_SPMD", "1"}}),
              (Words{"CUDA_VISIBLE_DEVICES", "DROVER_CACHE", "HF_HOME", "NCCL_DEBUG", "OMP_NUM_THREADS",
                     "PJRT_DEVICE", "XLA_USE_SPMD"}));
}

TEST(MpirunCommandLine, HostfilesAreReadAsMpirunReadsThem) {
    const std::filesystem::path file = testing::TempDir() + "/launch_hosts";
    std::ofstream(file) << "# machines\n\na slots=2 max_slots=4\nb   # no slots\n c slots=1\nc slots=2\n";
    EXPECT_EQ(read_hostfile(file), (std::vector<LaunchHost>{{"a", 2}, {"b", 0}, {"c", 3}}));
    for (const char* wrong : {"two", "0", "-1", "2x", ""}) {
        std::ofstream(file) << "a slots=" << wrong << "\n";
        test::expect_error([&] { read_hostfile(file); }, {file.native(), std::string("slots=") + wrong});
    }
    std::ofstream(file) << "# nobody\n";
    test::expect_error([&] { read_hostfile(file); }, {file.native(), "names no host"});
    std::filesystem::remove(file);
}

}  // namespace
}  // namespace drover
