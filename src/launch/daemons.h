#pragma once

#include <map>
#include <memory>

#include "launch/rendezvous.h"

namespace drover {

/// Node 0's side of starting mpirun's daemons: accepts requests from the program that mpirun runs instead of
/// ssh (not from other users), forwards them to the nodes, and returns their output.
class LaunchDaemons {
  public:
    LaunchDaemons(LaunchLoop& loop, Rendezvous& rendezvous);
    ~LaunchDaemons();
    LaunchDaemons(const LaunchDaemons&) = delete;
    LaunchDaemons& operator=(const LaunchDaemons&) = delete;

    /// The name of the socket it listens on.
    const std::string& socket_name() const { return socket_name_; }
    /// Handles a node's message about a command.
    void take(int node, const LaunchMessage& message);

  private:
    struct Request {
        std::unique_ptr<LaunchConnection> starter;
        int node = 0;  ///< 0: unknown so far
    };

    void take_connection();
    void hear(int number);
    void end(int number, int status, const std::string& note);

    LaunchLoop& loop_;
    Rendezvous& rendezvous_;
    const std::string socket_name_;
    FileDescriptor listener_;
    std::map<int, Request> requests_;  // by command number
    int last_number_ = 0;
};

}  // namespace drover
