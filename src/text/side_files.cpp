#include "text/side_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/error.h"
#include "core/json_text.h"

namespace drover {
namespace {

constexpr std::array roles{"bos_token", "eos_token", "unk_token", "sep_token",
                           "pad_token", "cls_token", "mask_token"};

/// A token given as a text or as an object. A text is special and searched for in the original text.
AddedToken read_token(const Json& value, const std::string& where) {
    if (value.is_string()) return {.content = value.get<std::string>(), .normalized = false, .special = true};
    return read_added_token(JsonFields(value, where), true);
}

std::optional<bool> optional_flag(const JsonFields& fields, std::string_view key) {
    return fields.find(key) ? std::optional(fields.flag(key, false)) : std::nullopt;
}

}  // namespace

SideFiles::SideFiles(const std::filesystem::path& folder) {
    const auto with_file = [&](const char* name, auto&& use) {
        const std::filesystem::path path = folder / name;
        if (std::filesystem::exists(path)) use(read_json_file(path), path.string());
    };
    with_file("config.json", [&](const Json& config, const std::string& where) {
        const JsonFields fields(config, where);
        model_type_ = fields.optional_text("model_type").value_or("");
        tokenizer_class_ = fields.optional_text("tokenizer_class").value_or("");
        for (const char* key : {"rope_scaling", "rope_parameters"})
            if (const Json* rope = fields.find(key); rope && rope->is_object())
                llama3_rope = llama3_rope || rope->value("rope_type", Json()) == "llama3";
    });
    with_file("tokenizer_config.json",
              [&](const Json& config, const std::string& where) { read_config(config, where); });
    if (tokenizer_class_.ends_with("Fast")) tokenizer_class_.resize(tokenizer_class_.size() - 4);
    if (!has_added_tokens_decoder) {
        with_file("special_tokens_map.json",
                  [&](const Json& map, const std::string& where) { read_special_tokens_map(map, where); });
        with_file("added_tokens.json",
                  [&](const Json& map, const std::string& where) { read_added_tokens(map, where); });
    }
}

SideFiles::Class SideFiles::tokenizer_class() const {
    if (model_type_ == "mistral" || model_type_ == "mixtral" || model_type_ == "ministral")
        return Class::other;
    if (tokenizer_class_ == "LlamaTokenizer") return Class::llama;
    return tokenizer_class_ == "GPT2Tokenizer" ? Class::gpt2 : Class::other;
}

void SideFiles::read_config(const Json& config, const std::string& where) {
    const JsonFields fields(config, where);
    has_config_ = true;
    if (const auto name = fields.optional_text("tokenizer_class")) tokenizer_class_ = *name;
    add_bos_token = optional_flag(fields, "add_bos_token");
    add_eos_token = optional_flag(fields, "add_eos_token");
    add_prefix_space = optional_flag(fields, "add_prefix_space");
    legacy = optional_flag(fields, "legacy");
    if (const Json* length = fields.find("model_max_length")) {
        if (!length->is_number()) fields.wrong("model_max_length", "a number");
        model_max_length = length->get<double>();
    }
    if (const Json* decoder = fields.find("added_tokens_decoder")) {
        if (!decoder->is_object()) fields.wrong("added_tokens_decoder", "an object");
        has_added_tokens_decoder = true;
        std::vector<std::pair<std::int64_t, AddedToken>> tokens;
        for (const auto& [key, value] : decoder->items()) {
            std::int64_t id = -1;
            const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
            if (error != std::errc() || end != key.data() + key.size())
                fields.wrong("added_tokens_decoder", "an object whose keys are token ids");
            tokens.emplace_back(
                id,
                read_added_token(JsonFields(value, fmt::format("{}, added_tokens_decoder", where)), false));
        }
        std::stable_sort(tokens.begin(), tokens.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        for (auto& [id, token] : tokens) added.push_back(std::move(token));
    }
    for (const char* role : roles)
        if (const Json* value = fields.find(role)) set_named(role, *value, where);
    const Json* extra = fields.find("extra_special_tokens");
    if (!extra) extra = fields.find("additional_special_tokens");
    if (extra) add_extra(*extra, where);
}

void SideFiles::set_named(const std::string& role, const Json& value, const std::string& where) {
    if (value.is_null()) return;
    AddedToken token = read_token(value, fmt::format("{}, {}", where, role));
    const auto known = std::find_if(added.begin(), added.end(),
                                    [&](const AddedToken& t) { return t.content == token.content; });
    if (known != added.end()) token = *known;
    const auto place =
        std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == role; });
    if (place != named.end())
        place->second = std::move(token);
    else
        named.emplace_back(role, std::move(token));
}

void SideFiles::name_by_default(std::string_view role, std::string_view content) {
    for (const auto& [name, token] : named)
        if (name == role) return;
    set_named(std::string(role), Json(content), "default");
}

void SideFiles::add_extra(const Json& value, const std::string& where) {
    if (!value.is_array() && !value.is_object())
        throw Error(fmt::format("{}: its extra special tokens are not a list.", where), "Fix the file.");
    for (const Json& token : value) extra_.push_back(read_token(token, where));
}

void SideFiles::read_special_tokens_map(const Json& map, const std::string& where) {
    const JsonFields fields(map, where);
    for (const char* role : roles)
        if (const Json* value = fields.find(role)) set_named(role, *value, where);
    for (const char* key : {"extra_special_tokens", "additional_special_tokens"})
        if (const Json* extra = fields.find(key)) add_extra(*extra, where);
}

void SideFiles::read_added_tokens(const Json& map, const std::string& where) {
    const JsonFields fields(map, where);
    std::vector<std::pair<std::int64_t, std::string>> tokens;
    for (const auto& [content, id] : map.items()) {
        if (!id.is_number_integer()) fields.wrong(content, "a token id");
        tokens.emplace_back(id.get<std::int64_t>(), content);
    }
    std::sort(tokens.begin(), tokens.end());
    for (const auto& [id, content] : tokens) {
        const bool special = std::any_of(named.begin(), named.end(),
                                         [&](const auto& n) { return n.second.content == content; }) ||
                             std::any_of(extra_.begin(), extra_.end(),
                                         [&](const AddedToken& t) { return t.content == content; });
        added.push_back({.content = content, .normalized = !special, .special = special});
    }
}

void SideFiles::complete(TokenizerParts& parts) const {
    const Vocabulary& vocabulary = parts.model->vocabulary();
    for (const AddedToken& token : added) parts.added.add(token, vocabulary);
    const auto add_missing = [&](AddedToken token) {
        if (parts.added.find(token.content)) return;
        token.special = true;
        parts.added.add(token, vocabulary);
    };
    for (const auto& [role, token] : named) add_missing(token);
    for (const AddedToken& token : extra_) add_missing(token);
    for (const auto& [role, token] : named) {
        if (role == "bos_token") parts.bos = parts.find(token.content);
        if (role == "eos_token") parts.eos = parts.find(token.content);
        if (role == "pad_token") parts.pad = parts.find(token.content);
        if (role == "unk_token") parts.unk = parts.find(token.content);
    }
    parts.model_max_length = model_max_length;
}

}  // namespace drover
