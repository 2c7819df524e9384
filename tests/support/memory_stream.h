#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "data/readers/byte_stream.h"

namespace drover::test {

/// A stream over bytes in memory, which must outlive it.
class MemoryStream final : public ByteStream {
  public:
    explicit MemoryStream(std::string_view bytes) : rest_(bytes) {}
    std::size_t read(char* into, std::size_t size) override {
        const std::size_t count = std::min(size, rest_.size());
        if (count > 0) std::memcpy(into, rest_.data(), count);
        rest_.remove_prefix(count);
        return count;
    }

  private:
    std::string_view rest_;
};

inline std::unique_ptr<ByteStream> memory_byte_stream(std::string_view bytes) {
    return std::make_unique<MemoryStream>(bytes);
}

}  // namespace drover::test
