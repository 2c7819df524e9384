#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/tokenize.h"
#include "core/arena.h"
#include "core/console.h"
#include "core/json.h"
#include "core/number_text.h"
#include "data/packing/token_file.h"

namespace drover {
namespace {

std::string hex(const std::array<unsigned char, 16>& bytes) {
    return fmt::format("{:02x}", fmt::join(bytes, ""));
}

void print_header(const TokenFile& file) {
    const TokenFileHeader& header = file.rows().header();
    print_result("file:            {} ({})\n", file.path().string(), bytes_text(header.file_bytes()));
    print_result("rows:            {}\n", header.rows);
    print_result("tokens:          {}, {} bytes each\n", header.tokens, header.token_bytes);
    if (header.block_size > 0)
        print_result("block size:      {}\n", header.block_size);
    else
        print_result("block size:      none, rows have lengths of their own\n");
    print_result("packing:         {}", packing_name(header.packing));
    if (header.packing == Packing::hf) print_result(", for {}", counted(header.workers, "worker"));
    print_result("\nvocabulary:      {} ids, largest used {}\n", header.vocabulary, header.largest_id);
    print_result("tokenizer:       {}\n", header.tokenizer);
    print_result("checksum:        {}", hex(header.data_checksum));
}

}  // namespace

void inspect_token_file(const TokenizeOptions& options) {
    const TokenFile file(options.inspect);
    const TokenRows& rows = file.rows();
    print_header(file);
    rows.verify();
    print_result(", verified\n");

    std::shared_ptr<const Tokenizer> tokenizer;
    if (!options.tokenizer.empty()) {
        tokenizer = open_tokenizer(options);
        if (tokenizer->fingerprint() != rows.header().tokenizer)
            print_log(stderr, "drover: warning: {} was not made with the tokenizer {}.\n", options.inspect,
                      options.tokenizer);
        rows.check_vocabulary(tokenizer->size());
    }
    std::vector<TokenId> ids;
    for (std::int64_t row = 0; row < std::min(options.show_rows, rows.size()); ++row) {
        rows.read(row, ids);
        if (tokenizer)
            print_result(
                "row {}: {}\n", row,
                Json(tokenizer->decode(ids, false)).dump(-1, ' ', false, Json::error_handler_t::replace));
        else
            print_result("row {}: [{}]\n", row, fmt::join(ids, ","));
    }
}

}  // namespace drover
