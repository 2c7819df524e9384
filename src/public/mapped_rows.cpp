#include "public/mapped_rows.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "core/content_hash.h"
#include "data/packing/token_file_writer.h"

namespace drover::v1 {

namespace fs = std::filesystem;

MappedRows::MappedRows(const Split& split, const drover::Tokenizer& tokenizer, std::int64_t vocab_size) {
    static std::atomic<int> number = 0;
    const fs::path path = fs::temp_directory_path() / fmt::format("drover-{}-{}.tokens", getpid(), number++);
    TokenFileWriter writer(path, tokenizer, {.packing = Packing::none, .block_size = 0});
    for (const std::vector<TokenId>& row : split.input_ids()) {
        if (row.empty()) continue;  // there is nothing to predict in it
        writer.add(row);
        longest_ = std::max(longest_, static_cast<std::int64_t>(row.size()));
    }
    writer.finish();
    file_.emplace(path);
    // The mapping stays valid without the file's name, and no file is left however the process ends.
    fs::remove(path);
    rows().check_vocabulary(vocab_size);
}

std::string MappedRows::fingerprint() const {
    return ContentHash().add(rows().header().serialize()).hex();
}

}  // namespace drover::v1
