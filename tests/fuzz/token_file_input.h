#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/content_hash.h"
#include "data/packing/token_file.h"
#include "fuzz/accepts.h"

namespace drover::test {

/// Opens, reads every row and verifies.
inline bool accepts_token_file(std::string_view bytes) {
    return accepts([&] {
        const TokenRows rows(bytes, "input");
        std::vector<TokenId> ids, labels;
        std::vector<std::int32_t> documents;
        std::uint64_t tokens = 0;
        for (std::int64_t row = 0; row < rows.size(); ++row) {
            rows.read(row, ids);
            require(static_cast<std::int64_t>(ids.size()) == rows.length(row), "a row of another length");
            tokens += ids.size();
            rows.read(row, ids, labels);
            rows.documents(row, documents);
            require(labels.empty() || labels.size() == ids.size(), "a label for every id");
        }
        rows.verify();
        require(tokens == rows.header().tokens, "the rows do not hold all tokens");
        require(rows.header().serialize() == bytes.substr(0, TokenFileHeader::bytes),
                "another header is written than was read");
    });
}

/// The same with corrected checksums, so that all code after them is reached.
inline bool accepts_token_file_with_right_checksums(std::string bytes) {
    if (bytes.size() < TokenFileHeader::bytes) return false;
    const auto put = [&](std::size_t at, std::string_view content) {
        const auto digest = ContentHash().add_bytes(content).digest();
        bytes.replace(at, digest.size(), reinterpret_cast<const char*>(digest.data()), digest.size());
    };
    put(96, std::string_view(bytes).substr(TokenFileHeader::bytes));
    put(112, std::string_view(bytes).substr(0, 112));
    return accepts_token_file(bytes);
}

}  // namespace drover::test
