#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace drover {

/// A 128-bit hash of a sequence of parts (XXH3), for recognising content that was seen before. Not for
/// security.
class ContentHash {
  public:
    ContentHash();
    ~ContentHash();
    ContentHash(ContentHash&&) noexcept;
    ContentHash& operator=(ContentHash&&) noexcept;

    /// Adds bytes as they are: add("ab") equals add("a"), add("b").
    ContentHash& add_bytes(std::string_view bytes);
    /// Adds one part with its length: ("ab", "c") and ("a", "bc") differ.
    ContentHash& add(std::string_view part);
    /// Adds the content of a file; Error when it cannot be read.
    ContentHash& add_file(const std::filesystem::path& path);

    /// The hash of everything added so far, 16 bytes, most significant first.
    std::array<unsigned char, 16> digest() const;
    /// The same as 32 hexadecimal digits.
    std::string hex() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace drover
