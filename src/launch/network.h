#pragma once

#include <optional>
#include <string>

#include "launch/loop.h"

namespace drover {

/// The IPv4 address of a host, as 10.0.0.1. Error when the name is unknown.
std::string ipv4_address_of(const std::string& host);

/// The network of an address of this machine, as 10.0.0.0/24; nothing when the machine does not have the
/// address.
std::optional<std::string> network_of_own_address(const std::string& address);
/// Whether an address lies in a network that network_of_own_address() gave.
bool is_in_network(const std::string& address, const std::string& network);

/// A socket that takes connections to this address alone; not open when another program has the port. Error
/// when the machine does not have the address.
FileDescriptor listen_on(const std::string& address, int port);
/// Not open when nobody listens there, or the machine does not answer within seconds.
FileDescriptor connect_to(const std::string& address, int port);
/// A socket of this machine with a name of its own, which goes with the process.
FileDescriptor listen_locally(const std::string& name);
/// Not open when nobody listens there, or another user does.
FileDescriptor connect_locally(const std::string& name);
/// Whether the other end of a local connection is a process of this user or of root.
bool is_own_peer(const FileDescriptor& connection);

/// The next connection to a listening socket, which the kernel watches: a machine that is gone shows within
/// 20 seconds. Not open when there is none.
FileDescriptor accept_connection(const FileDescriptor& listener);
/// Who is at the other end.
std::string peer_address(const FileDescriptor& connection);

}  // namespace drover
