#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <iterator>

#include "app/tokenize.h"
#include "core/console.h"
#include "core/error.h"
#include "core/json.h"
#include "core/json_text.h"
#include "data/packing/ordered_pipeline.h"

namespace drover {
namespace {

/// A group of lines in the pipeline.
struct Lines {
    std::int64_t first_number = 1;
    std::vector<std::string> in;
    std::string out;
};

/// Fills `lines` with about 64 KiB of standard input.
bool read_lines(Lines& lines, std::int64_t& next_number) {
    constexpr std::size_t wanted_bytes = std::size_t{1} << 16;
    lines.in.clear();
    lines.first_number = next_number;
    std::string line;
    for (std::size_t bytes = 0; bytes < wanted_bytes && std::getline(std::cin, line);
         bytes += line.size() + 1)
        lines.in.push_back(line);
    next_number += static_cast<std::int64_t>(lines.in.size());
    return !lines.in.empty();
}

/// Converts every line of standard input using all threads, and prints the results in order.
void convert_lines(
    std::size_t threads,
    const std::function<void(const Json& value, const std::string& where, std::string& out)>& convert) {
    std::ios::sync_with_stdio(false);
    std::int64_t next_number = 1;
    OrderedPipeline<Lines> pipeline(
        threads, [&](Lines& lines) { return read_lines(lines, next_number); },
        [&](Lines& lines) {
            lines.out.clear();
            for (std::size_t i = 0; i < lines.in.size(); ++i) {
                const std::string where = fmt::format("Line {} of standard input",
                                                      lines.first_number + static_cast<std::int64_t>(i));
                convert(parse_json(lines.in[i], where), where, lines.out);
                lines.out += '\n';
            }
        });
    while (const Lines* lines = pipeline.next()) write_result(lines->out);
}

}  // namespace

void print_ids(const TokenizeOptions& options) {
    const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(options);
    const SpecialTokens special = options.no_special_tokens ? SpecialTokens::omit : SpecialTokens::add;
    convert_lines(options.threads, [&](const Json& value, const std::string& where, std::string& out) {
        if (!value.is_string())
            throw Error(fmt::format("{} is not a JSON string.", where),
                        "Write one text per line, in quotes: json.dumps(text).");
        std::vector<TokenId> ids;
        tokenizer->encode(value.get_ref<const std::string&>(), special, ids);
        fmt::format_to(std::back_inserter(out), "[{}]", fmt::join(ids, ","));
    });
}

void print_texts(const TokenizeOptions& options) {
    const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(options);
    convert_lines(options.threads, [&](const Json& value, const std::string& where, std::string& out) {
        std::vector<TokenId> ids;
        bool sound = value.is_array();
        for (std::size_t i = 0; sound && i < value.size(); ++i) {
            sound = value[i].is_number_unsigned() && value[i] < tokenizer->size();
            if (sound) ids.push_back(value[i].get<TokenId>());
        }
        if (!sound)
            throw Error(
                fmt::format("{} is not a JSON array of ids from 0 to {}.", where, tokenizer->size() - 1),
                "Write one array per line, as --ids prints them.");
        // Ids can end in the middle of a character.
        out += Json(tokenizer->decode(ids, options.skip_special_tokens))
                   .dump(-1, ' ', false, Json::error_handler_t::replace);
    });
}

}  // namespace drover
