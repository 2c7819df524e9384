#pragma once

#include <algorithm>
#include <cstdint>

namespace drover {

/// [begin, begin + count)
struct Range {
    std::int64_t begin = 0;
    std::int64_t count = 0;

    std::int64_t end() const { return begin + count; }
    bool operator==(const Range&) const = default;
};

/// Size of the parts when `total` is cut into `parts` equal ones, the last of which may be shorter or empty.
inline std::int64_t part_size(std::int64_t total, std::int64_t parts) {
    return (total + parts - 1) / parts;
}

/// Part `index` of that cut.
inline Range split_range(std::int64_t total, std::int64_t parts, std::int64_t index) {
    const std::int64_t size = part_size(total, parts);
    const std::int64_t begin = std::min(total, size * index);
    return {begin, std::min(size, total - begin)};
}

}  // namespace drover
