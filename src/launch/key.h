#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "core/sha256.h"

namespace drover {

struct LaunchMessage;

/// Marks what one side of a connection sends. The marks cannot be made without the job's secret, and fit one
/// message at one place of one connection: nothing can be put in, repeated or left out.
class LaunchSeal {
  public:
    static constexpr std::size_t mark_bytes = sizeof(Sha256Digest);

    explicit LaunchSeal(const Sha256Digest& key) : key_(key) {}
    /// The mark of the next message that is sent.
    std::string mark(std::string_view message);
    /// Whether this is the mark of the next message that is received.
    bool takes(std::string_view message, std::string_view mark);

  private:
    Sha256Digest mark_of_next(std::string_view message) const;

    Sha256Digest key_;
    std::uint64_t messages_ = 0;
};

/// The seals of a connection's two directions.
struct LaunchSeals {
    LaunchSeal node_0, node;
};

/// What the launchers of a job share, and nobody else knows.
class LaunchKey {
  public:
    /// The secret may be empty; then the job's id is all that others do not know.
    LaunchKey(std::string_view secret, std::string_view job_id);

    /// Shows node 0, which gave the challenge, that the sender of this hello has the key. The hello's own
    /// proof, if it has one already, does not count.
    std::string proof(std::string_view challenge, const LaunchMessage& hello) const;
    /// For one connection: both sides have added 32 random bytes.
    LaunchSeals seals(std::string_view challenge, std::string_view answer) const;

  private:
    Sha256Digest mac(std::initializer_list<std::string_view> parts) const;

    Sha256Digest key_;
};

/// 32 random bytes.
std::string new_launch_challenge();

}  // namespace drover
