// Who may join a job, who may start something on its nodes, and who can reach its processes.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/error.h"
#include "launch/peers.h"
#include "launch/runs.h"
#include "launch/secret.h"
#include "support/errors.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::BackgroundRun;
using test::contains;
using test::free_port;
using test::LaunchPeer;
using test::Outcome;
using test::run;

const std::string job_secret = "a secret of the tests, which is long";
const LaunchKey right_key(job_secret, "job"), wrong_key("another secret of the tests", "job");

class LaunchSecurity : public testing::Test {
  protected:
    LaunchSecurity() : folder_(testing::TempDir() + "/launch_security_" + std::to_string(getpid())) {
        fs::create_directories(folder_);
        // The program that a launcher would start as Open MPI's daemon.
        std::ofstream(folder_ / "orted") << "#!/bin/sh\necho \"$@\" >> " << started_.native() << "\n";
        fs::permissions(folder_ / "orted", fs::perms::owner_all);
    }
    ~LaunchSecurity() override { fs::remove_all(folder_); }

    std::unique_ptr<BackgroundRun> start(const std::string& flags, const std::string& name) const {
        std::ofstream{folder_ / name};  // so that it can be read from now on
        return std::make_unique<BackgroundRun>(
            fmt::format("launch --nnodes 2 --rdzv_endpoint 127.0.0.1:{} --rdzv_id job {}", port_, flags),
            folder_ / name,
            fmt::format("env DROVER_LAUNCH_SECRET='{}' PATH={}:\"$PATH\"", job_secret, folder_.native()));
    }
    /// A node that looks for node 0, which the test plays.
    std::unique_ptr<BackgroundRun> start_node() const { return start("--node_rank 1 --exec true", "node"); }
    /// Node 0 of a job of two nodes.
    std::unique_ptr<BackgroundRun> start_node_0(const std::string& flags = "--exec true") const {
        return start("--node_rank 0 " + flags, "node_0");
    }
    LaunchPeer connect() const { return LaunchPeer(test::connect_when_ready(port_)); }
    std::string what_was_started() const { return fs::exists(started_) ? read_text_file(started_) : ""; }

    const int port_ = free_port();
    const fs::path folder_, started_ = folder_ / "started";
};

const LaunchMessage run_daemon{LaunchSubject::run, {1}, {"orted", "-mca", "ess", "env"}};
const LaunchMessage end_job{LaunchSubject::finish, {9}, {""}};

TEST_F(LaunchSecurity, AFalseNode0IsNotObeyed) {
    const std::string challenge =
        encode_launch_message({LaunchSubject::challenge, {launch_protocol}, {new_launch_challenge()}});
    const std::string welcome = encode_launch_message({LaunchSubject::welcome, {1}, {}});
    // A node that obeyed would end with this status.
    const std::string command = encode_launch_message(run_daemon) + encode_launch_message(end_job);
    for (const std::string& bytes :
         {command, welcome + command, challenge + command, challenge + welcome + command}) {
        const FileDescriptor listener = listen_on("127.0.0.1", port_);
        const auto node = start_node();
        LaunchPeer false_node_0(test::accept_when_ready(listener));
        false_node_0.send_bytes(bytes);
        EXPECT_EQ(node->exit_code(), 1) << node->output();
        EXPECT_EQ(what_was_started(), "");
    }
}

TEST_F(LaunchSecurity, Node0MustHaveTheSecret) {
    const FileDescriptor listener = listen_on("127.0.0.1", port_);
    const auto node = start_node();
    LaunchPeer false_node_0(test::accept_when_ready(listener));
    const auto hello = false_node_0.welcome(wrong_key, 1);
    ASSERT_TRUE(hello);
    false_node_0.send(run_daemon);
    false_node_0.send(end_job);
    EXPECT_EQ(node->exit_code(), 1) << node->output();
    EXPECT_TRUE(contains(node->output(), "was not sent with the job's secret")) << node->output();
    EXPECT_EQ(what_was_started(), "");
    for (const std::string& text : hello->texts) EXPECT_FALSE(contains(text, job_secret));
}

TEST_F(LaunchSecurity, TheDaemonGetsAFixedSetOfArguments) {
    const FileDescriptor listener = listen_on("127.0.0.1", port_);
    const auto node = start_node();
    LaunchPeer node_0(test::accept_when_ready(listener));
    ASSERT_TRUE(node_0.welcome(right_key, 1));
    const auto answer = [&](const std::vector<std::string>& words) {
        node_0.send({LaunchSubject::run, {5}, words});
        const auto ended = node_0.next();
        return ended && ended->subject == LaunchSubject::ended ? ended->texts[0] : "nothing";
    };
    EXPECT_EQ(answer({"touch", "launch_was_here"}),
              "Node 1: \"touch\" is not Open MPI's daemon. Nothing else is started.");
    EXPECT_FALSE(fs::exists("launch_was_here"));
    EXPECT_TRUE(contains(answer({"orted", "-mca", "mca_base_component_path", "/tmp/mine"}),
                         "is not started with the parameter mca_base_component_path = \"/tmp/mine\""));
    EXPECT_TRUE(contains(answer({"orted", "--prefix", "/tmp/mine"}), "is not started with \"--prefix\""));
    EXPECT_EQ(what_was_started(), "");
    EXPECT_EQ(answer(run_daemon.texts), "");
    EXPECT_EQ(what_was_started(), "-mca ess env\n");
    node_0.send(end_job);
    EXPECT_EQ(node->exit_code(), 9) << node->output();
}

TEST_F(LaunchSecurity, ANodeNeedsTheSecretAndTheSameJob) {
    const auto node_0 = start_node_0("--rdzv_conf join_timeout=60 --exec true");
    const auto refusal = [&](const LaunchKey& key, int protocol, int rank, int nodes) {
        const auto answer = connect().greet(key, protocol, rank, nodes);
        return answer && answer->subject == LaunchSubject::refused ? answer->texts[0] : "none";
    };
    const std::string other_job = "it belongs to another job (--rdzv_id) or has another secret";
    EXPECT_EQ(refusal(wrong_key, launch_protocol, 1, 2), other_job);
    EXPECT_EQ(refusal(LaunchKey(job_secret, "another"), launch_protocol, 1, 2), other_job);
    EXPECT_EQ(refusal(right_key, launch_protocol + 1, 1, 2),
              "its drover is a different version from node 0's");
    EXPECT_EQ(refusal(right_key, launch_protocol, 1, 3), "it expects 3 nodes, node 0 expects 2");
    EXPECT_EQ(refusal(right_key, launch_protocol, 0, 2), "there is already a node 0 (--node_rank)");
    LaunchPeer node = connect();
    const auto answer = node.greet(right_key, launch_protocol, 1, 2, "name\x1b[2J\r\xc2\x9b");
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->subject, LaunchSubject::welcome);
    EXPECT_TRUE(node_0->wait_until([&] { return contains(node_0->output(), "Node 1 has joined"); }));
    EXPECT_TRUE(
        contains(node_0->output(), "has joined: name\\x1b[2J\\x0d\\xc2\\x9b at 127.0.0.1, 1 process.\n"))
        << node_0->output();
}

TEST_F(LaunchSecurity, GuessesAreLimitedAndKeepNoNodeOut) {
    const auto node_0 = start_node_0();
    for (int guess = 0; guess < 8; ++guess) {
        const auto answer = connect().greet(wrong_key, launch_protocol, 1, 2);
        ASSERT_TRUE(answer && answer->subject == LaunchSubject::refused) << guess;
    }
    // From now on, most connections from this address get no challenge.
    std::optional<LaunchMessage> answer;
    for (int tries = 0; tries < 100 && !(answer && answer->subject == LaunchSubject::refused); ++tries)
        answer = connect().next();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->subject, LaunchSubject::refused);
    EXPECT_TRUE(contains(answer->texts[0], "too many wrong answers")) << answer->texts[0];
    EXPECT_TRUE(contains(node_0->output(), "127.0.0.1 was refused 8 times and may answer once a second"))
        << node_0->output();
    // But a node of the job is accepted.
    const auto node = start_node();
    EXPECT_EQ(node->exit_code(), 0) << node->output();
    EXPECT_EQ(node_0->exit_code(), 0) << node_0->output();
}

TEST_F(LaunchSecurity, ANodeThatIsTurnedAwayLearnsWhyAndComesAgain) {
    const FileDescriptor listener = listen_on("127.0.0.1", port_);
    const auto node = start_node();
    // The first connection is refused, the second closed without a message.
    LaunchPeer(test::accept_when_ready(listener))
        .send({LaunchSubject::refused, {}, {"too many wrong answers"}});
    test::accept_when_ready(listener).close();
    LaunchPeer node_0(test::accept_when_ready(listener));
    ASSERT_TRUE(node_0.welcome(right_key, 1));
    node_0.send(end_job);
    EXPECT_EQ(node->exit_code(), 9) << node->output();
    EXPECT_TRUE(contains(node->output(), "rejected this node: too many wrong answers;")) << node->output();
    EXPECT_TRUE(contains(node->output(), "gave no answer; this node tries again.")) << node->output();
}

TEST_F(LaunchSecurity, WhatIsShownCannotSteerTheTerminal) {
    const FileDescriptor listener = listen_on("127.0.0.1", port_);
    const auto node = start_node();
    LaunchPeer node_0(test::accept_when_ready(listener));
    node_0.send({LaunchSubject::challenge, {launch_protocol}, {new_launch_challenge()}});
    ASSERT_TRUE(node_0.next());
    node_0.send({LaunchSubject::refused, {}, {"\x1b[2Jno\ndrover: all is well"}});
    EXPECT_EQ(node->exit_code(), 1);
    EXPECT_TRUE(contains(node->output(), "refused this node: \\x1b[2Jno\\x0adrover: all is well."))
        << node->output();
}

TEST_F(LaunchSecurity, StrangersAreSentAwayAndKeepNobodyOut) {
    const auto node_0 = start_node_0("--exec true");
    for (const std::string& bytes :
         {std::string("GET / HTTP/1.1\r\nHost: drover\r\n\r\n"), std::string(1000, '\xff'),
          encode_launch_message({LaunchSubject::run, {1}, {"orted"}}), std::string()}) {
        LaunchPeer stranger = connect();
        stranger.send_bytes(bytes);
        EXPECT_TRUE(stranger.is_closed()) << bytes;  // a silent peer waits for the deadline
    }
    std::vector<FileDescriptor> idle;
    for (int i = 0; i < 300; ++i) {
        idle.push_back(connect_to("127.0.0.1", port_));
        ASSERT_TRUE(idle.back().is_open()) << i;
    }
    const auto node = start_node();
    EXPECT_EQ(node->exit_code(), 0) << node->output();
    EXPECT_EQ(node_0->exit_code(), 0) << node_0->output();
}

TEST_F(LaunchSecurity, TheOwnerOfTheAddressFollowsNobody) {
    const FileDescriptor listener = listen_on("127.0.0.1", port_);
    const auto launcher = start("--exec true", "owner");
    EXPECT_EQ(launcher->exit_code(), 1);
    EXPECT_TRUE(contains(launcher->output(), fmt::format("Another program listens on 127.0.0.1:{}.", port_)))
        << launcher->output();
    EXPECT_FALSE(accept_connection(listener).is_open());
}

TEST_F(LaunchSecurity, Node0MakesTheSecretFile) {
    const fs::path file = folder_ / "secret";
    const std::string flags = fmt::format("--secret_file {} --exec true", file.native());
    const auto node = start("--node_rank 1 " + flags, "node");
    const auto node_0 = start_node_0(flags);
    EXPECT_EQ(node_0->exit_code(), 0) << node_0->output();
    EXPECT_EQ(node->exit_code(), 0) << node->output();
    const std::string first = read_text_file(file);
    EXPECT_EQ(first.size(), 33u);  // 128 bits in hexadecimal digits, and a line end
    EXPECT_EQ(first.find_first_not_of("0123456789abcdef"), 32u);
    EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);

    chmod(file.c_str(), 0644);
    const auto readable = start_node_0(flags);
    EXPECT_EQ(readable->exit_code(), 1);
    EXPECT_TRUE(contains(readable->output(), "may be read or changed by others")) << readable->output();
    std::ofstream(file) << "short\n";
    chmod(file.c_str(), 0600);
    const auto guessable = start_node_0(flags);
    EXPECT_EQ(guessable->exit_code(), 1);
    EXPECT_TRUE(contains(guessable->output(), "has 5 characters")) << guessable->output();
}

TEST_F(LaunchSecurity, ANodeThatWaitsForTheSecretFileSaysSoOnce) {
    testing::internal::CaptureStderr();
    const fs::path absent = folder_ / "absent";
    EXPECT_EQ(
        test::error_of([&] { read_secret_file(absent, false, std::chrono::seconds(1)); }),
        "The secret file " + absent.native() +
            " does not exist. Node 0 creates it; where the folder is not shared, copy it to every node.");
    EXPECT_EQ(test::count_of(testing::internal::GetCapturedStderr(), "Waiting for the secret file"), 1u);
}

/// As a script passes them if its variable is not set.
TEST_F(LaunchSecurity, AnEmptySecretIsRefused) {
    const std::string job =
        fmt::format("launch --nnodes 2 --node_rank 0 --master_addr 127.0.0.1 --master_port {} ", port_);
    const Outcome file = run(job + "--secret_file \"\" --exec true");
    EXPECT_EQ(file.exit_code, 2);
    EXPECT_TRUE(contains(file.output, "--secret_file is \"\".")) << file.output;
    const Outcome variable =
        test::run_shell(fmt::format("DROVER_LAUNCH_SECRET= {} {} --exec true 2>&1", DROVER_BINARY, job));
    EXPECT_EQ(variable.exit_code, 1);
    EXPECT_TRUE(contains(variable.output, "The secret of DROVER_LAUNCH_SECRET has 0 characters."))
        << variable.output;
}

std::string secret_of(const fs::path& file) {
    return read_secret_file(file, false, std::chrono::seconds(0));
}

TEST_F(LaunchSecurity, TheSecretFileIsOnesOwnOrRootsAndReadByNobodyElse) {
    const fs::path file = folder_ / "secret";
    std::ofstream(file) << job_secret << "\n";
    const auto expect_refused = [&](std::string_view why) {
        test::expect_error([&] { secret_of(file); }, {file.native(), why});
    };
    for (const mode_t mode : {0600, 0400}) {
        chmod(file.c_str(), mode);
        EXPECT_EQ(secret_of(file), job_secret) << mode;
    }
    for (const mode_t mode : {0640, 0440, 0604, 0620}) {
        SCOPED_TRACE(mode);
        chmod(file.c_str(), mode);
        expect_refused("may be read or changed by others");
    }
    test::expect_error([&] { secret_of(folder_); }, {folder_.native(), "is not a regular file"});
    if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
    constexpr uid_t somebody = 65534;
    chmod(file.c_str(), 0600);
    ASSERT_EQ(chown(file.c_str(), somebody, somebody), 0);
    expect_refused("belongs to another user");
    // As Kubernetes passes a secret to a container that does not run as root.
    ASSERT_EQ(chown(file.c_str(), 0, somebody), 0);
    fs::permissions(folder_, fs::perms::all);
    const gid_t own_group = getegid();
    ASSERT_EQ(setegid(somebody), 0);
    ASSERT_EQ(seteuid(somebody), 0);
    const auto change_mode = [&](mode_t mode) {
        EXPECT_EQ(seteuid(0), 0);
        chmod(file.c_str(), mode);
        EXPECT_EQ(seteuid(somebody), 0);
    };
    for (const mode_t mode : {0440, 0640}) {
        change_mode(mode);
        EXPECT_EQ(secret_of(file), job_secret) << mode;
    }
    for (const mode_t mode : {0444, 0660}) {
        SCOPED_TRACE(mode);
        change_mode(mode);
        expect_refused("may be read or changed by others");
    }
    ASSERT_EQ(seteuid(0), 0);
    ASSERT_EQ(setegid(own_group), 0);
}

TEST_F(LaunchSecurity, ASecretThatCannotBeWrittenLeavesNoFile) {
    const fs::path place = folder_ / "place";
    fs::create_directories(place);
    const Outcome outcome = test::run_shell(fmt::format(
        "sh -c 'trap \"\" XFSZ; ulimit -f 0; {} launch --nnodes 2 --node_rank 0 --rdzv_endpoint 127.0.0.1:{} "
        "--secret_file {}/secret --exec true' 2>&1 | cat",
        DROVER_BINARY, port_, place.native()));
    EXPECT_TRUE(contains(outcome.output, "/secret cannot be made: File too large.")) << outcome.output;
    EXPECT_TRUE(fs::is_empty(place));
}

/// The inodes of the sockets that a process has open.
std::set<std::string> sockets_of(const std::string& process) {
    std::set<std::string> numbers;
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator("/proc/" + process + "/fd", gone)) {
        const std::string target = fs::read_symlink(entry.path(), gone).string();
        if (target.starts_with("socket:[")) numbers.insert(target.substr(8, target.size() - 9));
    }
    return numbers;
}

/// The children of a process, their children, and so on.
std::vector<std::string> family_of(const std::string& process) {
    std::vector<std::string> family{process};
    std::error_code gone;
    for (const auto& task : fs::directory_iterator("/proc/" + process + "/task", gone)) {
        std::ifstream children(task.path() / "children");
        for (std::string child; children >> child;)
            for (const std::string& member : family_of(child)) family.push_back(member);
    }
    return family;
}

/// The addresses on which a process accepts connections, as the kernel writes them.
std::vector<std::string> listening_addresses(const std::string& process) {
    const std::set<std::string> own = sockets_of(process);
    std::vector<std::string> addresses;
    for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
        std::ifstream lines(table);
        std::string line;
        std::getline(lines, line);
        while (std::getline(lines, line)) {
            std::istringstream text(line);
            std::vector<std::string> words;
            for (std::string word; text >> word;) words.push_back(word);
            constexpr const char* listening = "0A";
            if (words.size() > 9 && words[3] == listening && own.contains(words[9]))
                addresses.push_back(words[1].substr(0, words[1].find(':')));
        }
    }
    return addresses;
}

TEST_F(LaunchSecurity, OnOneMachineNothingListensForOthers) {
    if (!fs::exists("/proc/self/task/" + std::to_string(getpid()) + "/children"))
        GTEST_SKIP() << "this kernel does not show the children of a process";
    std::ofstream{folder_ / "output"};
    BackgroundRun job("launch --nproc_per_node 2 --exec " + test::launch_program + " hold",
                      folder_ / "output");
    ASSERT_TRUE(job.wait_until([&] {
        return contains(job.output(), "rank 0 is") && contains(job.output(), "rank 1 is");
    })) << job.output();
    std::size_t found = 0;
    for (const std::string& process : family_of(std::to_string(job.process())))
        for (const std::string& address : listening_addresses(process)) {
            ++found;
            EXPECT_TRUE(address == "0100007F" || address == "00000000000000000000000001000000")
                << address << " of process " << process;
        }
    EXPECT_GT(found, 0u);  // mpirun is among them
    job.send(SIGTERM);
    EXPECT_EQ(job.exit_code(), 0) << job.output();
}

}  // namespace
}  // namespace drover
