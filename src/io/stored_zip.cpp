#include "io/stored_zip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "io/safetensors_header.h"

namespace drover {
namespace {

using safetensors_detail::fetch_again;
using safetensors_detail::quoted_name;

/// Fixed-size records of the format, including their signatures.
constexpr std::size_t end_bytes = 22, end64_bytes = 56, locator_bytes = 20, directory_bytes = 46,
                      local_bytes = 30;
constexpr std::uint32_t end64_signature = 0x06064b50, locator_signature = 0x07064b50,
                        directory_signature = 0x02014b50, local_signature = 0x04034b50;
constexpr std::size_t longest_comment = 65535;
constexpr std::size_t checksum_part = std::size_t{4} << 20;
constexpr std::uint32_t in_extra_field = 0xFFFFFFFF;  ///< means that a 64-bit value is elsewhere
constexpr std::uint16_t extra_field_of_64_bit_values = 1;

/// Little-endian numbers of a range of bytes, with every read checked.
class Bytes {
  public:
    Bytes(std::string_view bytes, std::string_view where) : bytes_(bytes), where_(where) {}

    template <class T>
    T at(std::uint64_t offset) const {
        T value;
        std::memcpy(&value, part(offset, sizeof(T)).data(), sizeof(T));
        return value;
    }
    std::string_view part(std::uint64_t offset, std::uint64_t count) const {
        if (offset > bytes_.size() || count > bytes_.size() - offset)
            throw Error(fmt::format("{} is damaged: its directory points outside the file.", where_),
                        fetch_again);
        return bytes_.substr(offset, count);
    }
    bool has(std::uint64_t offset, std::uint32_t signature) const {
        return at<std::uint32_t>(offset) == signature;
    }

  private:
    std::string_view bytes_;
    std::string_view where_;
};

/// Where the directory lies, and how many entries it has.
struct Directory {
    std::uint64_t begin, entries;
};

Directory find_directory(std::string_view bytes, const Bytes& read, std::string_view where) {
    const std::size_t searched = std::min(bytes.size(), end_bytes + longest_comment);
    const std::size_t end = bytes.size() < end_bytes
                                ? std::string_view::npos
                                : bytes.rfind(std::string_view("PK\5\6", 4), bytes.size() - end_bytes);
    if (end == std::string_view::npos || end < bytes.size() - searched)
        throw Error(fmt::format("{} is not a zip archive, or its end is missing.", where), fetch_again);
    if (end >= locator_bytes && read.has(end - locator_bytes, locator_signature)) {
        const auto end64 = read.at<std::uint64_t>(end - locator_bytes + 8);
        read.part(end64, end64_bytes);
        if (!read.has(end64, end64_signature))
            throw Error(fmt::format("{} is damaged: its 64-bit directory is not there.", where), fetch_again);
        return {read.at<std::uint64_t>(end64 + 48), read.at<std::uint64_t>(end64 + 32)};
    }
    return {read.at<std::uint32_t>(end + 16), read.at<std::uint16_t>(end + 10)};
}

/// The 64-bit values of an entry's extra field, in their fixed order; only those that the 32-bit fields refer
/// to.
struct Wide {
    std::string_view extra;
    std::string_view where;
    std::uint64_t take(std::uint32_t narrow) {
        if (narrow != in_extra_field) return narrow;
        const Bytes read(extra, where);
        const auto value = read.at<std::uint64_t>(0);
        extra.remove_prefix(8);
        return value;
    }
};

std::string_view extra_field(std::string_view extra, std::string_view where) {
    const Bytes read(extra, where);
    for (std::size_t at = 0; at + 4 <= extra.size();) {
        const auto size = read.at<std::uint16_t>(at + 2);
        const std::string_view content = read.part(at + 4, size);
        if (read.at<std::uint16_t>(at) == extra_field_of_64_bit_values) return content;
        at += 4u + size;
    }
    return {};
}

}  // namespace

std::uint32_t zip_checksum(std::string_view bytes, std::uint32_t before) {
    return static_cast<std::uint32_t>(
        crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

StoredZip::StoredZip(std::string_view bytes, std::string_view where) : where_(where) {
    const Bytes read(bytes, where_);
    const Directory directory = find_directory(bytes, read, where_);
    std::uint64_t at = directory.begin;
    for (std::uint64_t i = 0; i < directory.entries; ++i) {
        read.part(at, directory_bytes);
        if (!read.has(at, directory_signature))
            throw Error(
                fmt::format("{} is damaged: entry {} of its directory is not where it should be.", where_, i),
                fetch_again);
        const auto flags = read.at<std::uint16_t>(at + 8);
        const auto method = read.at<std::uint16_t>(at + 10);
        const auto name_bytes = read.at<std::uint16_t>(at + 28);
        const auto extra_bytes = read.at<std::uint16_t>(at + 30);
        const auto comment_bytes = read.at<std::uint16_t>(at + 32);
        const std::string name(read.part(at + directory_bytes, name_bytes));
        if (method != 0 || (flags & 1) != 0)
            throw Error(
                fmt::format("{}: its entry {} is compressed or encrypted, which torch.save never does.",
                            where_, quoted_name(name)),
                "Save it again with torch.save.");
        Wide wide{extra_field(read.part(at + directory_bytes + name_bytes, extra_bytes), where_), where_};
        const std::uint64_t size = wide.take(read.at<std::uint32_t>(at + 24));
        const std::uint64_t stored = wide.take(read.at<std::uint32_t>(at + 20));
        const std::uint64_t local = wide.take(read.at<std::uint32_t>(at + 42));
        read.part(local, local_bytes);
        if (size != stored || !read.has(local, local_signature))
            throw Error(fmt::format("{} is damaged: its entry {} is not where the directory says.", where_,
                                    quoted_name(name)),
                        fetch_again);
        const std::uint64_t content =
            local + local_bytes + read.at<std::uint16_t>(local + 26) + read.at<std::uint16_t>(local + 28);
        const auto [place, is_new] = entries_.emplace(name, Entry{});
        if (!is_new)
            throw Error(fmt::format("{}: its entry {} appears twice.", where_, quoted_name(name)),
                        "Save it again with torch.save.");
        place->second = {.name = place->first,
                         .content = read.part(content, size),
                         .crc32 = read.at<std::uint32_t>(at + 16)};
        at += directory_bytes + name_bytes + extra_bytes + comment_bytes;
    }
}

const StoredZip::Entry* StoredZip::find(std::string_view name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : &found->second;
}

void StoredZip::verify(std::string_view name, const std::function<void()>& after_part) const {
    const Entry* const entry = find(name);
    require(entry != nullptr, "a zip entry that is not there is to be verified");
    if (entry->crc32 == 0) return;
    std::uint32_t checksum = 0;
    for (std::size_t at = 0; at < entry->content.size(); at += checksum_part) {
        checksum = zip_checksum(entry->content.substr(at, checksum_part), checksum);
        if (after_part) after_part();
    }
    if (checksum != entry->crc32)
        throw Error(
            fmt::format("{} is damaged: the checksum of its entry {} is wrong.", where_, quoted_name(name)),
            fetch_again);
}

}  // namespace drover
