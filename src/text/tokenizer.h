#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace drover {

using TokenId = std::int32_t;

/// Whether the tokens that a tokenizer places around a text (BOS, and EOS if configured) are added.
enum class SpecialTokens { add, omit };

/// See Tokenizer::encode_guarded(): U+FDD0, which Unicode reserves for the use inside of programs.
inline constexpr std::string_view token_guard = "\xEF\xB7\x90";

/// A tokenizer file as in a model folder.
struct TokenizerFile {
    std::string name;
    std::string content;
};

/// Text to token ids and back, with the same results as Hugging Face's tokenizer for the same files.
/// Immutable after loading: every method may be called from several threads at once.
class Tokenizer {
  public:
    virtual ~Tokenizer() = default;

    /// Appends the ids of `text` to `ids`. Error when `text` is not UTF-8.
    virtual void encode(std::string_view text, SpecialTokens special, std::vector<TokenId>& ids) const = 0;
    /// The text of `ids`; with `skip_special`, tokens marked as special are left out. Ids without a token, which
    /// a model makes whose vocabulary is larger than the tokenizer's, have no text.
    virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;

    /// Number of ids, including added tokens: Python's len(tokenizer).
    virtual std::int64_t size() const = 0;
    virtual std::optional<TokenId> bos() const = 0;
    virtual std::optional<TokenId> eos() const = 0;
    virtual std::optional<TokenId> pad() const = 0;
    virtual std::optional<TokenId> unk() const = 0;
    /// model_max_length of tokenizer_config.json; 1e30 if there is none, as in Hugging Face.
    virtual double model_max_length() const = 0;
    /// Changes whenever a text could get different ids: a hash, in hexadecimal, of everything that encode
    /// uses.
    virtual std::string fingerprint() const = 0;
    /// The contents of the tokens that are marked as special.
    virtual std::vector<std::string> special_tokens() const { return {}; }
    /// Like encode without the tokens around a text, but the character `token_guard` is left out of `text`,
    /// and no added token is recognized across it: "<" + token_guard + "/s>" is the text "</s>".
    virtual void encode_guarded(std::string_view text, std::vector<TokenId>& ids) const;
    /// Like encode_guarded (or encode), and replaces `spans` by the bytes of `text` that each of the added
    /// ids stands for: the offsets of Hugging Face's tokenizers, in bytes. Tokens around a text stand for
    /// none.
    virtual void encode_aligned(std::string_view text, SpecialTokens special, std::vector<TokenId>& ids,
                                std::vector<Span>& spans) const = 0;
    /// The id of a token of the vocabulary or of an added one.
    virtual std::optional<TokenId> find(std::string_view token) const = 0;
    /// Whether an id is that of an added token.
    virtual bool is_added(TokenId id) const = 0;
    /// The files from which Hugging Face's libraries and load_tokenizer can recreate this tokenizer.
    virtual std::vector<TokenizerFile> files() const { return {}; }
};

/// Which rules apply where versions of transformers differ (docs/tokenizers.md lists these places).
enum class TransformersRules { v4, v5 };

/// Loads the tokenizer of a model folder, or a tokenizer.json, a SentencePiece tokenizer.model or a tiktoken
/// rank file. Error, naming the file and the component, if something in it is not supported.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path,
                                                TransformersRules rules = TransformersRules::v5);

/// The folder of a tokenizer's chat templates beside the default one.
inline constexpr std::string_view more_templates_folder = "additional_chat_templates";
/// The templates (*.jinja) in a tokenizer's folder of them, sorted; none if there is no such folder.
std::vector<std::filesystem::path> more_template_files(const std::filesystem::path& folder);

/// Writes the tokenizer's files into `folder`, which must exist.
void save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& folder);

}  // namespace drover
