#pragma once

#include <vector>

#include "app/launch_loop.h"
#include "app/launch_message.h"

namespace drover {

/// A connection over which messages go, both ways.
class LaunchConnection {
  public:
    LaunchConnection(FileDescriptor socket, std::size_t largest)
        : socket_(std::move(socket)), reader_(largest) {}

    int descriptor() const { return socket_.number(); }
    const FileDescriptor& socket() const { return socket_; }
    /// Messages of any size, now that the other side is known.
    void trust() { reader_.allow(largest_launch_message); }

    /// What has come. Error when it is no message.
    std::vector<LaunchMessage> receive();
    /// Whether the other side is gone.
    bool is_lost() const { return lost_; }
    /// Sends, unless the other side is gone; a side that takes nothing for seconds counts as gone.
    void send(const LaunchMessage& message);

  private:
    FileDescriptor socket_;
    LaunchMessageReader reader_;
    bool lost_ = false;
};

}  // namespace drover
