#pragma once

#include <filesystem>
#include <map>
#include <memory>

#include "app/launch_rendezvous.h"

namespace drover {

/// Node 0's side of starting mpirun's daemons: takes requests of the program that mpirun calls in place of
/// ssh, over a socket that only this user reaches, hands them to the nodes, and hands back what comes.
class LaunchDaemons {
  public:
    LaunchDaemons(LaunchLoop& loop, Rendezvous& rendezvous);
    ~LaunchDaemons();
    LaunchDaemons(const LaunchDaemons&) = delete;
    LaunchDaemons& operator=(const LaunchDaemons&) = delete;

    /// Where it listens.
    std::filesystem::path socket_file() const { return folder_ / "socket"; }
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
    std::filesystem::path folder_;
    FileDescriptor listener_;
    std::map<int, Request> requests_;  // by number of the command
    int last_number_ = 0;
};

}  // namespace drover
