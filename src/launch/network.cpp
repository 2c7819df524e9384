#include "launch/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "core/error.h"

namespace drover {
namespace {

sockaddr_in internet_address(const std::string& address, int port) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<std::uint16_t>(port));
    require(inet_pton(AF_INET, address.c_str(), &place.sin_addr) == 1, "an address that was not looked up");
    return place;
}

std::string text_of(const in_addr& address) {
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &address, text, sizeof text);
    return text;
}

/// A name that starts with a zero byte is not a file.
sockaddr_un local_address(const std::string& name) {
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    require(name.size() + 1 < sizeof place.sun_path, "a name too long for a socket");
    std::memcpy(place.sun_path + 1, name.data(), name.size());
    return place;
}

template <typename Address>
const sockaddr* generic(const Address& address) {
    return reinterpret_cast<const sockaddr*>(&address);
}

void set(const FileDescriptor& socket, int level, int option, int value) {
    setsockopt(socket.number(), level, option, &value, sizeof value);
}

/// The connection to a machine that has vanished ends after about 20 seconds; sending to a peer that does not
/// read fails after the same time.
void watch_peer(const FileDescriptor& socket) {
    constexpr int idle_s = 5, between_s = 5, probes = 3, unread_ms = 20'000;
    set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(socket, IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
    set(socket, IPPROTO_TCP, TCP_KEEPINTVL, between_s);
    set(socket, IPPROTO_TCP, TCP_KEEPCNT, probes);
    set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, unread_ms);
    set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
}

FileDescriptor new_socket(int family, int flags) {
    FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
    require(socket.is_open(), "a socket that cannot be made");
    return socket;
}

constexpr int waiting_connections = 256;

}  // namespace

std::string ipv4_address_of(const std::string& host) {
    addrinfo wanted{};
    wanted.ai_family = AF_INET;
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int problem = getaddrinfo(host.c_str(), nullptr, &wanted, &found); problem != 0)
        throw Error(
            fmt::format("The address \"{}\" of node 0 has no IPv4 address: {}.", host, gai_strerror(problem)),
            "Give its name or its address with --master_addr.");
    const std::string address = text_of(reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr);
    freeaddrinfo(found);
    return address;
}

std::optional<std::string> network_of_own_address(const std::string& address) {
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return std::nullopt;
    std::optional<std::string> network;
    for (const ifaddrs* own = all; own != nullptr; own = own->ifa_next) {
        if (own->ifa_addr == nullptr || own->ifa_addr->sa_family != AF_INET || own->ifa_netmask == nullptr)
            continue;
        const in_addr here = reinterpret_cast<const sockaddr_in*>(own->ifa_addr)->sin_addr;
        const in_addr mask = reinterpret_cast<const sockaddr_in*>(own->ifa_netmask)->sin_addr;
        // All of 127.0.0.0/8 is this machine, though the interface shows only one address of it.
        const bool loopback = ntohl(here.s_addr) >> 24 == 127 && address.starts_with("127.");
        if (text_of(here) != address && !loopback) continue;
        network =
            fmt::format("{}/{}", text_of({.s_addr = here.s_addr & mask.s_addr}), std::popcount(mask.s_addr));
        break;
    }
    freeifaddrs(all);
    return network;
}

bool is_in_network(const std::string& address, const std::string& network) {
    const std::size_t slash = network.find('/');
    require(slash != std::string::npos, "a network without its length");
    const unsigned length = static_cast<unsigned>(std::stoul(network.substr(slash + 1)));
    const std::uint32_t mask = length == 0 ? 0 : ~std::uint32_t{0} << (32 - length);
    const auto number = [](const std::string& text) {
        return ntohl(internet_address(text, 0).sin_addr.s_addr);
    };
    return (number(address) & mask) == (number(network.substr(0, slash)) & mask);
}

FileDescriptor listen_on(const std::string& address, int port) {
    FileDescriptor socket = new_socket(AF_INET, SOCK_NONBLOCK);
    set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    const sockaddr_in place = internet_address(address, port);
    if (bind(socket.number(), generic(place), sizeof place) == 0 &&
        listen(socket.number(), waiting_connections) == 0)
        return socket;
    if (errno == EADDRINUSE) return {};
    throw Error(fmt::format("Node 0 cannot listen on {}:{}: {}.", address, port, std::strerror(errno)),
                "--master_addr must be an address of node 0, and --master_port a port that you may use.");
}

FileDescriptor connect_to(const std::string& address, int port) {
    FileDescriptor socket = new_socket(AF_INET, 0);
    constexpr timeval patience{.tv_sec = 5, .tv_usec = 0};
    setsockopt(socket.number(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    const sockaddr_in place = internet_address(address, port);
    if (connect(socket.number(), generic(place), sizeof place) != 0) return {};
    watch_peer(socket);
    return socket;
}

FileDescriptor listen_locally(const std::string& name) {
    FileDescriptor socket = new_socket(AF_UNIX, SOCK_NONBLOCK);
    const sockaddr_un place = local_address(name);
    if (bind(socket.number(), generic(place), sizeof place) != 0 ||
        listen(socket.number(), waiting_connections) != 0)
        throw Error(fmt::format("The local socket {} cannot be made: {}.", name, std::strerror(errno)),
                    "Start the job again.");
    return socket;
}

FileDescriptor connect_locally(const std::string& name) {
    FileDescriptor socket = new_socket(AF_UNIX, 0);
    const sockaddr_un place = local_address(name);
    if (connect(socket.number(), generic(place), sizeof place) != 0 || !is_own_peer(socket)) return {};
    return socket;
}

bool is_own_peer(const FileDescriptor& connection) {
    ucred peer{};
    socklen_t size = sizeof peer;
    return getsockopt(connection.number(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

FileDescriptor accept_connection(const FileDescriptor& listener) {
    FileDescriptor connection(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.is_open()) {
        watch_peer(connection);
        constexpr timeval patience{.tv_sec = 5, .tv_usec = 0};
        setsockopt(connection.number(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    }
    return connection;
}

std::string peer_address(const FileDescriptor& connection) {
    sockaddr_in place{};
    socklen_t size = sizeof place;
    if (getpeername(connection.number(), reinterpret_cast<sockaddr*>(&place), &size) != 0) return "0.0.0.0";
    return text_of(place.sin_addr);
}

}  // namespace drover
