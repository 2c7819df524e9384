#pragma once

#include <string_view>

#include "fuzz/accepts.h"
#include "text/pipeline_tokenizer.h"
#include "text/utf8.h"

namespace drover::test {

/// Loads a tokenizer.json, writes and rereads it, and runs some text through both.
inline bool accepts_tokenizer(std::string_view text) {
    return accepts([&] {
        const TokenizerJson description = parse_tokenizer_json(text, "input");
        const PipelineTokenizer tokenizer(parts_of(description, "input"));
        const std::string saved = tokenizer_json_text(description);
        const PipelineTokenizer again(parts_of(parse_tokenizer_json(saved, "saved input"), "saved input"));
        for (const std::string_view sample :
             {"", "a", " Hello  world's 123\r\n\n", "abab<s>x</s> \t \u00e9\u0301\u4e2d\U0001f600 <|x|>"}) {
            std::vector<TokenId> ids, ids_again;
            tokenizer.encode(sample, SpecialTokens::add, ids);
            again.encode(sample, SpecialTokens::add, ids_again);
            require(ids == ids_again, "a saved tokenizer gives other ids");
            ids.clear();
            tokenizer.encode(sample, SpecialTokens::omit, ids);
            ids_again.clear();
            std::vector<Span> spans;
            tokenizer.encode_aligned(sample, SpecialTokens::omit, ids_again, spans);
            require(ids == ids_again && spans.size() == ids.size(), "ids with spans are other ids");
            for (const Span& span : spans)
                require(span.begin <= span.end && span.end <= sample.size(), "a span outside of the text");
            const std::string decoded = tokenizer.decode(ids, true);
            require(valid_utf8_prefix(decoded) == decoded.size(), "decoded text is not UTF-8");
        }
    });
}

}  // namespace drover::test
