#include "data/readers/tar_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/error.h"

namespace drover {
namespace {

constexpr std::uint64_t block = 512;

std::string_view field(std::string_view header, std::size_t at, std::size_t size) {
    const std::string_view whole = header.substr(at, size);
    return whole.substr(0, whole.find('\0'));
}

/// The value of `key` in the records ("<size> <key>=<value>\n") of a pax header; empty if it is missing.
std::string_view pax_value(std::string_view records, std::string_view key) {
    while (!records.empty()) {
        std::size_t size = 0;
        const auto [end, error] = std::from_chars(records.data(), records.data() + records.size(), size);
        const auto digits = static_cast<std::size_t>(end - records.data());
        if (error != std::errc() || size <= digits + 1 || size > records.size()) return {};
        const std::string_view record = records.substr(digits + 1, size - digits - 2);
        if (record.starts_with(key) && record.substr(key.size()).starts_with('='))
            return record.substr(key.size() + 1);
        records.remove_prefix(size);
    }
    return {};
}

}  // namespace

TarStream::TarStream(std::unique_ptr<ByteStream> stream, std::string name)
    : window_(std::move(stream)), name_(std::move(name)) {}

bool TarStream::next_file() {
    pass_over(left_ + padding_);
    left_ = padding_ = 0;
    std::string long_name, long_size;
    for (;;) {
        while (window_.bytes().size() < block && window_.grow()) {
        }
        if (window_.bytes().empty()) return false;
        const std::string header(bytes(block));
        if (header.find_first_not_of('\0') == std::string::npos) return false;
        // The sum of the header's bytes, with the checksum field counted as blanks.
        unsigned sum = 0, expected = 0;
        for (std::size_t i = 0; i < block; ++i)
            sum += i >= 148 && i < 156 ? unsigned{' '} : static_cast<unsigned char>(header[i]);
        const auto octal = [&](std::string_view text, auto& value) {
            text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
            return std::from_chars(text.data(), text.data() + text.size(), value, 8).ec == std::errc();
        };
        if (!octal(field(header, 148, 8), expected) || sum != expected)
            fail("is not a tar archive, or is damaged");
        std::uint64_t size = 0;
        if (static_cast<unsigned char>(header[124]) == 0x80) {  // GNU: a binary number
            for (std::size_t i = 128; i < 136; ++i) size = size << 8 | static_cast<unsigned char>(header[i]);
        } else if (!octal(field(header, 124, 12), size)) {
            fail("has a file without a size");
        }
        if (!long_size.empty()) std::from_chars(long_size.data(), long_size.data() + long_size.size(), size);
        constexpr std::uint64_t largest_name = 1 << 20;
        const char kind = header[156];
        if ((kind == 'L' || kind == 'x') && size <= largest_name) {
            const std::string content(bytes(size));
            pass_over((block - size % block) % block);
            if (kind == 'L') {
                long_name = content.substr(0, content.find('\0'));
            } else {
                if (const auto path = pax_value(content, "path"); !path.empty()) long_name = path;
                long_size = pax_value(content, "size");
            }
            continue;
        }
        const std::uint64_t padding = (block - size % block) % block;
        if (kind == '0' || kind == '\0' || kind == '7') {
            const std::string_view prefix =
                header.compare(257, 6, "ustar\0", 6) == 0 ? field(header, 345, 155) : "";
            file_name_ = !long_name.empty() ? long_name
                         : prefix.empty()   ? std::string(field(header, 0, 100))
                                            : fmt::format("{}/{}", prefix, field(header, 0, 100));
            left_ = size;
            padding_ = padding;
            return true;
        }
        pass_over(size + padding);
        long_name.clear();
        long_size.clear();
    }
}

bool TarStream::next_line(std::string& line) {
    line.clear();
    while (left_ > 0) {
        if (window_.bytes().empty() && !window_.grow()) fail("stops before its end");
        const std::string_view there =
            window_.bytes().substr(0, std::min<std::uint64_t>(left_, window_.bytes().size()));
        const std::size_t newline = there.find('\n');
        const std::size_t count = newline == std::string_view::npos ? there.size() : newline + 1;
        line.append(there.substr(0, count));
        window_.drop(count);
        left_ -= count;
        if (newline != std::string_view::npos) return true;
    }
    return !line.empty();
}

std::string_view TarStream::bytes(std::uint64_t count) {
    while (window_.bytes().size() < count)
        if (!window_.grow()) fail("stops before its end");
    const std::string_view found = window_.bytes().substr(0, count);
    window_.drop(count);
    return found;
}

void TarStream::pass_over(std::uint64_t count) {
    while (count > 0) {
        if (window_.bytes().empty() && !window_.grow()) fail("stops before its end");
        const std::uint64_t there = std::min<std::uint64_t>(count, window_.bytes().size());
        window_.drop(there);
        count -= there;
    }
}

void TarStream::fail(std::string_view what) const {
    throw Error(fmt::format("The archive {} {}.", name_, what), "Fetch it again.");
}

}  // namespace drover
