#pragma once

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "launch/connection.h"
#include "launch/network.h"

namespace drover::test {

/// A port of this machine that is not in use.
inline int free_port() {
    int port = 20'000 + getpid() % 10'000;  // tests run in parallel
    while (!listen_on("127.0.0.1", port).is_open()) ++port;
    return port;
}

/// A connection to a launcher's port, as soon as it listens.
inline FileDescriptor connect_when_ready(int port) {
    FileDescriptor socket;
    for (int tries = 0; tries < 1500 && !socket.is_open(); ++tries) {
        socket = connect_to("127.0.0.1", port);
        if (!socket.is_open()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return socket;
}

/// The next connection that a launcher makes.
inline FileDescriptor accept_when_ready(const FileDescriptor& listener) {
    pollfd asked{.fd = listener.number(), .events = POLLIN, .revents = 0};
    poll(&asked, 1, 30'000);
    return accept_connection(listener);
}

/// The other side of a launcher's connection, played by a test.
class LaunchPeer {
  public:
    explicit LaunchPeer(FileDescriptor socket) : connection_(std::move(socket), largest_launch_message) {}

    void send(const LaunchMessage& message) { connection_.send(message); }
    /// Sends raw bytes, whether or not they are messages.
    void send_bytes(const std::string& bytes) const {
        [[maybe_unused]] const ssize_t sent = write(connection_.descriptor(), bytes.data(), bytes.size());
    }
    /// The next message; nothing if the other side has closed the connection.
    std::optional<LaunchMessage> next() {
        while (true) {
            if (auto message = connection_.next()) return message;
            if (connection_.is_lost()) return std::nullopt;
            pollfd asked{.fd = connection_.descriptor(), .events = POLLIN, .revents = 0};
            if (poll(&asked, 1, 30'000) <= 0) return std::nullopt;
            connection_.read();
        }
    }
    /// Reads until the other side has closed; returns whether it has.
    bool is_closed() {
        while (next()) continue;
        return connection_.is_lost();
    }

    /// Plays a node: answers the challenge with a hello that has these numbers after the protocol's. With the
    /// right key, everything after that is sealed. Returns the answer.
    std::optional<LaunchMessage> greet(const LaunchKey& key, int protocol, int rank, int nodes,
                                       const std::string& host = "host") {
        const auto challenge = next();
        if (!challenge || challenge->subject != LaunchSubject::challenge) return std::nullopt;
        LaunchMessage hello{LaunchSubject::hello, {protocol, rank, nodes, 1}, {new_launch_challenge(), host}};
        hello.texts.push_back(key.proof(challenge->texts[0], hello));
        send(hello);
        const LaunchSeals seals = key.seals(challenge->texts[0], hello.texts[0]);
        connection_.seal(seals.node, seals.node_0);
        return next();
    }
    /// Plays node 0 up to the welcome; everything after that is sealed. Returns the node's hello.
    std::optional<LaunchMessage> welcome(const LaunchKey& key, int rank) {
        const std::string challenge = new_launch_challenge();
        send({LaunchSubject::challenge, {launch_protocol}, {challenge}});
        const auto hello = next();
        if (!hello || hello->subject != LaunchSubject::hello) return std::nullopt;
        const LaunchSeals seals = key.seals(challenge, hello->texts[0]);
        connection_.seal(seals.node_0, seals.node);
        send({LaunchSubject::welcome, {rank}, {}});
        return hello;
    }

  private:
    LaunchConnection connection_;
};

}  // namespace drover::test
