#include "app/launch_connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace drover {

std::vector<LaunchMessage> LaunchConnection::receive() {
    std::array<char, 65536> buffer;
    const ssize_t count = recv(socket_.number(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) lost_ = true;
    if (count > 0) reader_.add({buffer.data(), static_cast<std::size_t>(count)});
    std::vector<LaunchMessage> messages;
    while (std::optional<LaunchMessage> message = reader_.next()) messages.push_back(std::move(*message));
    return messages;
}

void LaunchConnection::send(const LaunchMessage& message) {
    const std::string bytes = encode_launch_message(message);
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
