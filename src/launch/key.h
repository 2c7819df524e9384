#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "core/sha256.h"

namespace drover {

struct LaunchMessage;

/// Marks what one side of a connection sends. The marks cannot be made without the job's secret, and each is
/// valid for one message at one position in one connection: no message can be inserted, repeated or dropped.
class LaunchSeal {
  public:
    static constexpr std::size_t mark_bytes = sizeof(Sha256Digest);

    explicit LaunchSeal(const Sha256Digest& key) : key_(key) {}
    /// The mark of the next message to send.
    std::string mark(std::string_view message);
    /// Whether this is the mark of the next received message.
    bool takes(std::string_view message, std::string_view mark);

  private:
    Sha256Digest mark_of_next(std::string_view message) const;

    Sha256Digest key_;
    std::uint64_t messages_ = 0;
};

/// The seals for the two directions of a connection.
struct LaunchSeals {
    LaunchSeal node_0, node;
};

/// The key that only the launchers of a job share.
class LaunchKey {
  public:
    /// The secret may be empty; then only the job's id is unknown to others.
    LaunchKey(std::string_view secret, std::string_view job_id);

    /// Proves to node 0, which sent the challenge, that the sender of this hello has the key. A proof already
    /// in the hello is not included.
    std::string proof(std::string_view challenge, const LaunchMessage& hello) const;
    /// For one connection, to which both sides have contributed 32 random bytes.
    LaunchSeals seals(std::string_view challenge, std::string_view answer) const;

  private:
    Sha256Digest mac(std::initializer_list<std::string_view> parts) const;

    Sha256Digest key_;
};

/// 32 random bytes.
std::string new_launch_challenge();

}  // namespace drover
