// `drover launch` with a real mpirun, on this machine.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/text_file.h"
#include "launch/child.h"
#include "launch/machine.h"
#include "launch/runs.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::BackgroundRun;
using test::contains;
using test::Outcome;
using test::run;

class Launch : public testing::Test {
  protected:
    Launch() : folder_(testing::TempDir() + "/launch_" + std::to_string(getpid())) {
        fs::create_directories(folder_);
    }
    ~Launch() override { fs::remove_all(folder_); }

    /// A program that pretends to be Open MPI's mpirun, and then runs this script in a shell.
    void make_mpirun(const std::string& script) const {
        std::ofstream(folder_ / "mpirun")
            << "#!/bin/sh\n"
            << "[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 4.1.4' && exit\n"
            << script << "\n";
        fs::permissions(folder_ / "mpirun", fs::perms::owner_all);
    }
    std::string with_own_mpirun() const { return "PATH=" + folder_.native() + ":\"$PATH\""; }

    const fs::path folder_;
};

/// The output of `drover launch` for a valid command.
Outcome launch(const std::string& arguments) {
    return run("launch " + arguments);
}

/// The same with variables in front.
Outcome launch_with(const std::string& variables, const std::string& arguments) {
    return test::run_shell("env " + variables + " " + DROVER_BINARY + " launch " + arguments + " 2>&1");
}

TEST_F(Launch, ProcessesAreOneWorld) {
    const Outcome outcome = launch("--nproc_per_node 2 --exec " + test::launch_program + " sum");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "rank 0 of 2: sum 3\n")) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "rank 1 of 2: sum 3\n")) << outcome.output;
}

/// As where mpirun starts one script per pod, and the script calls torchrun.
TEST_F(Launch, AnOuterMpirunIsLeft) {
    const Outcome outcome = test::run_shell("mpirun --allow-run-as-root --oversubscribe -n 1 " DROVER_BINARY
                                            " launch --nproc_per_node 2 --exec " +
                                            test::launch_program + " sum 2>&1");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "rank 1 of 2: sum 3\n")) << outcome.output;
}

/// Slurm counts tasks, and one launcher per node is one task.
TEST_F(Launch, TasksOfSlurmAreNotSlots) {
    const std::string job =
        "SLURM_JOB_ID=1 SLURM_JOBID=1 SLURM_NODELIST=$(hostname) SLURM_JOB_NODELIST=$(hostname) "
        "SLURM_NNODES=1 "
        "SLURM_JOB_NUM_NODES=1 SLURM_TASKS_PER_NODE=1 SLURM_JOB_CPUS_PER_NODE=1";
    const Outcome outcome = launch_with(job, "--nproc_per_node 2 --exec " + test::launch_program + " sum");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "rank 1 of 2: sum 3\n")) << outcome.output;
}

TEST_F(Launch, ProcessesHaveTorchrunsVariablesAndTheirShareOfThreads) {
    // The platform's RANK and WORLD_SIZE, which count nodes, do not reach the program.
    const Outcome outcome = launch_with("-u OMP_NUM_THREADS RANK=0 WORLD_SIZE=1",
                                        "--nproc_per_node 2 --exec " + test::launch_program + " tell");
    const std::string threads = std::to_string(std::max(1, usable_cores() / 2));
    for (const char* rank : {"0", "1"})
        EXPECT_TRUE(contains(outcome.output, std::string("RANK=") + rank + " WORLD_SIZE=2 LOCAL_RANK=" +
                                                 rank + " LOCAL_WORLD_SIZE=2 OMP_NUM_THREADS=" + threads))
            << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "drover: 2 processes")) << outcome.output;
    EXPECT_TRUE(contains(launch_with("OMP_NUM_THREADS=5", "--exec " + test::launch_program + " tell").output,
                         "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 OMP_NUM_THREADS=5"));
}

TEST_F(Launch, ProgramsDoNotGetTheLibraryThatMpirunLoads) {
    const std::string tell = "--exec sh -c 'echo \"preload ${LD_PRELOAD-not set}, $NCCL_SOCKET_IFNAME\"'";
    for (const char* more : {"", "--mpirun_args '-x LD_PRELOAD' "}) {
        const Outcome outcome = launch_with("-u LD_PRELOAD -u NCCL_SOCKET_IFNAME", more + tell);
        EXPECT_TRUE(contains(outcome.output, "preload not set, lo\n")) << outcome.output;
        const Outcome given = launch_with("LD_PRELOAD=libm.so.6 NCCL_SOCKET_IFNAME=eth7", more + tell);
        EXPECT_TRUE(contains(given.output, "preload libm.so.6, eth7\n")) << given.output;
    }
}

/// Open MPI takes variables from this list or from -x, not from both.
TEST_F(Launch, VariablesMayBeNamedToOpenMpiInAList) {
    const Outcome outcome = launch_with("OMPI_MCA_mca_base_env_list=NOTE=here HF_HOME=/home/hf",
                                        "--exec sh -c 'echo $NOTE $HF_HOME'");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "here /home/hf\n")) << outcome.output;
}

TEST_F(Launch, TheProgramsStatusIsTheLaunchers) {
    EXPECT_EQ(launch("--nproc_per_node 2 --exec " + test::launch_program + " fail").exit_code, 7);
}

TEST_F(Launch, WhatMpirunStartsEndsAsTheProgramDoes) {
    EXPECT_EQ(run("launch-process sh -c 'exit 3'").exit_code, 3);
    EXPECT_EQ(run("launch-process sh -c 'kill -9 $$'").exit_code, 137);
    // By the signal itself, even if this process had blocked it.
    LaunchChild process(
        {.file = DROVER_BINARY, .words = {"drover", "launch-process", "sh", "-c", "kill -TERM $$"}});
    while (!process.status()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(process.ended_by(), SIGTERM);
    const Outcome absent = run("launch-process ./no_such_program");
    EXPECT_EQ(absent.exit_code, 1);
    EXPECT_TRUE(contains(absent.output, "The program ./no_such_program does not exist")) << absent.output;
}

TEST_F(Launch, MoreProcessesThanCoresShareThemAndItIsSaid) {
    const Outcome outcome =
        launch_with("taskset -c 0", "--nproc_per_node 2 --exec " + test::launch_program + " sum");
    if (contains(outcome.output, "taskset: "))
        GTEST_SKIP() << "taskset cannot be used here: " << outcome.output;
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "drover: 2 processes on 1 core, which they share"))
        << outcome.output;
}

TEST_F(Launch, RunClmIsStartedUnderItsScriptsName) {
    const Outcome outcome = launch(
        "--nproc_per_node 1 --nnodes 1 --node_rank 0 --master_port 9010 --master_addr 127.0.0.1 "
        "--rdzv_backend c10d ../language-modeling/run_clm.py --help");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    for (const char* part :
         {"drover: --rdzv_backend has no effect. ",
          "drover: ../language-modeling/run_clm.py is drover's own run_clm.\n", "--learning_rate"})
        EXPECT_TRUE(contains(outcome.output, part)) << outcome.output;
}

TEST_F(Launch, ARehearsalIsToldToEveryProgramInside) {
    const std::string show = "sh -c 'echo \"extract $NEURON_EXTRACT_GRAPHS_ONLY\"; exit 7'";
    Outcome outcome = run("precompile " + show);
    EXPECT_EQ(outcome.exit_code, 7);
    EXPECT_TRUE(contains(outcome.output, "extract 1\n")) << outcome.output;
    EXPECT_EQ(run("precompile --command collect " + show).exit_code, 7);
    outcome = run("precompile --command clear-locks");
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_TRUE(contains(outcome.output, "nothing to unlock")) << outcome.output;
    // A command of drover needs no program's name before it.
    EXPECT_TRUE(contains(run("precompile tokenize --help").output, "drover tokenize"));
    outcome = run("precompile");
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_TRUE(contains(outcome.output, "No command is given.")) << outcome.output;
    outcome = run("precompile /nowhere/run.sh");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_TRUE(contains(outcome.output, "/nowhere/run.sh cannot be started: No such file"))
        << outcome.output;
}

TEST_F(Launch, LogsGetWhatIsShown) {
    const fs::path log = folder_ / "new" / "job.log";
    const Outcome outcome = launch("--nproc_per_node 2 --log " + log.string() +
                                   " --exec sh -c 'echo out $RANK; echo err $RANK >&2'");
    EXPECT_EQ(outcome.exit_code, 0);
    const std::string logged = read_text_file(log);
    for (const char* line : {"out 0\n", "out 1\n", "err 0\n", "err 1\n"}) {
        EXPECT_TRUE(contains(outcome.output, line)) << outcome.output;
        EXPECT_TRUE(contains(logged, line)) << logged;
    }
    const fs::path logs = folder_ / "logs";
    const Outcome silent = launch("--nproc_per_node 2 --log_dir " + logs.string() +
                                  " --redirects 3 --exec sh -c 'echo out $RANK; echo err $RANK >&2'");
    EXPECT_FALSE(contains(silent.output, "out 0")) << silent.output;
    EXPECT_TRUE(fs::exists(logs / "launch.log"));
    for (const std::string rank : {"0", "1"}) {
        EXPECT_EQ(read_text_file(logs / ("rank." + rank) / "stdout"), "out " + rank + "\n");
        EXPECT_EQ(read_text_file(logs / ("rank." + rank) / "stderr"), "err " + rank + "\n");
    }
}

TEST_F(Launch, AJobThatFailsIsStartedAgain) {
    const std::string job = "--max_restarts 2 --exec sh -c 'echo x >> " + (folder_ / "starts").string() +
                            "; test $(wc -l < " + (folder_ / "starts").string() + ") = 2'";
    const Outcome outcome = launch(job);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "The job ended with status 1; it is started again (1 of 2).\n"));
    EXPECT_EQ(read_text_file(folder_ / "starts"), "x\nx\n");
}

TEST_F(Launch, AJobIsStartedAgainNoMoreOftenThanAsked) {
    const fs::path starts = folder_ / "starts";
    // A job that is restarted forever finally succeeds, so that the test ends.
    make_mpirun(fmt::format("echo x >> {0}; [ $(wc -l < {0}) -lt 9 ] && exit 5; exit 0", starts.native()));
    for (const int restarts : {0, 2}) {
        fs::remove(starts);
        const Outcome outcome =
            launch_with(with_own_mpirun(), fmt::format("--max_restarts {} --exec true", restarts));
        EXPECT_EQ(outcome.exit_code, 5) << outcome.output;
        EXPECT_EQ(read_text_file(starts).size(), 2u * static_cast<std::size_t>(1 + restarts))
            << outcome.output;
    }
}

TEST_F(Launch, AMissingMpirunIsNamedWithWhatToInstall) {
    const Outcome outcome = launch_with("PATH=" + folder_.string(), "--nproc_per_node 2 run_clm");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_TRUE(contains(outcome.output, "drover: mpirun, which starts the processes, is not in PATH."))
        << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "apt-get install openmpi-bin")) << outcome.output;
    std::ofstream(folder_ / "mpirun") << "#!/bin/sh\necho HYDRA build details\n";
    fs::permissions(folder_ / "mpirun", fs::perms::owner_all);
    EXPECT_TRUE(contains(launch_with("PATH=" + folder_.string() + ":$PATH", "run_clm").output,
                         "mpirun is not Open MPI 4 or newer."));
}

TEST_F(Launch, AMachineOfAHostfile) {
    const fs::path hosts = folder_ / "hosts";
    std::ofstream(hosts) << "localhost slots=1\n";
    const Outcome outcome = launch_with("NOTE=x", "--nproc_per_node 2 --hostfile " + hosts.string() +
                                                      " --exec " + test::launch_program + " sum");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "localhost gets 2 processes, more than its 1 slot in "))
        << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "rank 1 of 2: sum 3\n")) << outcome.output;
}

/// The processes of `launch_program wait`, from their ids in the output.
std::vector<pid_t> processes_in(const std::string& output) {
    std::vector<pid_t> processes;
    std::istringstream words(output);
    for (std::string word; words >> word;)
        if (word == "process" && words >> word) processes.push_back(std::stoi(word));
    return processes;
}

bool is_alive(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string text;
    if (!std::getline(file, text)) return false;
    return text[text.rfind(')') + 2] != 'Z';
}

/// Whether a signal is pending for a process.
bool is_pending(int number, pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/status");
    for (std::string name, value; file >> name;)
        if (name == "ShdPnd:" && file >> value) return (std::stoull(value, nullptr, 16) >> (number - 1)) & 1;
    return false;
}

void expect_ended(const std::vector<pid_t>& processes) {
    for (const pid_t process : processes) {
        for (int tries = 0; tries < 10'000 && is_alive(process); ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_FALSE(is_alive(process)) << process;
    }
}

/// A job of two processes that wait for SIGTERM.
class WaitingJob {
  public:
    explicit WaitingJob(const fs::path& output)
        : run_((std::ofstream(output), "launch --nproc_per_node 2 --exec " + test::launch_program + " wait"),
               output) {
        EXPECT_TRUE(run_.wait_until([&] { return processes_in(run_.output()).size() == 2; }))
            << run_.output();
        processes_ = processes_in(run_.output());
    }
    BackgroundRun& run() { return run_; }
    const std::vector<pid_t>& processes() const { return processes_; }

  private:
    BackgroundRun run_;
    std::vector<pid_t> processes_;
};

TEST_F(Launch, ASignalLetsEveryProcessSave) {
    WaitingJob job(folder_ / "output");
    job.run().send(SIGINT);
    EXPECT_EQ(job.run().exit_code(), 0) << job.run().output();
    EXPECT_TRUE(contains(job.run().output(), "rank 0 has saved\n")) << job.run().output();
    EXPECT_TRUE(contains(job.run().output(), "rank 1 has saved\n")) << job.run().output();
    expect_ended(job.processes());
}

/// A signal may arrive before mpirun handles it, or just after it has stopped doing so.
TEST_F(Launch, TheSignalDoesNotEndAnMpirunThatIsNotReady) {
    const fs::path starts = folder_ / "starts", going = folder_ / "going";
    const auto end_of = [&](int status) {
        fs::remove(starts);
        fs::remove(going);
        make_mpirun(fmt::format("echo x >> {}; while [ ! -e {} ]; do sleep 0.05; done; exit {}",
                                starts.native(), going.native(), status));
        BackgroundRun job("launch --max_restarts 2 --exec true", folder_ / "output",
                          "env " + with_own_mpirun());
        EXPECT_TRUE(job.wait_until([&] { return fs::exists(starts); }));
        job.send(SIGTERM);
        // The launcher forwards it as soon as it has received it, and only then checks whether mpirun has
        // ended.
        EXPECT_TRUE(job.wait_until([&] { return !is_pending(SIGTERM, job.process()); }));
        std::ofstream{going};
        const int code = job.exit_code();
        EXPECT_EQ(read_text_file(starts), "x\n") << "a job that was asked to end is not started again";
        return code;
    };
    EXPECT_EQ(end_of(0), 0);
    // A process of the job was not ready, and mpirun reports it.
    EXPECT_EQ(end_of(128 + SIGUSR2), 128 + SIGTERM);
    EXPECT_EQ(end_of(3), 3);
}

TEST_F(Launch, ASecondSignalKills) {
    WaitingJob job(folder_ / "output");
    for (const pid_t process : job.processes()) kill(process, SIGSTOP);  // from now on only SIGKILL works
    job.run().send(SIGTERM);
    job.run().send(SIGINT);
    EXPECT_NE(job.run().exit_code(), 0);
    EXPECT_TRUE(contains(job.run().output(), "drover: A second signal: the processes are killed.\n"))
        << job.run().output();
    expect_ended(job.processes());
}

TEST_F(Launch, NothingOutlivesALauncherThatIsKilled) {
    WaitingJob job(folder_ / "output");
    job.run().send(SIGKILL);
    EXPECT_EQ(job.run().exit_code(), 128 + SIGKILL);
    expect_ended(job.processes());
}

}  // namespace
}  // namespace drover
