#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/command_line.h"
#include "launch/connection.h"

namespace drover {

/// Node 0's side of the rendezvous: accepts the launchers of the other nodes and keeps the connections.
class Rendezvous {
  public:
    struct Settings {
        std::string address;  ///< of node 0; it listens there
        int nodes;
        int processes;  ///< on node 0
        LaunchKey key;  ///< nodes without it are not accepted
    };
    /// Called with an accepted node and its message.
    using TakeMessage = std::function<void(int node, const LaunchMessage&)>;

    Rendezvous(LaunchLoop& loop, FileDescriptor listener, Settings settings);
    ~Rendezvous();
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;

    void on_message(TakeMessage take) { take_ = std::move(take); }
    /// Must be called regularly: drops connections that do not authenticate themselves in time.
    void tidy();

    bool is_complete() const { return missing().empty(); }
    bool has_nodes() const { return !nodes_.empty(); }
    /// Nodes that have not joined, or have disconnected.
    std::vector<int> missing() const;
    /// The machines in order of node rank. Nodes with the same address are one machine.
    std::vector<LaunchHost> machines() const;
    /// The node at an address, the first if there are several; nothing if there is none but node 0.
    std::optional<int> node_at(const std::string& address) const;

    /// Does nothing if the node is gone.
    void send(int node, const LaunchMessage& message);
    void send_to_all(const LaunchMessage& message);

  private:
    struct Node {
        std::unique_ptr<LaunchConnection> connection;
        std::string address;
        int processes;
    };
    using Clock = std::chrono::steady_clock;
    struct Stranger {
        std::unique_ptr<LaunchConnection> connection;
        std::string address;
        std::string challenge;
        Clock::time_point since;
    };
    /// Connections from an address that failed to prove the key.
    struct Failures {
        int count = 0;
        Clock::time_point forgotten;    ///< when they stop counting
        Clock::time_point next_answer;  ///< no answer before this time, if there were many
    };

    void take_connection();
    /// Makes room for another stranger: the address with the most connections loses its oldest.
    void drop_one_stranger();
    /// Whether a connection from there gets a challenge. After many failures, only an occasional one does.
    bool may_answer(const std::string& address);
    void refuse(Stranger& stranger, const std::string& reason);
    void hear_stranger(int descriptor);
    void hear_node(int rank);
    void answer(Stranger stranger, const LaunchMessage& hello);
    /// Why this cannot be a node of the job; empty if it is one.
    std::string doubt(const Stranger& stranger, const LaunchMessage& hello) const;
    /// Why a node of the job cannot be accepted; empty if it can, with its rank in `rank`.
    std::string objection(const LaunchMessage& hello, int& rank) const;
    void drop_stranger(int descriptor);

    LaunchLoop& loop_;
    FileDescriptor listener_;
    Settings settings_;
    TakeMessage take_;
    std::map<int, Stranger> strangers_;         // by descriptor
    std::map<std::string, Failures> failures_;  // by address
    std::map<int, Node> nodes_;                 // by rank; without node 0
};

/// Examples: "node 1", "nodes 1, 2 and 5".
std::string name_nodes(const std::vector<int>& ranks);

}  // namespace drover
