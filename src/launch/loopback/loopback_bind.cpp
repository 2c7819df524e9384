// Open MPI's mpirun listens on every network of the machine, without a setting to prevent it, although in a
// job on one machine no other machine needs to reach it. Loaded before the C library (LD_PRELOAD), this
// bind() puts sockets without an address on the loopback interface.

#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace {

using Bind = int (*)(int, const sockaddr*, socklen_t);

template <typename Address>
Address read_as(const sockaddr* address) {
    Address copy;
    std::memcpy(&copy, address, sizeof copy);
    return copy;
}

}  // namespace

extern "C" int bind(int socket, const sockaddr* address, socklen_t size) noexcept {
    const auto real_bind = reinterpret_cast<Bind>(dlsym(RTLD_NEXT, "bind"));
    if (address != nullptr && address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
        auto place = read_as<sockaddr_in>(address);
        if (place.sin_addr.s_addr == htonl(INADDR_ANY)) {
            place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            return real_bind(socket, reinterpret_cast<const sockaddr*>(&place), sizeof place);
        }
    }
    if (address != nullptr && address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
        auto place = read_as<sockaddr_in6>(address);
        if (IN6_IS_ADDR_UNSPECIFIED(&place.sin6_addr)) {
            place.sin6_addr = in6addr_loopback;
            const int bound = real_bind(socket, reinterpret_cast<const sockaddr*>(&place), sizeof place);
            // Without an IPv6 loopback interface there is no other reachable one either.
            if (bound == 0 || errno != EADDRNOTAVAIL) return bound;
        }
    }
    return real_bind(socket, address, size);
}
