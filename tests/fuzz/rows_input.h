#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "data/readers/csv_reader.h"
#include "data/readers/json_reader.h"
#include "data/rows/columns.h"
#include "fuzz/accepts.h"
#include "support/memory_stream.h"
#include "text/utf8.h"

namespace drover::test {

/// Reads all rows; they must be UTF-8, and as many as are skipped when nothing is kept.
template <class Make>
void check_rows(Make&& make) {
    RowBatch batch;
    const std::size_t count = make()->read(batch, 1'000'000);
    require(batch.size() == count, "a reader that miscounts");
    for (std::size_t i = 0; i < count; ++i)
        require(valid_utf8_prefix(batch[i]) == batch[i].size(), "a row that is not UTF-8");
    require(make()->skip(1'000'000) == static_cast<std::int64_t>(count), "skip finds other rows than read");
    RowBatch single;
    const auto reader = make();
    while (reader->read(single, 1) == 1) {
    }
    require(single.bytes == batch.bytes && single.ends == batch.ends,
            "rows depend on how many are asked for");
}

inline std::string column_of(const std::vector<std::string>& columns) {
    if (columns.empty()) throw Error("The input has no columns.", "Write some.");
    return choose_text_column(columns, "", "input");
}

inline bool accepts_csv(std::string_view bytes) {
    return accepts([&] {
        const std::string column = column_of(csv_columns(memory_byte_stream(bytes), "input", ','));
        check_rows([&] { return make_csv_reader(memory_byte_stream(bytes), "input", column, ','); });
    });
}

inline bool accepts_json_rows(std::string_view bytes) {
    return accepts([&] {
        const std::string column = column_of(json_columns(memory_byte_stream(bytes), "input", ""));
        check_rows([&] { return make_json_reader(memory_byte_stream(bytes), "input", column, ""); });
    });
}

}  // namespace drover::test
