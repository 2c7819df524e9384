#include "launch/connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace drover {

void LaunchConnection::seal(const LaunchSeal& sent, const LaunchSeal& received) {
    seal_ = sent;
    reader_.expect(received);
    reader_.allow(largest_launch_message);
}

void LaunchConnection::read() {
    std::array<char, 65536> buffer;
    const ssize_t count = recv(socket_.number(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) lost_ = true;
    if (count > 0) reader_.add({buffer.data(), static_cast<std::size_t>(count)});
}

std::vector<LaunchMessage> LaunchConnection::receive() {
    read();
    std::vector<LaunchMessage> messages;
    while (std::optional<LaunchMessage> message = next()) messages.push_back(std::move(*message));
    return messages;
}

void LaunchConnection::send(const LaunchMessage& message) {
    const std::string bytes = encode_launch_message(message, seal_ ? &*seal_ : nullptr);
    for (std::size_t sent = 0; sent < bytes.size() && !lost_;) {
        const ssize_t count =
            ::send(socket_.number(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (count > 0)
            sent += static_cast<std::size_t>(count);
        else if (errno != EINTR)
            lost_ = true;
    }
}

}  // namespace drover
