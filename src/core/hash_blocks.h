#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace drover {

/// Cuts a message that comes in pieces into the blocks of 64 bytes that SHA-1 and SHA-256 take, and pads its
/// end as FIPS 180-4 says.
class HashBlocks {
  public:
    /// `take_block(const unsigned char*)` gets each full block.
    template <class TakeBlock>
    void add(std::string_view bytes, TakeBlock&& take_block) {
        length_ += bytes.size();
        while (!bytes.empty()) {
            const std::size_t count = std::min(bytes.size(), block_.size() - held_);
            std::memcpy(block_.data() + held_, bytes.data(), count);
            held_ += count;
            bytes.remove_prefix(count);
            if (held_ < block_.size()) break;
            take_block(block_.data());
            held_ = 0;
        }
    }

    /// The last blocks: a bit that is set, zeros, and the number of bits before them.
    template <class TakeBlock>
    void finish(TakeBlock&& take_block) {
        const std::uint64_t bits = length_ * 8;
        add("\x80", take_block);
        while (held_ != 56) add(std::string_view("\0", 1), take_block);
        std::array<char, 8> end;
        for (std::size_t i = 0; i < 8; ++i) end[i] = static_cast<char>(bits >> (56 - 8 * i) & 0xff);
        add({end.data(), end.size()}, take_block);
    }

  private:
    std::array<unsigned char, 64> block_{};
    std::size_t held_ = 0;      // bytes in block_
    std::uint64_t length_ = 0;  // of the message so far
};

}  // namespace drover
