#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/hash_blocks.h"

namespace drover {

/// A SHA-1 digest.
using Sha1Digest = std::array<unsigned char, 20>;

/// SHA-1 (FIPS 180-4) of bytes added in pieces, as git names its files. Not for security.
class Sha1 {
  public:
    Sha1& add(std::string_view bytes);
    /// The digest of everything added. Nothing can be added afterwards.
    Sha1Digest digest();

  private:
    void take_block(const unsigned char* block);

    std::array<std::uint32_t, 5> state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    HashBlocks blocks_;
};

}  // namespace drover
