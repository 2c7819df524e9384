#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "support/golden.h"
#include "text/tokenizer.h"

namespace drover::test {

/// examples/tokenizers/<name> in the source tree.
inline std::filesystem::path example_tokenizer(std::string_view name) {
    return std::filesystem::path(DROVER_SOURCE_DIR) / "examples/tokenizers" / name;
}

/// The folder with data that may not be part of the source tree; empty if it does not exist.
inline std::filesystem::path shared_data() {
    const char* named = std::getenv("DROVER_SHARED");
    const auto folder =
        (named ? std::filesystem::path(named) : std::filesystem::path(DROVER_SOURCE_DIR) / "../shared") /
        "data";
    return std::filesystem::exists(folder / "tokenizers") && std::filesystem::exists(folder / "wikitext-2")
               ? folder
               : std::filesystem::path();
}

inline std::vector<std::string> hard_strings() {
    return read_json_file(golden_path("text/hard.json")).get<std::vector<std::string>>();
}

/// The lines of a file, each with its newline.
inline std::vector<std::string> lines_of(const std::filesystem::path& path) {
    const std::string text = read_text_file(path);
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
        lines.push_back(text.substr(begin, end - begin));
        begin = end;
    }
    return lines;
}

/// The same hash as in tools/oracle/tokenizer_ids.py.
template <class Values>
std::uint32_t hash_values(const Values& values) {
    std::uint32_t hash = 2166136261u;
    for (const auto value : values) hash = (hash ^ static_cast<std::uint32_t>(value)) * 16777619u;
    return hash;
}
inline std::uint32_t hash_text(std::string_view text) {
    return hash_values(std::vector<unsigned char>(text.begin(), text.end()));
}

/// The word of `length` letters that the oracle also makes.
inline std::string long_word(std::size_t length) {
    constexpr std::string_view letters = "etaoinshrdlu";
    std::uint32_t state = 12345;
    std::string word;
    for (std::size_t i = 0; i < length; ++i) {
        state = (1103515245u * state + 12345u) % (1u << 31);
        word += letters[(state >> 16) % letters.size()];
    }
    return word;
}

inline std::vector<TokenId> encoded(const Tokenizer& tokenizer, std::string_view text,
                                    SpecialTokens special = SpecialTokens::add) {
    std::vector<TokenId> ids;
    tokenizer.encode(text, special, ids);
    return ids;
}

/// A printable form of a text.
inline std::string shown(const std::string& text) {
    return Json(text.substr(0, 200)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace drover::test
