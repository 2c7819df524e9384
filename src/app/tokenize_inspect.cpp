#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/tokenize.h"
#include "core/arena.h"
#include "core/json.h"
#include "data/token_file.h"

namespace drover {
namespace {

std::string hex(const std::array<unsigned char, 16>& bytes) {
    return fmt::format("{:02x}", fmt::join(bytes, ""));
}

void print_header(const TokenFile& file) {
    const TokenFileHeader& header = file.rows().header();
    fmt::print("file:            {} ({})\n", file.path().string(), bytes_text(header.file_bytes()));
    fmt::print("rows:            {}\n", header.rows);
    fmt::print("tokens:          {}, {} bytes each\n", header.tokens, header.token_bytes);
    if (header.block_size > 0)
        fmt::print("block size:      {}\n", header.block_size);
    else
        fmt::print("block size:      none, rows have lengths of their own\n");
    fmt::print("packing:         {}", packing_name(header.packing));
    if (header.packing == Packing::hf) fmt::print(", for {} workers", header.workers);
    fmt::print("\nvocabulary:      {} ids, largest used {}\n", header.vocabulary, header.largest_id);
    fmt::print("tokenizer:       {}\n", header.tokenizer);
    fmt::print("checksum:        {}", hex(header.data_checksum));
    std::fflush(stdout);
}

}  // namespace

void inspect_token_file(const TokenizeOptions& options) {
    const TokenFile file(options.inspect);
    const TokenRows& rows = file.rows();
    print_header(file);
    rows.verify();
    fmt::print(", verified\n");

    std::shared_ptr<const Tokenizer> tokenizer;
    if (!options.tokenizer.empty()) {
        tokenizer = open_tokenizer(options);
        if (tokenizer->fingerprint() != rows.header().tokenizer)
            fmt::print(stderr, "drover: warning: {} was not made with the tokenizer {}.\n", options.inspect,
                       options.tokenizer);
        rows.check_vocabulary(tokenizer->size());
    }
    std::vector<TokenId> ids;
    for (std::int64_t row = 0; row < std::min(options.show_rows, rows.size()); ++row) {
        rows.read(row, ids);
        if (tokenizer)
            fmt::print(
                "row {}: {}\n", row,
                Json(tokenizer->decode(ids, false)).dump(-1, ' ', false, Json::error_handler_t::replace));
        else
            fmt::print("row {}: [{}]\n", row, fmt::join(ids, ","));
    }
}

}  // namespace drover
