#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "io/safetensors.h"

/// The parts of header parsing; other code calls SafetensorsHeader::parse.
namespace drover::safetensors_detail {

inline constexpr std::string_view fetch_again =
    "It was probably cut short on its way here: fetch the file again.";

/// A name for messages: in quotes, control characters escaped, long ones shortened.
std::string quoted_name(std::string_view name);

/// "[2, 17]"; long shapes are shortened.
std::string shape_text(const std::vector<std::int64_t>& shape);

/// Turns the JSON text into metadata and entries (sorted by offsets, names unique), checking everything that
/// can be checked for one tensor alone. `where` names the file in errors.
SafetensorsHeader parse_header_json(std::string_view json, std::string_view where);

/// Checks that the entries cover the data part exactly: no gap, no overlap, nothing missing or left over at
/// the end.
void check_offsets(const SafetensorsHeader& header, std::uint64_t file_size, std::string_view where);

}  // namespace drover::safetensors_detail
