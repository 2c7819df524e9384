#include "text/tiktoken.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "text/byte_alphabet.h"
#include "text/split_pattern.h"

namespace drover {
namespace {

constexpr int special_tokens = 256;

/// The bytes of a base64 text; nothing if it is invalid.
std::optional<std::string> decode_base64(std::string_view text) {
    if (text.empty() || text.size() % 4 != 0) return std::nullopt;
    std::string bytes;
    const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
    for (std::size_t i = 0; i < text.size(); i += 4) {
        std::uint32_t bits = 0;
        for (std::size_t j = i; j < i + 4; ++j) {
            const char c = text[j];
            std::uint32_t six = 0;
            if (c >= 'A' && c <= 'Z')
                six = static_cast<std::uint32_t>(c - 'A');
            else if (c >= 'a' && c <= 'z')
                six = static_cast<std::uint32_t>(c - 'a') + 26;
            else if (c >= '0' && c <= '9')
                six = static_cast<std::uint32_t>(c - '0') + 52;
            else if (c == '+')
                six = 62;
            else if (c == '/')
                six = 63;
            else if (j < text.size() - padding)
                return std::nullopt;
            bits = bits << 6 | six;
        }
        for (const int shift : {16, 8, 0}) bytes += static_cast<char>(bits >> shift & 0xFF);
    }
    bytes.erase(bytes.size() - padding);
    return bytes;
}

struct Rank {
    std::string bytes;
    TokenId id;
};

/// Parses one line; nothing if it is not a token and its rank.
std::optional<Rank> parse_line(std::string_view line) {
    const auto space = line.find(' ');
    if (space == line.npos) return std::nullopt;
    const std::string_view number = line.substr(space + 1);
    auto bytes = decode_base64(line.substr(0, space));
    TokenId id = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), id);
    if (!bytes || bytes->empty() || error != std::errc() || end != number.data() + number.size() || id < 0 ||
        id > Vocabulary::largest_id)
        return std::nullopt;
    return Rank{std::move(*bytes), id};
}

std::string_view next_line(std::string_view& rest) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
}

std::vector<std::string> special_names(Llama3Names names) {
    std::vector<std::string> named{"<|begin_of_text|>", "<|end_of_text|>"};
    int reserved = 0;
    const auto reserve = [&](int count) {
        for (; count > 0; --count) named.push_back(fmt::format("<|reserved_special_token_{}|>", reserved++));
    };
    if (names == Llama3Names::v3) {
        reserve(4);
        named.insert(named.end(), {"<|start_header_id|>", "<|end_header_id|>"});
        reserve(1);
        named.emplace_back("<|eot_id|>");
    } else {
        reserve(2);
        named.emplace_back("<|finetune_right_pad_id|>");
        reserve(1);
        named.insert(named.end(), {"<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>",
                                   "<|python_tag|>"});
    }
    reserve(special_tokens - static_cast<int>(named.size()));
    return named;
}

Json components(const std::vector<std::string>& specials, TokenId first_special) {
    Json added = Json::array();
    for (std::size_t i = 0; i < specials.size(); ++i)
        added.push_back({{"id", first_special + static_cast<TokenId>(i)},
                         {"content", specials[i]},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
    const auto byte_level = [](bool trim_offsets, bool use_regex) {
        return Json{{"type", "ByteLevel"},
                    {"add_prefix_space", false},
                    {"trim_offsets", trim_offsets},
                    {"use_regex", use_regex}};
    };
    const auto special = [&](int type) {
        return Json{{"SpecialToken", {{"id", specials[0]}, {"type_id", type}}}};
    };
    const auto sequence = [](const char* name, int type) {
        return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
    };
    const Json split{{"type", "Split"},
                     {"pattern", {{"Regex", llama3_pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}};
    const Json around{{"type", "TemplateProcessing"},
                      {"single", Json::array({special(0), sequence("A", 0)})},
                      {"pair", Json::array({special(0), sequence("A", 0), special(1), sequence("B", 1)})},
                      {"special_tokens",
                       {{specials[0],
                         {{"id", specials[0]},
                          {"ids", Json::array({first_special})},
                          {"tokens", Json::array({specials[0]})}}}}}};
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", added},
            {"normalizer", nullptr},
            {"pre_tokenizer",
             {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level(true, false)})}}},
            {"post_processor",
             {{"type", "Sequence"}, {"processors", Json::array({byte_level(false, true), around})}}},
            {"decoder", byte_level(true, true)},
            {"model",
             {{"type", "BPE"},
              {"dropout", nullptr},
              {"unk_token", nullptr},
              {"continuing_subword_prefix", nullptr},
              {"end_of_word_suffix", nullptr},
              {"fuse_unk", false},
              {"byte_fallback", false},
              {"ignore_merges", true}}}};
}

}  // namespace

bool is_tiktoken_file(std::string_view content) {
    return parse_line(next_line(content)).has_value();
}

TokenizerJson tokenizer_of_tiktoken(std::string_view content, Llama3Names names, std::string_view where) {
    std::vector<Rank> ranks;
    Vocabulary ids;  // by plain bytes
    int line_number = 0;
    while (!content.empty()) {
        ++line_number;
        const std::string_view line = next_line(content);
        if (line.empty()) continue;
        auto rank = parse_line(line);
        if (!rank || ids.find(rank->bytes))
            throw Error(
                fmt::format("{}, line {}: {}.", where, line_number,
                            rank ? "the token is there twice" : "not a token in base64, a space and a rank"),
                "Fetch the file again.");
        ids.add(rank->bytes, rank->id);
        ranks.push_back(std::move(*rank));
    }
    std::sort(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) { return a.id < b.id; });

    TokenizerJson result;
    result.vocabulary.reserve(ranks.size());
    for (const auto& [bytes, id] : ranks) {
        if (static_cast<std::size_t>(id) != result.vocabulary.size())
            throw Error(fmt::format("{} has no token of rank {}, or two.", where, result.vocabulary.size()),
                        "Fetch the file again.");
        result.vocabulary.add(bytes_to_alphabet(bytes), id);
        struct Parts {
            TokenId left, right;
            std::size_t at;
        };
        std::vector<Parts> splits;
        for (std::size_t i = 1; i < bytes.size(); ++i) {
            const auto left = ids.find(std::string_view(bytes).substr(0, i));
            const auto right = ids.find(std::string_view(bytes).substr(i));
            if (left && right) splits.push_back({*left, *right, i});
        }
        std::sort(splits.begin(), splits.end(), [](const Parts& a, const Parts& b) {
            return std::pair(a.left, a.right) < std::pair(b.left, b.right);
        });
        for (const Parts& parts : splits)
            result.merges.push_back({bytes_to_alphabet(std::string_view(bytes).substr(0, parts.at)),
                                     bytes_to_alphabet(std::string_view(bytes).substr(parts.at)),
                                     static_cast<std::uint32_t>(result.merges.size())});
    }
    result.components = components(special_names(names), static_cast<TokenId>(ranks.size()));
    return result;
}

}  // namespace drover
