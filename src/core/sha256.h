#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/hash_blocks.h"

namespace drover {

/// A SHA-256 digest.
using Sha256Digest = std::array<unsigned char, 32>;

/// SHA-256 (FIPS 180-4) of bytes added in pieces.
class Sha256 {
  public:
    Sha256& add(std::string_view bytes);
    /// The digest of everything added. Nothing can be added afterwards.
    Sha256Digest digest();

  private:
    void take_block(const unsigned char* block);

    std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    HashBlocks blocks_;
};

/// HMAC-SHA-256 (RFC 2104): only a holder of the key can compute it.
Sha256Digest hmac_sha256(std::string_view key, std::string_view message);

/// The bytes of a digest as text of a message.
std::string_view bytes_of(const Sha256Digest& digest);

/// Whether two texts are equal, in a time that does not depend on where they differ.
bool equal_in_constant_time(std::string_view one, std::string_view other);

/// Unpredictable bytes, from the system's generator.
std::string unpredictable_bytes(std::size_t count);

}  // namespace drover
