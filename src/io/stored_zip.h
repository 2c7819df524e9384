#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace drover {

/// The directory of a zip archive that lies in memory and whose entries are stored as they are, as torch.save
/// writes it (also with the 64-bit fields of large ones).
class StoredZip {
  public:
    struct Entry {
        std::string_view name;
        std::string_view content;
        std::uint32_t crc32 = 0;  ///< as the directory has it
    };

    static constexpr std::string_view first_bytes = "PK\3\4";

    /// Error when it is no archive, cut short, or an entry is compressed, encrypted, outside the file or
    /// there twice. Reads only the directory and the entries' headers. `bytes` must stay where they are;
    /// `where` names the file in errors.
    StoredZip(std::string_view bytes, std::string_view where);
    StoredZip(StoredZip&&) = default;
    StoredZip& operator=(StoredZip&&) = default;

    const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
    /// Null when there is none of this name.
    const Entry* find(std::string_view name) const;
    /// Error unless the content has the checksum that the directory says.
    void verify(std::string_view name) const;

  private:
    std::string where_;
    std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace drover
