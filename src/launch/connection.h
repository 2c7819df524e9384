#pragma once

#include <vector>

#include "launch/loop.h"
#include "launch/message.h"

namespace drover {

/// A connection that carries messages both ways.
class LaunchConnection {
  public:
    LaunchConnection(FileDescriptor socket, std::size_t largest)
        : socket_(std::move(socket)), reader_(largest) {}

    int descriptor() const { return socket_.number(); }
    const FileDescriptor& socket() const { return socket_; }
    /// From now on messages carry marks, and may have any size.
    void seal(const LaunchSeal& sent, const LaunchSeal& received);

    /// Reads the bytes that have arrived.
    void read();
    /// The next message from them, or nothing yet. Error if it is not a message, or not sealed as required at
    /// this point.
    std::optional<LaunchMessage> next() { return reader_.next(); }
    /// Does both; returns all messages that have arrived.
    std::vector<LaunchMessage> receive();
    /// Whether the other side has disconnected.
    bool is_lost() const { return lost_; }
    /// Sends unless the other side is gone; a peer that accepts nothing for seconds counts as gone.
    void send(const LaunchMessage& message);

  private:
    FileDescriptor socket_;
    LaunchMessageReader reader_;
    std::optional<LaunchSeal> seal_;
    bool lost_ = false;
};

}  // namespace drover
