#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "data/rows/row_source.h"

namespace drover::test {

/// All rows from `first_row` on, requested `at_once` at a time.
inline std::vector<std::string> read_all(const RowDataset& rows, std::int64_t first_row = 0,
                                         std::size_t at_once = 1000) {
    const auto source = rows.open(first_row);
    std::vector<std::string> all;
    RowBatch batch;
    for (source->next(batch, at_once); batch.size() > 0; source->next(batch, at_once))
        for (std::size_t i = 0; i < batch.size(); ++i) all.emplace_back(batch[i]);
    return all;
}

inline void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace drover::test
