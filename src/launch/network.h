#pragma once

#include <optional>
#include <string>

#include "launch/loop.h"

namespace drover {

/// The IPv4 address of a host, such as 10.0.0.1. Error if the name is unknown.
std::string ipv4_address_of(const std::string& host);

/// The network of an address of this machine, such as 10.0.0.0/24; nothing if the machine does not have the
/// address.
std::optional<std::string> network_of_own_address(const std::string& address);
/// Whether an address is in a network that network_of_own_address() returned.
bool is_in_network(const std::string& address, const std::string& network);

/// A socket that accepts connections to this address only; not open if another program uses the port. Error
/// if the machine does not have the address.
FileDescriptor listen_on(const std::string& address, int port);
/// Not open if nothing listens there, or if the machine does not answer within seconds.
FileDescriptor connect_to(const std::string& address, int port);
/// A named socket local to this machine, which disappears with the process.
FileDescriptor listen_locally(const std::string& name);
/// Not open if nothing listens there, or if another user does.
FileDescriptor connect_locally(const std::string& name);
/// Whether the other end of a local connection is a process of this user or of root.
bool is_own_peer(const FileDescriptor& connection);

/// The next connection to a listening socket, with keepalive: a machine that is gone is noticed within 20
/// seconds. Not open if there is none.
FileDescriptor accept_connection(const FileDescriptor& listener);
/// The address of the other end.
std::string peer_address(const FileDescriptor& connection);

}  // namespace drover
