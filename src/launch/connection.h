#pragma once

#include <vector>

#include "launch/loop.h"
#include "launch/message.h"

namespace drover {

/// A connection over which messages go, both ways.
class LaunchConnection {
  public:
    LaunchConnection(FileDescriptor socket, std::size_t largest)
        : socket_(std::move(socket)), reader_(largest) {}

    int descriptor() const { return socket_.number(); }
    const FileDescriptor& socket() const { return socket_; }
    /// From now on messages have marks, and may have any size.
    void seal(const LaunchSeal& sent, const LaunchSeal& received);

    /// Takes in the bytes that have come.
    void read();
    /// The next message out of them, or nothing yet. Error when it is no message, or not sealed as it should
    /// be at this moment.
    std::optional<LaunchMessage> next() { return reader_.next(); }
    /// Both: all messages that have come.
    std::vector<LaunchMessage> receive();
    /// Whether the other side is gone.
    bool is_lost() const { return lost_; }
    /// Sends, unless the other side is gone; a side that takes nothing for seconds counts as gone.
    void send(const LaunchMessage& message);

  private:
    FileDescriptor socket_;
    LaunchMessageReader reader_;
    std::optional<LaunchSeal> seal_;
    bool lost_ = false;
};

}  // namespace drover
