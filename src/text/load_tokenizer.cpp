#include <fmt/format.h>

#include <algorithm>

#include "core/content_hash.h"
#include "core/error.h"
#include "core/json_text.h"
#include "core/lfs_pointer.h"
#include "core/text_file.h"
#include "text/pipeline_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/side_files.h"
#include "text/tiktoken.h"

namespace drover {
namespace {

/// Must change whenever a change of this code changes the ids of some text.
constexpr std::string_view encoder_version = "1";

std::string read_tokenizer_file(const std::filesystem::path& path) {
    std::string content = read_text_file(path);
    refuse_lfs_pointer(content, path.string());
    return content;
}

PrefixSpace prefix_space(const SideFiles& side, bool legacy) {
    if (!side.add_prefix_space.value_or(true)) return PrefixSpace::never;
    return legacy ? PrefixSpace::always : PrefixSpace::first;
}

/// Applies transformers 5's changes to the tokenizer.json of a class with its own rules: vocabulary, merges
/// and post-processor are used, everything else is rebuilt.
void remake(TokenizerJson& tokenizer, const SideFiles& side, std::string_view where) {
    Json& parts = tokenizer.components;
    if (!parts.contains("model") || !parts["model"].is_object())
        throw Error(fmt::format("{} has no \"model\".", where), "Fetch the file again.");
    parts["normalizer"] = nullptr;
    if (side.tokenizer_class() == SideFiles::Class::llama) {
        const PrefixSpace prefix = prefix_space(side, side.legacy.value_or(false));
        parts["pre_tokenizer"] = llama_metaspace(prefix);
        parts["decoder"] = llama_decoder(prefix != PrefixSpace::never);
        parts["model"] = {{"type", "BPE"}, {"fuse_unk", true}, {"byte_fallback", true}};
    } else {
        parts["pre_tokenizer"] = {{"type", "ByteLevel"},
                                  {"add_prefix_space", side.add_prefix_space.value_or(false)}};
        parts["decoder"] = {{"type", "ByteLevel"}};
        parts["model"] = {{"type", "BPE"}};
    }
    if (side.has_added_tokens_decoder) parts["added_tokens"] = Json::array();
}

void surround(TokenizerParts& parts, bool bos, bool eos) {
    parts.around = {};
    if (bos && parts.bos) parts.around.before.push_back(*parts.bos);
    if (eos && parts.eos) parts.around.after.push_back(*parts.eos);
}

/// The tokens that a class has if no file names any.
void name_usual_tokens(SideFiles& side) {
    const bool llama = side.tokenizer_class() == SideFiles::Class::llama;
    side.name_by_default("bos_token", llama ? "<s>" : "<|endoftext|>");
    side.name_by_default("eos_token", llama ? "</s>" : "<|endoftext|>");
    side.name_by_default("unk_token", llama ? "<unk>" : "<|endoftext|>");
}

TokenizerParts load_json(std::string_view content, const std::string& where, SideFiles side,
                         TransformersRules rules) {
    TokenizerJson description = parse_tokenizer_json(content, where);
    const SideFiles::Class kind = side.tokenizer_class();
    if (kind != SideFiles::Class::other) {
        name_usual_tokens(side);
        if (rules == TransformersRules::v5) remake(description, side, where);
    }
    TokenizerParts parts = parts_of(std::move(description), where);
    side.complete(parts);
    if (kind == SideFiles::Class::llama && rules == TransformersRules::v4)
        surround(parts, side.add_bos_token.value_or(true), side.add_eos_token.value_or(false));
    return parts;
}

std::string piece_text(const SentencePieceFile& file, TokenId id) {
    return id < 0 ? std::string() : file.pieces[static_cast<std::size_t>(id)].text;
}

/// The config file that Hugging Face's libraries need with a tokenizer that came as a single file.
TokenizerFile config_file(const TokenizerParts& parts) {
    Json config{{"clean_up_tokenization_spaces", false},
                {"model_max_length", parts.model_max_length},
                {"tokenizer_class", "PreTrainedTokenizerFast"}};
    const auto name = [&](const char* role, std::optional<TokenId> id) {
        if (!id) return;
        const AddedToken* added = parts.added.token(*id);
        config[role] =
            added ? added->content : std::string(parts.model->vocabulary().token(*id).value_or(""));
    };
    name("bos_token", parts.bos);
    name("eos_token", parts.eos);
    name("pad_token", parts.pad);
    name("unk_token", parts.unk);
    return {"tokenizer_config.json", sorted_json_text(config, 2) + "\n"};
}

/// The post-processor that adds BOS, and EOS if requested, around a text.
Json bos_template(const TokenizerParts& parts) {
    Json single = Json::array(), known = Json::object();
    const auto add = [&](TokenId id) {
        const std::string token = parts.added.token(id)->content;
        single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
        known[token] = {{"id", token}, {"ids", Json::array({id})}, {"tokens", Json::array({token})}};
    };
    for (const TokenId id : parts.around.before) add(id);
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    for (const TokenId id : parts.around.after) add(id);
    Json pair = single;
    for (Json part : single) {
        for (auto& [kind, fields] : part.items()) {
            fields["type_id"] = 1;
            if (kind == "Sequence") fields["id"] = "B";
        }
        pair.push_back(part);
    }
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", known}};
}

TokenizerParts load_sentencepiece(std::string_view content, const std::string& where, SideFiles side,
                                  TransformersRules rules) {
    const SentencePieceFile file = SentencePieceFile::parse(content, where);
    for (const auto& [role, id] : {std::pair{"bos_token", file.bos}, std::pair{"eos_token", file.eos},
                                   std::pair{"unk_token", file.unk}, std::pair{"pad_token", file.pad}})
        if (id >= 0) side.name_by_default(role, piece_text(file, id));

    // Without a tokenizer_config.json SentencePiece's own rule applies, which was transformers' before
    // "legacy".
    const bool own_rule =
        !side.has_config() || (rules == TransformersRules::v4 && side.legacy.value_or(true));
    const PrefixSpace prefix =
        own_rule ? PrefixSpace::every_segment : prefix_space(side, side.legacy.value_or(false));
    const bool plain = is_plain_bpe(file);
    TokenizerParts parts = plain ? parts_of(tokenizer_of_sentencepiece(file, prefix), where)
                                 : parts_of_sentencepiece(file, content, where);
    side.complete(parts);
    surround(parts, side.add_bos_token.value_or(true), side.add_eos_token.value_or(false));
    if (plain && !side.has_config()) {
        TokenizerJson saved = tokenizer_of_sentencepiece(file, prefix);
        saved.components["post_processor"] = bos_template(parts);
        parts.files.push_back({"tokenizer.json", tokenizer_json_text(saved)});
        parts.files.push_back(config_file(parts));
    }
    return parts;
}

TokenizerParts load_tiktoken(std::string_view content, const std::string& where, SideFiles side) {
    const Llama3Names names = side.llama3_rope ? Llama3Names::v3_1 : Llama3Names::v3;
    side.name_by_default("bos_token", "<|begin_of_text|>");
    side.name_by_default("eos_token", "<|end_of_text|>");
    TokenizerParts parts = parts_of(tokenizer_of_tiktoken(content, names, where), where);
    side.complete(parts);
    if (side.add_bos_token || side.add_eos_token)
        surround(parts, side.add_bos_token.value_or(true), side.add_eos_token.value_or(false));
    TokenizerJson saved = tokenizer_of_tiktoken(content, names, where);
    if (side.add_bos_token || side.add_eos_token) saved.components["post_processor"] = bos_template(parts);
    parts.files.push_back({"tokenizer.json", tokenizer_json_text(saved)});
    if (!side.has_config()) parts.files.push_back(config_file(parts));
    return parts;
}

std::string kept_name(const std::filesystem::path& path) {
    const std::string extension = path.extension().string();
    return extension == ".json" ? "tokenizer.json" : "tokenizer.model";
}

}  // namespace

TokenizerParts load_tokenizer_parts(const std::filesystem::path& path, TransformersRules rules) {
    namespace fs = std::filesystem;
    const bool is_folder = fs::is_directory(path);
    fs::path main = path;
    if (is_folder)
        main = fs::exists(path / "tokenizer.json") ? path / "tokenizer.json" : path / "tokenizer.model";
    if (!fs::exists(main))
        throw Error(
            is_folder ? fmt::format("{} holds neither tokenizer.json nor tokenizer.model.", path.string())
                      : fmt::format("There is no {}.", path.string()),
            "Give a model folder, a tokenizer.json, a SentencePiece tokenizer.model or a tiktoken file.");

    const std::string content = read_tokenizer_file(main);
    const SideFiles side = is_folder ? SideFiles(path) : SideFiles();
    const std::string where = main.string();
    const auto first = content.find_first_not_of(" \t\r\n");
    TokenizerParts parts;
    bool keeps_main = true;
    if (main.extension() == ".json" || (first != content.npos && content[first] == '{')) {
        parts = load_json(content, where, side, rules);
    } else if (is_tiktoken_file(content)) {
        parts = load_tiktoken(content, where, side);
        keeps_main = false;  // the tokenizer.json made from it is complete
    } else {
        parts = load_sentencepiece(content, where, side, rules);
    }

    ContentHash hash;
    hash.add(encoder_version).add(rules == TransformersRules::v4 ? "v4" : "v5").add(content);
    hash.add(std::to_string(static_cast<int>(side.tokenizer_class()))).add(side.llama3_rope ? "3.1" : "");
    if (keeps_main) parts.files.push_back({kept_name(main), content});
    if (is_folder) {
        for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                 "chat_template.jinja", "tokenizer.model"}) {
            const fs::path beside = path / name;
            if (beside == main || !fs::exists(beside)) continue;
            std::string text = read_tokenizer_file(beside);
            if (std::string_view(name).ends_with(".json")) hash.add(name).add(text);
            parts.files.push_back({name, std::move(text)});
        }
        for (const fs::path& file : more_template_files(path))
            parts.files.push_back({fmt::format("{}/{}", more_templates_folder, file.filename().string()),
                                   read_tokenizer_file(file)});
    }
    parts.fingerprint = hash.hex();
    return parts;
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path, TransformersRules rules) {
    return std::make_shared<PipelineTokenizer>(load_tokenizer_parts(path, rules));
}

std::vector<std::filesystem::path> more_template_files(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    const std::filesystem::path more = folder / more_templates_folder;
    if (!std::filesystem::is_directory(more)) return files;
    for (const auto& entry : std::filesystem::directory_iterator(more))
        if (entry.path().extension() == ".jinja") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
}

void save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& folder) {
    for (const TokenizerFile& file : tokenizer.files()) {
        std::filesystem::create_directories((folder / file.name).parent_path());
        write_file_atomically(folder / file.name, file.content);
    }
}

}  // namespace drover
