#include "convert/gguf_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/json.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "text/pipeline_tokenizer.h"
#include "text/sentencepiece_file.h"
#include "text/side_files.h"
#include "text/tiktoken.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using TokenType = GgufVocabulary::Type;

constexpr std::string_view word_marker = "▁";
constexpr std::string_view no_tokenizer_remedy =
    "To convert the weights alone, use a folder without the tokenizer's files: the model then takes token "
    "ids.";

/// A pattern of tokenizer.json and llama.cpp's name for it: one for tokenizers that take a word that is a
/// token whole, and one for those that always apply merges.
struct KnownPattern {
    std::string_view pattern, whole_words, merges_only;
};
constexpr KnownPattern known_patterns[] = {
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "llama-bpe", "smaug-bpe"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2", "qwen2"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "tekken", "tekken"},
};

/// The split pattern of a pre-tokenizer that ends in bytes; empty for GPT-2's own, nothing for other kinds.
std::optional<std::string> pattern_of(const Json& pre_tokenizer) {
    const std::string type = pre_tokenizer.is_object() ? pre_tokenizer.value("type", std::string()) : "";
    if (type == "ByteLevel") {
        if (pre_tokenizer.value("add_prefix_space", true)) return std::nullopt;
        return pre_tokenizer.value("use_regex", true) ? std::optional<std::string>("") : std::nullopt;
    }
    if (type != "Sequence") return std::nullopt;
    const Json steps = pre_tokenizer.value("pretokenizers", Json::array());
    if (steps.size() == 1) return pattern_of(steps[0]);
    if (steps.size() != 2 || steps[0].value("type", std::string()) != "Split" ||
        steps[0].value("behavior", std::string()) != "Isolated" || steps[0].value("invert", false) ||
        steps[1].value("type", std::string()) != "ByteLevel" || steps[1].value("add_prefix_space", true) ||
        steps[1].value("use_regex", true))
        return std::nullopt;
    const Json pattern = steps[0].value("pattern", Json::object());
    return pattern.contains("Regex") && pattern["Regex"].is_string()
               ? std::optional(pattern["Regex"].get<std::string>())
               : std::nullopt;
}

std::string pre_tokenizer_name(const TokenizerJson& file, const std::string& where) {
    const std::optional<std::string> pattern = pattern_of(file.components.value("pre_tokenizer", Json()));
    if (pattern && pattern->empty()) return "gpt-2";
    const Json model = file.components.value("model", Json::object());
    for (const KnownPattern& known : known_patterns)
        if (pattern && *pattern == known.pattern)
            return std::string(model.value("ignore_merges", false) ? known.whole_words : known.merges_only);
    throw Error(fmt::format("{} splits text in a way for which llama.cpp has no name.", where),
                no_tokenizer_remedy);
}

/// "<0x0A>"
bool is_byte_token(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with(">")) return false;
    unsigned value = 0;
    const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
    return error == std::errc() && end == token.data() + 5;
}

const TokenizerFile* find_file(const TokenizerParts& parts, std::string_view name) {
    const auto found = std::ranges::find(parts.files, name, &TokenizerFile::name);
    return found == parts.files.end() ? nullptr : &*found;
}

/// Fills a vocabulary from the parts of a tokenizer.
class VocabularyMaker {
  public:
    VocabularyMaker(const fs::path& folder, std::int64_t rows, GgufVocabulary& made)
        : folder_(folder),
          rows_(rows),
          parts_(load_tokenizer_parts(folder, TransformersRules::v5)),
          is_byte_level_(parts_.pre_tokenizer && parts_.pre_tokenizer->yields_bytes()),
          made_(made) {}

    void run() {
        add_tokens();
        if (is_byte_level_)
            add_merges();
        else
            add_scores();
        add_added_tokens();
        const auto in_range = [&](std::optional<TokenId> id) {
            return id && *id < rows_ ? std::optional<std::int64_t>(*id) : std::nullopt;
        };
        const std::vector<TokenId>&before = parts_.around.before, &after = parts_.around.after;
        // A tokenizer.json alone names no BOS and EOS, but may put them around a text.
        const std::optional<TokenId> bos =
                                         parts_.bos || before.empty() ? parts_.bos : std::optional(before[0]),
                                     eos = parts_.eos || after.empty() ? parts_.eos : std::optional(after[0]);
        made_.bos = in_range(bos);
        made_.eos = in_range(eos);
        made_.unknown = in_range(parts_.unk);
        made_.padding = in_range(parts_.pad);
        made_.add_bos = bos && std::ranges::count(before, *bos) > 0;
        made_.add_eos = eos && std::ranges::count(after, *eos) > 0;
        add_chat_template();
        find_space_prefix();  // the last, because it takes the parts
    }

  private:
    std::string where(std::string_view name) const { return (folder_ / name).string(); }

    /// Pieces of the model; what is behind the embedding's rows cannot be used.
    void add_tokens() {
        for (std::int64_t id = 0; id < rows_; ++id) made_.tokens.push_back(fmt::format("[PAD{}]", id));
        made_.types.assign(static_cast<std::size_t>(rows_), static_cast<std::int32_t>(TokenType::unused));
        parts_.model->vocabulary().for_each([&](std::string_view token, TokenId id) {
            if (id < rows_) set(id, token, TokenType::normal);
        });
    }

    void set(TokenId id, std::string_view token, TokenType type) {
        made_.tokens[static_cast<std::size_t>(id)] = token;
        made_.types[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(type);
    }

    TokenizerJson tokenizer_json() const {
        const TokenizerFile* const file = find_file(parts_, "tokenizer.json");
        if (file == nullptr)
            throw Error(fmt::format("{} has no tokenizer.json.", folder_.string()), no_tokenizer_remedy);
        return parse_tokenizer_json(file->content, where(file->name));
    }

    void add_merges() {
        made_.model = "gpt2";
        const TokenizerJson file = tokenizer_json();
        made_.pre_tokenizer = SideFiles(folder_).tokenizer_class() == SideFiles::Class::gpt2
                                  ? "gpt-2"
                                  : pre_tokenizer_name(file, where("tokenizer.json"));
        for (const BpeModel::Merge& merge : file.merges)
            made_.merges.push_back(merge.left + " " + merge.right);
    }

    /// llama.cpp joins the two symbols whose concatenation has the best score.
    void add_scores() {
        made_.model = "llama";
        made_.pre_tokenizer = "default";
        constexpr float of_no_piece = -10000;
        made_.scores.assign(static_cast<std::size_t>(rows_), of_no_piece);
        const TokenizerFile* const pieces = find_file(parts_, "tokenizer.model");
        if (pieces != nullptr && !is_tiktoken_file(pieces->content))
            add_pieces(SentencePieceFile::parse(pieces->content, where(pieces->name)));
        else
            add_ranks(tokenizer_json());
    }

    void add_pieces(const SentencePieceFile& file) {
        if (file.algorithm != SentencePieceFile::Algorithm::bpe)
            throw Error(fmt::format("{} is not a BPE model, as llama.cpp's tokenizer for Llama is.",
                                    where("tokenizer.model")),
                        no_tokenizer_remedy);
        const std::size_t count = std::min(file.pieces.size(), made_.tokens.size());
        for (std::size_t i = 0; i < count; ++i) {
            set(static_cast<TokenId>(i), file.pieces[i].text, static_cast<TokenType>(file.pieces[i].type));
            made_.scores[i] = file.pieces[i].score;
        }
    }

    /// A piece is as good as the first merge that makes it.
    void add_ranks(const TokenizerJson& file) {
        if (!file.components.value("model", Json::object()).value("byte_fallback", false))
            throw Error(
                fmt::format("{} has no tokens for bytes, which llama.cpp's tokenizer for Llama needs.",
                            where("tokenizer.json")),
                no_tokenizer_remedy);
        std::ranges::fill(made_.scores, 0.0f);
        for (std::size_t i = file.merges.size(); i-- > 0;)
            if (const auto id = file.vocabulary.find(file.merges[i].left + file.merges[i].right);
                id && *id < rows_)
                made_.scores[static_cast<std::size_t>(*id)] = -static_cast<float>(file.merges[i].rank);
        for (std::size_t i = 0; i < made_.tokens.size(); ++i)
            if (is_byte_token(made_.tokens[i])) made_.types[i] = static_cast<std::int32_t>(TokenType::byte);
    }

    void add_added_tokens() {
        for (const auto& [id, token] : parts_.added.by_id())
            if (id < rows_)
                set(id, token.content, token.special ? TokenType::control : TokenType::user_defined);
        if (!is_byte_level_ && parts_.unk && *parts_.unk < rows_)
            made_.types[static_cast<std::size_t>(*parts_.unk)] =
                static_cast<std::int32_t>(TokenType::unknown);
    }

    void find_space_prefix() {
        if (is_byte_level_) return;
        const PipelineTokenizer tokenizer(std::move(parts_));
        std::vector<TokenId> ids;
        tokenizer.encode("a", SpecialTokens::omit, ids);
        made_.add_space_prefix = !ids.empty() && ids[0] < rows_ &&
                                 made_.tokens[static_cast<std::size_t>(ids[0])].starts_with(word_marker);
    }

    void add_chat_template() {
        if (const fs::path jinja = folder_ / "chat_template.jinja"; fs::exists(jinja)) {
            made_.chat_template = read_text_file(jinja);
            return;
        }
        const fs::path config = folder_ / "tokenizer_config.json";
        if (!fs::exists(config)) return;
        const Json fields = read_json_file(config);
        const Json found = fields.is_object() ? fields.value("chat_template", Json()) : Json();
        if (found.is_string()) made_.chat_template = found.get<std::string>();
        if (!found.is_array()) return;
        for (const Json& entry : found)  // several, by name
            if (entry.is_object() && entry.value("name", Json()) == "default" &&
                entry.value("template", Json()).is_string())
                made_.chat_template = entry["template"].get<std::string>();
    }

    const fs::path& folder_;
    std::int64_t rows_;
    TokenizerParts parts_;
    bool is_byte_level_;
    GgufVocabulary& made_;
};

}  // namespace

GgufVocabulary GgufVocabulary::of_folder(const fs::path& folder, std::int64_t rows) {
    GgufVocabulary made;
    if (fs::exists(folder / "tokenizer.json") || fs::exists(folder / "tokenizer.model"))
        VocabularyMaker(folder, rows, made).run();
    return made;
}

void GgufVocabulary::write_to(GgufHeader& header) const {
    header.text("tokenizer.ggml.model", model);
    if (!tokens.empty()) {
        header.text("tokenizer.ggml.pre", pre_tokenizer);
        header.texts("tokenizer.ggml.tokens", tokens);
        header.numbers("tokenizer.ggml.token_type", types);
    }
    if (!scores.empty()) header.reals("tokenizer.ggml.scores", scores);
    if (!merges.empty()) header.texts("tokenizer.ggml.merges", merges);
    const auto id = [&](std::string_view key, std::optional<std::int64_t> value) {
        if (value) header.number(key, *value);
    };
    id("tokenizer.ggml.bos_token_id", bos);
    id("tokenizer.ggml.eos_token_id", eos);
    id("tokenizer.ggml.unknown_token_id", unknown);
    id("tokenizer.ggml.padding_token_id", padding);
    const auto boolean = [&](std::string_view key, std::optional<bool> value) {
        if (value) header.boolean(key, *value);
    };
    boolean("tokenizer.ggml.add_bos_token", add_bos);
    boolean("tokenizer.ggml.add_eos_token", add_eos);
    boolean("tokenizer.ggml.add_space_prefix", add_space_prefix);
    if (!chat_template.empty()) header.text("tokenizer.chat_template", chat_template);
}

}  // namespace drover
