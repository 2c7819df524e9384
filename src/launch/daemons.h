#pragma once

#include <map>
#include <memory>

#include "launch/rendezvous.h"

namespace drover {

/// Node 0's side of starting mpirun's daemons: takes requests of the program that mpirun calls instead of
/// ssh and of no other user's, hands them to the nodes, and hands back what comes.
class LaunchDaemons {
  public:
    LaunchDaemons(LaunchLoop& loop, Rendezvous& rendezvous);
    ~LaunchDaemons();
    LaunchDaemons(const LaunchDaemons&) = delete;
    LaunchDaemons& operator=(const LaunchDaemons&) = delete;

    /// The socket on which it listens.
    const std::string& socket_name() const { return socket_name_; }
    /// What a node says about a command.
    void take(int node, const LaunchMessage& message);

  private:
    struct Request {
        std::unique_ptr<LaunchConnection> starter;
        int node = 0;  ///< 0: not known yet
    };

    void take_connection();
    void hear(int number);
    void end(int number, int status, const std::string& note);

    LaunchLoop& loop_;
    Rendezvous& rendezvous_;
    const std::string socket_name_;
    FileDescriptor listener_;
    std::map<int, Request> requests_;  // by number of the command
    int last_number_ = 0;
};

}  // namespace drover
