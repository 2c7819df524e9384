#pragma once

#include <array>
#include <atomic>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/token_model.h"
#include "text/tokenizer_json.h"

namespace drover {

/// All parts of a tokenizer. Only the model is required.
struct TokenizerParts {
    AddedTokens added;
    std::unique_ptr<Normalizer> normalizer;
    std::unique_ptr<PreTokenizer> pre_tokenizer;
    std::unique_ptr<TokenModel> model;
    Surroundings around;
    std::unique_ptr<Decoder> decoder;

    std::optional<TokenId> bos, eos, pad, unk;
    double model_max_length = 1e30;
    std::string fingerprint;
    std::vector<TokenizerFile> files;

    /// The id of an added token or of one in the model.
    std::optional<TokenId> find(std::string_view token) const;
};

/// The parts that a tokenizer.json describes. Error names what is not supported.
TokenizerParts parts_of(TokenizerJson description, std::string_view where);

/// What load_tokenizer() makes a tokenizer of, for those who need its vocabulary.
TokenizerParts load_tokenizer_parts(const std::filesystem::path& path, TransformersRules rules);

/// A tokenizer that works like Hugging Face's library: added tokens are cut out, the rest is normalized and
/// cut into pieces, and the model encodes each piece.
class PipelineTokenizer : public Tokenizer {
  public:
    explicit PipelineTokenizer(TokenizerParts parts);
    ~PipelineTokenizer() override;

    void encode(std::string_view text, SpecialTokens special, std::vector<TokenId>& ids) const override;
    void encode_guarded(std::string_view text, std::vector<TokenId>& ids) const override;
    void encode_aligned(std::string_view text, SpecialTokens special, std::vector<TokenId>& ids,
                        std::vector<Span>& spans) const override;
    std::optional<TokenId> find(std::string_view token) const override { return parts_.find(token); }
    bool is_added(TokenId id) const override { return parts_.added.token(id) != nullptr; }
    std::string decode(std::span<const TokenId> ids, bool skip_special) const override;
    std::int64_t size() const override;
    std::optional<TokenId> bos() const override { return parts_.bos; }
    std::optional<TokenId> eos() const override { return parts_.eos; }
    std::optional<TokenId> pad() const override { return parts_.pad; }
    std::optional<TokenId> unk() const override { return parts_.unk; }
    double model_max_length() const override { return parts_.model_max_length; }
    std::string fingerprint() const override { return parts_.fingerprint; }
    std::vector<TokenizerFile> files() const override { return parts_.files; }
    std::vector<std::string> special_tokens() const override;

  private:
    struct Workspace;
    /// A workspace borrowed for one call.
    class Loan;

    /// Whether a text has guards: see encode_guarded().
    enum class Guards { none, leave_out };
    void encode_between(std::string_view text, Guards guards, std::vector<TokenId>& ids) const;
    void encode_segment(std::string_view segment, bool at_start, Guards guards, Workspace& workspace,
                        std::vector<TokenId>& ids) const;
    /// Encodes text without added tokens; `at_start` of the whole text.
    void encode_plain(std::string_view text, bool at_start, Workspace& workspace,
                      std::vector<TokenId>& ids) const;

    /// encode_segment with spans in the text that `segment` is from, where it begins at `offset`.
    void align_segment(std::string_view segment, std::size_t offset, bool at_start, Workspace& workspace,
                       std::vector<TokenId>& ids, std::vector<Span>& spans) const;
    /// encode_plain with the spans of what `text` was made from.
    void align_plain(const AlignedText& text, bool at_start, Workspace& workspace, std::vector<TokenId>& ids,
                     std::vector<Span>& spans) const;
    /// Takes the spaces at the ends of a token out of its span.
    void trim_span(TokenId id, bool is_first, Span& span) const;

    TokenizerParts parts_;
    struct Shelf;
    std::unique_ptr<Shelf> shelf_;
};

}  // namespace drover
