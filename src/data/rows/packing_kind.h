#pragma once

#include <cstdint>
#include <string_view>

namespace drover {

/// How the ids of text rows become training rows.
enum class Packing : std::uint32_t {
    hf = 1,        ///< as run_clm: of every 1,000 rows, the rest that does not fill a block is dropped
    lossless = 2,  ///< one stream cut into blocks; nothing is dropped
    none = 3,      ///< each row of text is an example
};

std::string_view packing_name(Packing packing);
/// `where` (a flag) is named in the UsageError.
Packing packing_from_name(std::string_view name, std::string_view where);

}  // namespace drover
