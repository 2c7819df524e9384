#include "launch/node.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>

#include "core/console.h"
#include "core/error.h"
#include "core/this_process.h"
#include "launch/child.h"
#include "launch/connection.h"
#include "launch/daemon_words.h"
#include "launch/network.h"
#include "launch/shown.h"
#include "launch/signals.h"
#include "launch/tee.h"

namespace drover {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// How long node 0 may take to answer on a connection, and how soon a new one is tried.
constexpr std::chrono::seconds patience_with_node_0{30};
constexpr std::chrono::milliseconds between_connections{250};

constexpr const char* other_program =
    "Look whether another program, or an older drover, has the port; choose one with --master_port, and "
    "install "
    "the same drover on every node.";

/// A daemon running here, and where its output goes.
class Daemon {
  public:
    Daemon(LaunchLoop& loop, const std::vector<std::string>& words,
           const std::function<void(std::string_view)>& show)
        : child_({.file = find(words.front()), .words = words, .captured = true}),
          output_(loop, child_.output(), show),
          errors_(loop, child_.errors(), show) {}

    std::optional<int> status() {
        if (ending_since_ && Clock::now() > *ending_since_ + 5s) child_.signal(SIGKILL);
        const std::optional<int> status = child_.status();
        if (status)
            for (PipeReader* pipe : {&output_, &errors_})
                while (pipe->read_on()) continue;
        return status;
    }
    void end() {
        if (ending_since_) return;
        ending_since_ = Clock::now();
        child_.signal(SIGTERM);
    }

  private:
    /// Uses the daemon that this node finds itself.
    static std::filesystem::path find(const std::string& name) {
        const auto file = find_program(name);
        if (!file)
            throw Error(fmt::format("{} of Open MPI is not in PATH.", name),
                        "Install Open MPI there as on node 0 (Debian, Ubuntu: apt-get install openmpi-bin).");
        return *file;
    }

    LaunchChild child_;
    PipeReader output_, errors_;
    std::optional<Clock::time_point> ending_since_;
};

class Follower {
  public:
    Follower(const LaunchOptions& options, const std::string& address, int processes, const LaunchKey& key)
        : options_(options), address_(address), processes_(processes), key_(key), signals_(loop_) {}

    int run() {
        join();
        while (!status_) {
            loop_.wait(200ms);
            take_signals();
            report_ended();
        }
        end_daemons();
        if (!reason_.empty()) throw Error(reason_, remedy_);
        return *status_;
    }

  private:
    /// Ends with a rank or a status. A connection that ends before node 0 has proved itself is opened again:
    /// node 0 may have been too busy with strangers.
    void join() {
        const Clock::time_point deadline = Clock::now() + options_.join_timeout;
        bool told = false, answered = false;
        while (rank_ == any_node && !status_) {
            if (!node_0_ && Clock::now() > connected_ + between_connections) connect();
            if (!node_0_ && !answered && !std::exchange(told, true))
                print_log(stderr, "drover: Waiting for node 0 at {}:{}.\n", address_, options_.master_port);
            answered = answered || node_0_;
            loop_.wait(between_connections);
            leave_on_signal();
            if (node_0_ && Clock::now() > connected_ + patience_with_node_0) try_again();
            if (rank_ != any_node || status_ || Clock::now() <= deadline) continue;
            if (!turned_away_.empty())
                throw Error(
                    fmt::format("Node 0 at {}:{} rejected this node: {}.", address_, options_.master_port,
                                turned_away_),
                    "Look for launchers with another secret or --rdzv_id that have this node's address.");
            if (answered) throw Error(what_listens("does not answer as node 0 of a job."), other_program);
            throw Error(fmt::format("Node 0 did not appear at {}:{} within {} s.", address_,
                                    options_.master_port, options_.join_timeout.count()),
                        "Start drover launch with --node_rank 0 there, or find out why this machine cannot "
                        "reach it.");
        }
        if (rank_ != any_node)
            print_log(stderr, "drover: This is node {} of {}; node 0 at {}:{} shows the job's output.\n",
                      rank_, options_.nodes, address_, options_.master_port);
    }

    void connect() {
        FileDescriptor socket = connect_to(address_, options_.master_port);
        if (!socket.is_open()) return;
        connected_ = Clock::now();
        greeted_ = sent_away_ = false;
        node_0_ = std::make_unique<LaunchConnection>(std::move(socket), largest_launch_hello);
        loop_.watch(node_0_->descriptor(), [this] { hear(); });
    }

    /// Closes a connection on which this node was not accepted into the job.
    void try_again() {
        if (!greeted_ && !sent_away_ && !std::exchange(silence_told_, true))
            print_log(stderr, "drover: {}\n", what_listens("gave no answer; this node tries again."));
        loop_.forget(node_0_->descriptor());
        node_0_.reset();
    }

    std::string what_listens(std::string_view does) const {
        return fmt::format("What listens at {}:{} {}", address_, options_.master_port, does);
    }

    /// Proves that this node has the key. All further messages must prove the same.
    void answer(const LaunchMessage& challenge) {
        if (challenge.numbers[0] != launch_protocol)
            return leave(fmt::format("The drover of node 0 at {}:{} has a different version.", address_,
                                     options_.master_port),
                         "Install the same one on every node.");
        char name[256] = "";
        gethostname(name, sizeof name - 1);
        LaunchMessage hello{.subject = LaunchSubject::hello,
                            .numbers = {launch_protocol, options_.node_rank, options_.nodes, processes_},
                            .texts = {new_launch_challenge(), name}};
        const LaunchSeals seals = key_.seals(challenge.texts[0], hello.texts[0]);
        hello.texts.push_back(key_.proof(challenge.texts[0], hello));
        node_0_->send(hello);
        node_0_->seal(seals.node, seals.node_0);
        greeted_ = true;
    }

    void leave_on_signal() {
        for (const int number : signals_.take())
            if (asks_for_the_end(number)) std::exit(128 + number);
    }

    void hear() {
        try {
            node_0_->read();
            while (const std::optional<LaunchMessage> message = node_0_->next()) take(*message);
        } catch (const Error& error) {
            return leave(error.cause(), error.remedy());
        }
        if (!node_0_->is_lost() || status_) return;
        if (rank_ == any_node) return try_again();
        leave(fmt::format("The launcher of node 0 at {} is gone, and the job with it.", address_),
              "See there why it ended.");
    }

    void leave(const std::string& reason, const std::string& remedy) {
        status_ = 1;
        reason_ = reason;
        remedy_ = remedy;
    }

    /// Does nothing for a peer that has not proved, by the seal of its welcome, that it is node 0.
    void take(const LaunchMessage& message) {
        if (status_) return;
        if (rank_ == any_node) return meet(message);
        if (message.subject == LaunchSubject::run) return start(message.numbers[0], message.texts);
        if (message.subject == LaunchSubject::stop)
            for (const auto& [number, daemon] : daemons_) daemon->end();
        if (message.subject == LaunchSubject::finish) {
            if (!message.texts[0].empty()) print_log(stderr, "drover: {}\n", shown_text(message.texts[0]));
            status_ = message.numbers[0];
        }
    }

    void meet(const LaunchMessage& message) {
        if (!greeted_ && message.subject == LaunchSubject::challenge) return answer(message);
        if (greeted_ && message.subject == LaunchSubject::welcome && message.numbers[0] > 0) {
            rank_ = message.numbers[0];
            return;
        }
        if (!greeted_ && message.subject == LaunchSubject::refused) {
            sent_away_ = true;
            if (turned_away_.empty())
                print_log(stderr, "drover: Node 0 at {}:{} rejected this node: {}; this node tries again.\n",
                          address_, options_.master_port, shown_text(message.texts[0]));
            turned_away_ = shown_text(message.texts[0]);
            return;
        }
        if (message.subject == LaunchSubject::refused)
            return leave(
                fmt::format("Node 0 at {}:{} refused this node: {}.", address_, options_.master_port,
                            shown_text(message.texts[0])),
                "The nodes of a job need the same --nnodes, --rdzv_id and secret, and numbers of their "
                "own.");
        leave(what_listens("does not answer as node 0 of a job."), other_program);
    }

    void start(int number, const std::vector<std::string>& words) {
        const auto show = [this, number](std::string_view bytes) {
            write_all(STDERR_FILENO, bytes);
            node_0_->send(
                {.subject = LaunchSubject::output, .numbers = {number}, .texts = {std::string(bytes)}});
        };
        try {
            check_daemon_words(words, {.drover = program_path(),
                                       .mpirun_arguments = options_.mpirun_arguments,
                                       .variable = [](const std::string& name) {
                                           const char* value = std::getenv(name.c_str());
                                           return value == nullptr ? std::nullopt
                                                                   : std::optional<std::string>(value);
                                       }});
            daemons_[number] = std::make_unique<Daemon>(loop_, words, show);
        } catch (const Error& error) {
            daemons_.erase(number);
            node_0_->send({.subject = LaunchSubject::ended,
                           .numbers = {number, 1},
                           .texts = {fmt::format("Node {}: {}", rank_, error.what())}});
        }
    }

    void report_ended() {
        for (auto daemon = daemons_.begin(); daemon != daemons_.end();) {
            const std::optional<int> status = daemon->second->status();
            if (!status) {
                ++daemon;
                continue;
            }
            node_0_->send(
                {.subject = LaunchSubject::ended, .numbers = {daemon->first, *status}, .texts = {""}});
            daemon = daemons_.erase(daemon);
        }
    }

    /// The first signal that asks to end goes to node 0, which asks all processes; the next one ends what
    /// runs here.
    void take_signals() {
        for (const int number : signals_.take()) {
            if (asks_for_the_end(number) && std::exchange(end_asked_, true)) {
                leave("A second signal: what ran on this node was stopped immediately.", "");
                continue;
            }
            node_0_->send({.subject = LaunchSubject::stop, .numbers = {number}});
        }
    }

    void end_daemons() {
        if (node_0_) loop_.forget(node_0_->descriptor());
        // The daemons of a job that has ended are about to end by themselves.
        const Clock::time_point patience = Clock::now() + (reason_.empty() ? 2s : 0s);
        while (!daemons_.empty()) {
            if (Clock::now() >= patience)
                for (const auto& [number, daemon] : daemons_) daemon->end();
            loop_.wait(100ms);
            report_ended();
        }
    }

    const LaunchOptions& options_;
    const std::string address_;
    const int processes_;
    const LaunchKey key_;
    LaunchLoop loop_;
    LaunchSignals signals_;
    std::unique_ptr<LaunchConnection> node_0_;
    Clock::time_point connected_;
    bool greeted_ = false, sent_away_ = false;  // on the current connection
    bool silence_told_ = false;
    std::string turned_away_;                         // the reason, the last time
    int rank_ = any_node;                             // known once node 0 has proved itself
    std::map<int, std::unique_ptr<Daemon>> daemons_;  // by command number
    bool end_asked_ = false;
    std::optional<int> status_;
    std::string reason_, remedy_;
};

}  // namespace

int follow_job(const LaunchOptions& options, const std::string& address, int processes,
               const LaunchKey& key) {
    return Follower(options, address, processes, key).run();
}

}  // namespace drover
