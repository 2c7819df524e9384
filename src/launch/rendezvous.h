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

/// Node 0's side of the meeting: takes the launchers of the other nodes in, and keeps the connections.
class Rendezvous {
  public:
    struct Settings {
        std::string address;  ///< of node 0, on which it listens
        int nodes;
        int processes;  ///< of node 0
        LaunchKey key;  ///< without which no node is accepted
    };
    /// Called with the node and what it says, once it is taken in.
    using TakeMessage = std::function<void(int node, const LaunchMessage&)>;

    Rendezvous(LaunchLoop& loop, FileDescriptor listener, Settings settings);
    ~Rendezvous();
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;

    void on_message(TakeMessage take) { take_ = std::move(take); }
    /// To be called now and then: lets go of those who connect and do not show in time who they are.
    void tidy();

    bool is_complete() const { return missing().empty(); }
    bool has_nodes() const { return !nodes_.empty(); }
    /// Nodes that have not come, or have gone.
    std::vector<int> missing() const;
    /// The machines in the order of node ranks. Nodes with one address are one machine.
    std::vector<LaunchHost> machines() const;
    /// The node at an address, the first of several; nothing when there is none but node 0.
    std::optional<int> node_at(const std::string& address) const;

    /// Does nothing when the node is gone.
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
    /// Connections from an address that did not have the key.
    struct Failures {
        int count = 0;
        Clock::time_point forgotten;    ///< when they no longer count
        Clock::time_point next_answer;  ///< where there were many: not before
    };

    void take_connection();
    /// Makes room for another stranger: the address that has the most loses its oldest.
    void drop_one_stranger();
    /// Whether a connection from there gets a challenge. Where there were many failures, one in a while does.
    bool may_answer(const std::string& address);
    void refuse(Stranger& stranger, const std::string& reason);
    void hear_stranger(int descriptor);
    void hear_node(int rank);
    void answer(Stranger stranger, const LaunchMessage& hello);
    /// Why this cannot be a node of the job; empty when it is one.
    std::string doubt(const Stranger& stranger, const LaunchMessage& hello) const;
    /// Why a node of the job cannot be taken in; empty when it can, and then its rank is in `rank`.
    std::string objection(const LaunchMessage& hello, int& rank) const;
    void drop_stranger(int descriptor);

    LaunchLoop& loop_;
    FileDescriptor listener_;
    Settings settings_;
    TakeMessage take_;
    std::map<int, Stranger> strangers_;         // by descriptor
    std::map<std::string, Failures> failures_;  // by address
    std::map<int, Node> nodes_;                 // by rank; node 0 is not among them
};

/// "node 1", "nodes 1, 2 and 5".
std::string name_nodes(const std::vector<int>& ranks);

}  // namespace drover
