#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace drover {

struct DataSettings;

/// A table of the datasets of a run that trains on `examples`: rows, weight, share, and how often each is
/// passed. `rows` are those of each dataset; empty: unknown, as for streams, which have weights.
std::string mixture_table(const DataSettings& settings, const std::vector<std::int64_t>& rows,
                          std::int64_t examples);

}  // namespace drover
