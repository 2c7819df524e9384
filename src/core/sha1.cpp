#include "core/sha1.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace drover {

void Sha1::take_block(const unsigned char* block) {
    std::array<std::uint32_t, 80> words;
    for (std::size_t i = 0; i < 16; ++i)
        words[i] = std::uint32_t{block[4 * i]} << 24 | std::uint32_t{block[4 * i + 1]} << 16 |
                   std::uint32_t{block[4 * i + 2]} << 8 | std::uint32_t{block[4 * i + 3]};
    for (std::size_t i = 16; i < 80; ++i)
        words[i] = std::rotl(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
    auto [a, b, c, d, e] = state_;
    for (std::size_t i = 0; i < 80; ++i) {
        std::uint32_t mixed = 0, constant = 0;
        if (i < 20) {
            mixed = (b & c) | (~b & d);
            constant = 0x5a827999;
        } else if (i < 40) {
            mixed = b ^ c ^ d;
            constant = 0x6ed9eba1;
        } else if (i < 60) {
            mixed = (b & c) | (b & d) | (c & d);
            constant = 0x8f1bbcdc;
        } else {
            mixed = b ^ c ^ d;
            constant = 0xca62c1d6;
        }
        const std::uint32_t next = std::rotl(a, 5) + mixed + e + constant + words[i];
        e = d;
        d = c;
        c = std::rotl(b, 30);
        b = a;
        a = next;
    }
    const std::array<std::uint32_t, 5> added{a, b, c, d, e};
    for (std::size_t i = 0; i < 5; ++i) state_[i] += added[i];
}

Sha1& Sha1::add(std::string_view bytes) {
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
    return *this;
}

Sha1Digest Sha1::digest() {
    const std::uint64_t bits = length_ * 8;
    block_[held_++] = 0x80;
    if (held_ > 56) {
        std::fill(block_.begin() + static_cast<std::ptrdiff_t>(held_), block_.end(), 0);
        take_block(block_.data());
        held_ = 0;
    }
    std::fill(block_.begin() + static_cast<std::ptrdiff_t>(held_), block_.end(), 0);
    for (std::size_t i = 0; i < 8; ++i) block_[56 + i] = static_cast<unsigned char>(bits >> (8 * (7 - i)));
    take_block(block_.data());
    Sha1Digest digest;
    for (std::size_t i = 0; i < 20; ++i)
        digest[i] = static_cast<unsigned char>(state_[i / 4] >> (8 * (3 - i % 4)));
    return digest;
}

}  // namespace drover
