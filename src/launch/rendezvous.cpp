#include "launch/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/console.h"
#include "core/error.h"
#include "core/number_text.h"
#include "launch/network.h"
#include "launch/shown.h"

namespace drover {
namespace {

/// The time from connecting to proving membership of the job; a launcher needs no more than the network
/// takes.
constexpr std::chrono::seconds patience_with_strangers{5};
constexpr std::size_t most_strangers = 256;
/// After this many wrong answers, an address may answer only occasionally: guessing would take forever, and a
/// node of the job with the same address still gets in.
constexpr int most_failures = 8;
constexpr std::chrono::seconds failures_count_for{60}, between_answers{1};

}  // namespace

Rendezvous::Rendezvous(LaunchLoop& loop, FileDescriptor listener, Settings settings)
    : loop_(loop), listener_(std::move(listener)), settings_(std::move(settings)) {
    loop_.watch(listener_.number(), [this] { take_connection(); });
}

Rendezvous::~Rendezvous() {
    loop_.forget(listener_.number());
    for (const auto& [descriptor, stranger] : strangers_) loop_.forget(descriptor);
    for (const auto& [rank, node] : nodes_) loop_.forget(node.connection->descriptor());
}

void Rendezvous::take_connection() {
    FileDescriptor socket = accept_connection(listener_);
    if (!socket.is_open()) return;
    const std::string address = peer_address(socket);
    if (!may_answer(address)) {
        LaunchConnection(std::move(socket), largest_launch_hello)
            .send(
                {.subject = LaunchSubject::refused,
                 .texts = {"too many wrong answers came from its address, which may answer once a second"}});
        return;
    }
    if (strangers_.size() >= most_strangers) drop_one_stranger();
    const int descriptor = socket.number();
    Stranger stranger{std::make_unique<LaunchConnection>(std::move(socket), largest_launch_hello), address,
                      new_launch_challenge(), Clock::now()};
    stranger.connection->send(
        {.subject = LaunchSubject::challenge, .numbers = {launch_protocol}, .texts = {stranger.challenge}});
    strangers_[descriptor] = std::move(stranger);
    loop_.watch(descriptor, [this, descriptor] { hear_stranger(descriptor); });
}

void Rendezvous::drop_one_stranger() {
    std::map<std::string, int> by_address;
    for (const auto& [descriptor, stranger] : strangers_) ++by_address[stranger.address];
    const auto before = [&](const auto& one, const auto& other) {
        const int mine = by_address[one.second.address], others = by_address[other.second.address];
        return mine != others ? mine > others : one.second.since < other.second.since;
    };
    drop_stranger(std::ranges::min_element(strangers_, before)->first);
}

bool Rendezvous::may_answer(const std::string& address) {
    const auto found = failures_.find(address);
    if (found == failures_.end() || found->second.count < most_failures) return true;
    if (Clock::now() < found->second.next_answer) return false;
    found->second.next_answer = Clock::now() + between_answers;
    return true;
}

void Rendezvous::drop_stranger(int descriptor) {
    loop_.forget(descriptor);
    strangers_.erase(descriptor);
}

void Rendezvous::tidy() {
    const auto too_early = Clock::now() - patience_with_strangers;
    std::vector<int> silent;
    for (const auto& [descriptor, stranger] : strangers_)
        if (stranger.since < too_early) silent.push_back(descriptor);
    for (const int descriptor : silent) drop_stranger(descriptor);
    std::erase_if(failures_, [](const auto& entry) { return entry.second.forgotten < Clock::now(); });
}

void Rendezvous::hear_stranger(int descriptor) {
    LaunchConnection& connection = *strangers_.at(descriptor).connection;
    std::vector<LaunchMessage> messages;
    try {
        messages = connection.receive();
    } catch (const Error&) {
        return drop_stranger(descriptor);  // a browser or a port scan; the job is not affected
    }
    if (messages.empty() && !connection.is_lost()) return;
    if (messages.size() != 1 || messages[0].subject != LaunchSubject::hello) return drop_stranger(descriptor);
    Stranger stranger = std::move(strangers_.at(descriptor));
    drop_stranger(descriptor);
    answer(std::move(stranger), messages[0]);
}

std::string Rendezvous::doubt(const Stranger& stranger, const LaunchMessage& hello) const {
    if (hello.numbers[0] != launch_protocol || hello.texts.size() != 3)
        return "its drover is a different version from node 0's";
    if (!equal_in_constant_time(hello.texts[2], settings_.key.proof(stranger.challenge, hello)))
        return "it belongs to another job (--rdzv_id) or has another secret";
    return {};
}

std::string Rendezvous::objection(const LaunchMessage& hello, int& rank) const {
    if (hello.numbers[2] != settings_.nodes)
        return fmt::format("it expects {} nodes, node 0 expects {}", hello.numbers[2], settings_.nodes);
    if (hello.numbers[3] < 1 || hello.numbers[3] > 65536) return "it has no number of processes";
    const std::vector<int> free = missing();
    if (free.empty()) return "all nodes are there already";
    rank = hello.numbers[1] == any_node ? free.front() : hello.numbers[1];
    if (rank == 0) return "there is already a node 0 (--node_rank)";
    if (rank < 0 || rank >= settings_.nodes)
        return fmt::format("its number {} is not below {}", rank, settings_.nodes);
    if (nodes_.contains(rank)) return fmt::format("there is already a node {} (--node_rank)", rank);
    return {};
}

void Rendezvous::refuse(Stranger& stranger, const std::string& reason) {
    print_log(stderr, "drover: A node at {} was refused: {}.\n", stranger.address, reason);
    stranger.connection->send({.subject = LaunchSubject::refused, .texts = {reason}});
}

void Rendezvous::answer(Stranger stranger, const LaunchMessage& hello) {
    if (const std::string reason = doubt(stranger, hello); !reason.empty()) {
        refuse(stranger, reason);
        Failures& failures = failures_[stranger.address];
        failures.forgotten = Clock::now() + failures_count_for;
        failures.next_answer = Clock::now() + between_answers;
        if (++failures.count == most_failures)
            print_log(stderr, "drover: {} was refused {} times and may answer once a second from now on.\n",
                      stranger.address, most_failures);
        return;
    }
    LaunchConnection& connection = *stranger.connection;
    const LaunchSeals seals = settings_.key.seals(stranger.challenge, hello.texts[0]);
    connection.seal(seals.node_0, seals.node);
    int rank = 0;
    if (const std::string reason = objection(hello, rank); !reason.empty()) return refuse(stranger, reason);
    connection.send({.subject = LaunchSubject::welcome, .numbers = {rank}});
    print_log(stderr, "drover: Node {} has joined: {} at {}, {}.\n", rank, shown_text(hello.texts[1]),
              stranger.address, counted(hello.numbers[3], "process", "processes"));
    loop_.watch(connection.descriptor(), [this, rank] { hear_node(rank); });
    nodes_[rank] = {std::move(stranger.connection), stranger.address, hello.numbers[3]};
}

void Rendezvous::hear_node(int rank) {
    LaunchConnection& connection = *nodes_.at(rank).connection;
    bool gone = false;
    try {
        for (const LaunchMessage& message : connection.receive())
            if (take_) take_(rank, message);
    } catch (const Error& error) {
        print_log(stderr, "drover: Node {}: {}\n", rank, shown_text(error.what()));
        gone = true;
    }
    if (!gone && !connection.is_lost()) return;
    loop_.forget(connection.descriptor());
    nodes_.erase(rank);
}

std::vector<int> Rendezvous::missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < settings_.nodes; ++rank)
        if (!nodes_.contains(rank)) ranks.push_back(rank);
    return ranks;
}

std::vector<LaunchHost> Rendezvous::machines() const {
    std::vector<LaunchHost> machines{{settings_.address, settings_.processes}};
    for (const auto& [rank, node] : nodes_) {
        const auto same = std::find_if(machines.begin(), machines.end(), [&](const LaunchHost& machine) {
            return machine.name == node.address;
        });
        if (same == machines.end())
            machines.push_back({node.address, node.processes});
        else
            same->processes += node.processes;
    }
    return machines;
}

std::optional<int> Rendezvous::node_at(const std::string& address) const {
    for (const auto& [rank, node] : nodes_)
        if (node.address == address) return rank;
    return std::nullopt;
}

void Rendezvous::send(int node, const LaunchMessage& message) {
    if (const auto found = nodes_.find(node); found != nodes_.end()) found->second.connection->send(message);
}

void Rendezvous::send_to_all(const LaunchMessage& message) {
    for (const auto& [rank, node] : nodes_) node.connection->send(message);
}

std::string name_nodes(const std::vector<int>& ranks) {
    std::string text = ranks.size() == 1 ? "node " : "nodes ";
    for (std::size_t i = 0; i < ranks.size(); ++i)
        text += fmt::format("{}{}", i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
    return text;
}

}  // namespace drover
