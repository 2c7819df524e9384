#include "app/launch_node.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <memory>

#include "app/launch_agent.h"
#include "app/launch_child.h"
#include "app/launch_connection.h"
#include "app/launch_network.h"
#include "app/launch_signals.h"
#include "app/launch_tee.h"
#include "core/console.h"
#include "core/error.h"

namespace drover {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A daemon that runs here, and where its output goes.
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
    /// Only Open MPI's daemon, and only the one that this node finds by itself.
    static std::filesystem::path find(const std::string& name) {
        if (!is_daemon_name(name))
            throw Error(fmt::format("\"{}\" is not Open MPI's daemon.", name), "Nothing else is started.");
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
    Follower(const LaunchOptions& options, const std::string& address, int processes)
        : options_(options), address_(address), processes_(processes), signals_(loop_) {}

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
    void join() {
        const Clock::time_point deadline = Clock::now() + options_.join_timeout;
        bool told = false;
        while (!node_0_) {
            if (FileDescriptor socket = connect_to(address_, options_.master_port); socket.is_open()) {
                node_0_ = std::make_unique<LaunchConnection>(std::move(socket), largest_launch_message);
                break;
            }
            if (Clock::now() > deadline)
                throw Error(
                    fmt::format("Node 0 did not come to {}:{} within {} s.", address_, options_.master_port,
                                options_.join_timeout.count()),
                    "Start drover launch with --node_rank 0 there, or see what keeps this machine from "
                    "reaching it.");
            if (!std::exchange(told, true))
                print_log(stderr, "drover: Waiting for node 0 at {}:{}.\n", address_, options_.master_port);
            loop_.wait(250ms);
            leave_on_signal();
        }
        char name[256] = "";
        gethostname(name, sizeof name - 1);
        node_0_->send({.subject = LaunchSubject::hello,
                       .numbers = {launch_protocol, options_.node_rank, options_.nodes, processes_},
                       .texts = {options_.job_id, name}});
        loop_.watch(node_0_->descriptor(), [this] { hear(); });
        while (rank_ == any_node && !status_) {
            loop_.wait(200ms);
            leave_on_signal();
            if (Clock::now() > deadline)
                leave(fmt::format("What listens at {}:{} does not answer as node 0 of a job.", address_,
                                  options_.master_port),
                      "Look whether another program has the port, and choose one with --master_port.");
        }
        if (rank_ != any_node)
            print_log(stderr, "drover: This is node {} of {}; node 0 at {}:{} shows what the job prints.\n",
                      rank_, options_.nodes, address_, options_.master_port);
    }

    void leave_on_signal() {
        for (const int number : signals_.take())
            if (asks_for_the_end(number)) std::exit(128 + number);
    }

    void hear() {
        try {
            for (const LaunchMessage& message : node_0_->receive()) take(message);
        } catch (const Error& error) {
            return leave(error.cause(), error.remedy());
        }
        if (node_0_->is_lost() && !status_)
            leave(fmt::format("The launcher of node 0 at {} is gone, and the job with it.", address_),
                  "See there why it ended.");
    }

    void leave(const std::string& reason, const std::string& remedy) {
        status_ = 1;
        reason_ = reason;
        remedy_ = remedy;
    }

    void take(const LaunchMessage& message) {
        if (message.subject == LaunchSubject::refused)
            leave(fmt::format("Node 0 at {}:{} refused this node: {}.", address_, options_.master_port,
                              message.texts[0]),
                  "The nodes of a job need the same --nnodes and --rdzv_id, and numbers of their own.");
        if (message.subject == LaunchSubject::welcome) rank_ = message.numbers[0];
        if (message.subject == LaunchSubject::run) return start(message.numbers[0], message.texts);
        if (message.subject == LaunchSubject::stop)
            for (const auto& [number, daemon] : daemons_) daemon->end();
        if (message.subject == LaunchSubject::finish) {
            if (!message.texts[0].empty()) print_log(stderr, "drover: {}\n", message.texts[0]);
            status_ = message.numbers[0];
        }
    }

    void start(int number, const std::vector<std::string>& words) {
        const auto show = [this, number](std::string_view bytes) {
            write_all(STDERR_FILENO, bytes);
            node_0_->send(
                {.subject = LaunchSubject::output, .numbers = {number}, .texts = {std::string(bytes)}});
        };
        try {
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

    /// The first signal that asks for the end goes to node 0, which asks all processes; the next one ends
    /// what runs here.
    void take_signals() {
        for (const int number : signals_.take()) {
            if (asks_for_the_end(number) && std::exchange(end_asked_, true)) {
                leave("A second signal: what ran on this node was stopped at once.", "");
                continue;
            }
            node_0_->send({.subject = LaunchSubject::stop, .numbers = {number}});
        }
    }

    void end_daemons() {
        loop_.forget(node_0_->descriptor());
        // Those of a job that has ended are about to end by themselves.
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
    LaunchLoop loop_;
    LaunchSignals signals_;
    std::unique_ptr<LaunchConnection> node_0_;
    int rank_ = any_node;
    std::map<int, std::unique_ptr<Daemon>> daemons_;  // by number of the command
    bool end_asked_ = false;
    std::optional<int> status_;
    std::string reason_, remedy_;
};

}  // namespace

int follow_job(const LaunchOptions& options, const std::string& address, int processes) {
    return Follower(options, address, processes).run();
}

}  // namespace drover
