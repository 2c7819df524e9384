#include <fmt/format.h>

#include "core/error.h"
#include "drover/data.h"
#include "public/parts.h"
#include "run/model_source.h"

namespace drover::v1 {

Tokenizer Tokenizer::from_pretrained(const std::string& model_id) {
    Parts parts{
        load_tokenizer(find_pretrained(model_id, "The tokenizer's model_id", {.parts = ModelParts::texts})),
        {}};
    parts.pad = parts.tokenizer->pad();
    return Tokenizer(std::make_shared<const Parts>(std::move(parts)));
}

std::vector<std::int32_t> Tokenizer::operator()(std::string_view text) const {
    std::vector<TokenId> ids;
    parts_->tokenizer->encode(text, SpecialTokens::add, ids);
    return ids;
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids, bool skip_special_tokens) const {
    return parts_->tokenizer->decode(ids, skip_special_tokens);
}

std::int64_t Tokenizer::size() const {
    return parts_->tokenizer->size();
}

std::int32_t Tokenizer::eos_token_id() const {
    return parts_->tokenizer->eos().value_or(-1);
}

std::int32_t Tokenizer::pad_token_id() const {
    return parts_->pad.value_or(-1);
}

std::string Tokenizer::eos_token() const {
    if (!parts_->tokenizer->eos())
        throw Error("The tokenizer has no end-of-text token.", "Name another token to pad with.");
    return decode({eos_token_id()}, false);
}

void Tokenizer::add_special_tokens(const std::map<std::string, std::string>& tokens) {
    Parts parts = *parts_;
    for (const auto& [key, text] : tokens) {
        if (key != "pad_token")
            throw Error(fmt::format("add_special_tokens: \"{}\" cannot be set.", key),
                        "Only pad_token can be set.");
        std::vector<TokenId> ids;
        parts.tokenizer->encode(text, SpecialTokens::omit, ids);
        if (ids.size() != 1)
            throw Error(fmt::format("add_special_tokens: \"{}\" is not one token of this tokenizer.", text),
                        "Use an existing token, such as eos_token().");
        parts.pad = ids[0];
    }
    parts_ = std::make_shared<const Parts>(std::move(parts));
}

DataCollatorForLanguageModeling::DataCollatorForLanguageModeling(Tokenizer tokenizer,
                                                                 DataCollatorOptions options)
    : tokenizer_(std::move(tokenizer)), options_(options) {
    if (options_.mlm)
        throw Error("DataCollatorForLanguageModeling: mlm is set, but there are no models for it here.",
                    "Leave mlm off: the models are causal.");
    if (tokenizer_.pad_token_id() < 0)
        throw Error("DataCollatorForLanguageModeling: the tokenizer has no pad token.",
                    "Call tokenizer.add_special_tokens({{\"pad_token\", tokenizer.eos_token()}}) first.");
    if (options_.pad_to_multiple_of < 1)
        throw Error("DataCollatorForLanguageModeling: pad_to_multiple_of is below 1.", "Use 1 or more.");
}

}  // namespace drover::v1
