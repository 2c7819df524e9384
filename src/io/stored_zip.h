#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace drover {

/// The checksum of an entry's content, or of `bytes` after content that has the checksum `before`.
std::uint32_t zip_checksum(std::string_view bytes, std::uint32_t before = 0);

/// The directory of a zip archive in memory whose entries are stored uncompressed, as torch.save writes it
/// (also with the 64-bit fields of large ones).
class StoredZip {
  public:
    struct Entry {
        std::string_view name;
        std::string_view content;
        std::uint32_t crc32 = 0;  ///< from the directory
    };

    static constexpr std::string_view first_bytes = "PK\3\4";

    /// Error when it is not an archive, is truncated, or has an entry that is compressed, encrypted, outside
    /// the file or duplicate. Reads only the directory and the entries' headers. `bytes` must stay valid;
    /// `where` names the file in errors.
    StoredZip(std::string_view bytes, std::string_view where);
    StoredZip(StoredZip&&) = default;
    StoredZip& operator=(StoredZip&&) = default;

    const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
    /// Null when there is none of this name.
    const Entry* find(std::string_view name) const;
    /// Error unless the content matches the directory's checksum. An entry whose checksum is 0 has none:
    /// torch.save can be told not to compute them. `after_part` is called every few megabytes.
    void verify(std::string_view name, const std::function<void()>& after_part = {}) const;

  private:
    std::string where_;
    std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace drover
