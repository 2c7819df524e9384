#include "text/pipeline_tokenizer.h"

#include <fmt/format.h>

#include "core/error.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace drover {
namespace {

constexpr std::size_t large_text = 1 << 20;  // its workspace would be many times its size

std::string without_guards(std::string_view text) {
    std::string rest(text);
    for (auto at = rest.find(token_guard); at != std::string::npos; at = rest.find(token_guard, at))
        rest.erase(at, token_guard.size());
    return rest;
}

void check_utf8(std::string_view text) {
    const std::size_t valid = valid_utf8_prefix(text);
    if (valid != text.size())
        throw Error(
            fmt::format("The text is not UTF-8: byte {} of {} begins no character.", valid, text.size()),
            "Convert the data to UTF-8.");
}

}  // namespace

std::optional<TokenId> TokenizerParts::find(std::string_view token) const {
    const auto id = added.find(token);
    return id ? id : model->vocabulary().find(token);
}

struct PipelineTokenizer::Workspace {
    EncodeScratch scratch;
    Pieces pieces;
};

/// Reusable workspaces: as many as threads have ever encoded at the same time. A thread returns to the place
/// it used last, whose words are already in its processor's cache.
struct PipelineTokenizer::Shelf {
    struct Place {
        std::atomic<bool> taken = false;
        std::unique_ptr<Workspace> workspace;
    };
    std::array<Place, 128> places;
};

class PipelineTokenizer::Loan {
  public:
    explicit Loan(Shelf& shelf) {
        static thread_local std::size_t last_place = 0;
        for (std::size_t i = 0; i < shelf.places.size(); ++i) {
            const std::size_t index = (last_place + i) % shelf.places.size();
            Shelf::Place& place = shelf.places[index];
            if (place.taken.exchange(true, std::memory_order_acquire)) continue;
            place_ = &place;
            last_place = index;
            if (!place.workspace) place.workspace = std::make_unique<Workspace>();
            return;
        }
        spare_ = std::make_unique<Workspace>();  // more threads at once than places
    }
    ~Loan() {
        if (!place_) return;
        if (discarded_) place_->workspace.reset();
        place_->taken.store(false, std::memory_order_release);
    }
    Loan(const Loan&) = delete;
    /// Frees the workspace afterwards.
    void discard() { discarded_ = true; }
    Workspace& workspace() { return place_ ? *place_->workspace : *spare_; }

  private:
    Shelf::Place* place_ = nullptr;
    bool discarded_ = false;
    std::unique_ptr<Workspace> spare_;
};

PipelineTokenizer::PipelineTokenizer(TokenizerParts parts)
    : parts_(std::move(parts)), shelf_(std::make_unique<Shelf>()) {
    parts_.added.prepare(parts_.normalizer.get());
}

PipelineTokenizer::~PipelineTokenizer() = default;

void Tokenizer::encode_guarded(std::string_view text, std::vector<TokenId>& ids) const {
    encode(without_guards(text), SpecialTokens::omit, ids);
}

void PipelineTokenizer::encode(std::string_view text, SpecialTokens special,
                               std::vector<TokenId>& ids) const {
    const bool adds = special == SpecialTokens::add;
    if (adds) ids.insert(ids.end(), parts_.around.before.begin(), parts_.around.before.end());
    encode_between(text, Guards::none, ids);
    if (adds) ids.insert(ids.end(), parts_.around.after.begin(), parts_.around.after.end());
}

void PipelineTokenizer::encode_guarded(std::string_view text, std::vector<TokenId>& ids) const {
    encode_between(text, Guards::leave_out, ids);
}

void PipelineTokenizer::encode_between(std::string_view text, Guards guards,
                                       std::vector<TokenId>& ids) const {
    check_utf8(text);
    Loan loan(*shelf_);
    if (text.size() > large_text) loan.discard();
    parts_.added.cut(text, AddedTokens::Stage::raw, [&](const AddedTokens::Part& part) {
        if (part.id)
            ids.push_back(*part.id);
        else
            encode_segment(part.text, part.text.data() == text.data(), guards, loan.workspace(), ids);
    });
}

void PipelineTokenizer::encode_segment(std::string_view segment, bool at_start, Guards guards,
                                       Workspace& workspace, std::vector<TokenId>& ids) const {
    if (parts_.normalizer) {
        std::string& normalized = workspace.scratch.normalized;
        normalized = segment;
        parts_.normalizer->apply(normalized);
        segment = normalized;
    }
    parts_.added.cut(segment, AddedTokens::Stage::normalized, [&](const AddedTokens::Part& part) {
        const bool starts = at_start && part.text.data() == segment.data();
        if (part.id)
            ids.push_back(*part.id);
        else if (guards == Guards::none)
            encode_plain(part.text, starts, workspace, ids);
        else
            encode_plain(without_guards(part.text), starts, workspace, ids);
    });
}

void PipelineTokenizer::encode_plain(std::string_view text, bool at_start, Workspace& workspace,
                                     std::vector<TokenId>& ids) const {
    if (!parts_.pre_tokenizer) {
        parts_.model->encode(text, workspace.scratch, ids);
        return;
    }
    // A list of pieces is several times as large as its text.
    constexpr std::size_t at_once = 1 << 18;
    for (std::string_view rest = text; !rest.empty();) {
        const std::size_t end =
            rest.size() <= 2 * at_once ? rest.size() : parts_.pre_tokenizer->find_cut(rest, at_once);
        workspace.pieces.start_with(rest.substr(0, end), at_start && rest.data() == text.data());
        parts_.pre_tokenizer->apply(workspace.pieces);
        for (const Pieces::Piece& piece : workspace.pieces.list)
            parts_.model->encode(piece.text, workspace.scratch, ids);
        rest.remove_prefix(end);
    }
}

void PipelineTokenizer::encode_aligned(std::string_view text, SpecialTokens special,
                                       std::vector<TokenId>& ids, std::vector<Span>& spans) const {
    check_utf8(text);
    Loan loan(*shelf_);
    if (text.size() > large_text) loan.discard();
    const bool adds = special == SpecialTokens::add;
    spans.clear();
    if (adds) {
        ids.insert(ids.end(), parts_.around.before.begin(), parts_.around.before.end());
        spans.assign(parts_.around.before.size(), Span{0, 0});
    }
    parts_.added.cut(text, AddedTokens::Stage::raw, [&](const AddedTokens::Part& part) {
        const auto begin = static_cast<std::size_t>(part.text.data() - text.data());
        if (part.id) {
            ids.push_back(*part.id);
            spans.push_back({begin, begin + part.text.size()});
        } else {
            align_segment(part.text, begin, begin == 0, loan.workspace(), ids, spans);
        }
    });
    if (parts_.around.trims_spaces)
        for (std::size_t i = 0; i < spans.size(); ++i)
            trim_span(ids[ids.size() - spans.size() + i], i == 0, spans[i]);
    if (adds) {
        ids.insert(ids.end(), parts_.around.after.begin(), parts_.around.after.end());
        spans.resize(spans.size() + parts_.around.after.size(), Span{0, 0});
    }
}

void PipelineTokenizer::align_segment(std::string_view segment, std::size_t offset, bool at_start,
                                      Workspace& workspace, std::vector<TokenId>& ids,
                                      std::vector<Span>& spans) const {
    AlignedText text = AlignedText::unchanged(segment, offset);
    if (parts_.normalizer) parts_.normalizer->apply(text);
    parts_.added.cut(text.text, AddedTokens::Stage::normalized, [&](const AddedTokens::Part& part) {
        const auto begin = static_cast<std::size_t>(part.text.data() - text.text.data());
        const std::size_t end = begin + part.text.size();
        if (part.id) {
            ids.push_back(*part.id);
            spans.push_back(text.source(begin, end));
            return;
        }
        AlignedText plain{std::string(part.text),
                          {text.from.begin() + static_cast<std::ptrdiff_t>(begin),
                           text.from.begin() + static_cast<std::ptrdiff_t>(end)}};
        AlignedRewriter rewriter(plain);
        for (std::size_t at = plain.text.find(token_guard); at != std::string::npos;
             at = plain.text.find(token_guard, at + token_guard.size())) {
            rewriter.keep_to(at);
            rewriter.drop_to(at + token_guard.size());
        }
        rewriter.finish();
        align_plain(plain, at_start && begin == 0, workspace, ids, spans);
    });
}

void PipelineTokenizer::align_plain(const AlignedText& text, bool at_start, Workspace& workspace,
                                    std::vector<TokenId>& ids, std::vector<Span>& spans) const {
    if (text.text.empty()) return;
    std::vector<Span> own;
    if (!parts_.pre_tokenizer) {
        parts_.model->encode(text.text, workspace.scratch, ids, own);
        for (const Span& span : own)
            spans.push_back(span.begin < span.end ? text.source(span.begin, span.end) : Span{0, 0});
        return;
    }
    Pieces& pieces = workspace.pieces;
    pieces.start_with(text.text, at_start, true);
    parts_.pre_tokenizer->apply(pieces);
    for (const Pieces::Piece& piece : pieces.list) {
        own.clear();
        parts_.model->encode(piece.text, workspace.scratch, ids, own);
        for (const Span& span : own) {
            if (span.begin == span.end) {
                spans.push_back({0, 0});
                continue;
            }
            const Span first = pieces.origin(piece, span.begin), last = pieces.origin(piece, span.end - 1);
            spans.push_back(text.source(first.begin, last.end));
        }
    }
}

void PipelineTokenizer::trim_span(TokenId id, bool is_first, Span& span) const {
    const bool added = parts_.added.token(id) != nullptr;
    const std::string text =
        added ? parts_.added.token(id)->content
              : alphabet_to_bytes(parts_.model->vocabulary().token(id).value_or("")).value_or(std::string());
    const std::size_t blanks = text.find_first_not_of(' ');
    std::size_t before = blanks == std::string::npos ? text.size() : blanks;
    const std::size_t after =
        blanks == std::string::npos ? text.size() : text.size() - 1 - text.find_last_not_of(' ');
    if (before > 0) {
        if ((is_first || span.begin == 0) && parts_.around.adds_prefix_space) --before;
        span.begin = std::min(span.begin + before, span.end);
    }
    if (after > 0 && span.end >= after) span.end = std::max(span.end - after, span.begin);
}

std::vector<std::string> PipelineTokenizer::special_tokens() const {
    std::vector<std::string> contents;
    for (const auto& [id, token] : parts_.added.by_id())
        if (token.special) contents.push_back(token.content);
    return contents;
}

std::string PipelineTokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (const TokenId id : ids) {
        std::string_view token;
        if (const AddedToken* added = parts_.added.token(id)) {
            token = added->content;
        } else if (const auto own = parts_.model->vocabulary().token(id)) {
            token = *own;
        } else {
            continue;
        }
        if (!skip_special || !parts_.added.is_special(token)) tokens.emplace_back(token);
    }
    std::string text;
    if (parts_.decoder) {
        parts_.decoder->apply(tokens);
        for (const std::string& token : tokens) text += token;
    } else {
        for (std::size_t i = 0; i < tokens.size(); ++i) text.append(i > 0 ? " " : "").append(tokens[i]);
    }
    return text;
}

std::int64_t PipelineTokenizer::size() const {
    auto count = static_cast<std::int64_t>(parts_.model->vocabulary().size());
    for (const auto& [id, token] : parts_.added.by_id())
        if (!parts_.model->vocabulary().find(token.content)) ++count;
    return count;
}

TokenizerParts parts_of(TokenizerJson description, std::string_view where) {
    const JsonFields file(description.components, std::string(where));
    const auto place = [&](std::string_view key) { return fmt::format("{}, {}", where, key); };
    const auto component = [&](std::string_view key) {
        const Json* found = file.find(key);
        return found ? *found : Json();
    };

    const JsonFields model(file.at("model"), place("model"));
    const std::string type = model.optional_text("type").value_or("BPE");  // the oldest files have no type
    if (type != "BPE") unsupported_component(model, type);
    if (model.find("vocab")) model.wrong("vocab", "an object");
    if (model.find("merges")) model.wrong("merges", "a list");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
        if (!model.optional_text(key).value_or("").empty())
            throw Error(fmt::format("{} has a \"{}\", which is not supported.", model.where(), key),
                        "Use a tokenizer of the Llama or GPT-2 kind.");
    if (const Json* dropout = model.find("dropout"); dropout && *dropout != 0)
        throw Error(fmt::format("{} has \"dropout\": its ids would be random.", model.where()),
                    "Set it to null in the file.");

    BpeModel::Options options{.fuse_unknown = model.flag("fuse_unk", false),
                              .byte_fallback = model.flag("byte_fallback", false),
                              .ignore_merges = model.flag("ignore_merges", false)};
    TokenizerParts parts;
    parts.normalizer = read_normalizer(component("normalizer"), place("normalizer"));
    parts.pre_tokenizer =
        read_pre_tokenizer(component("pre_tokenizer"), place("pre_tokenizer"), !options.byte_fallback);
    options.byte_level = parts.pre_tokenizer && parts.pre_tokenizer->yields_bytes();
    if (const auto unknown = model.optional_text("unk_token")) {
        options.unknown = description.vocabulary.find(*unknown);
        // Hugging Face's library fails on an unknown character; with bytes there are none.
        if (!options.unknown && !options.byte_fallback && !options.byte_level)
            throw Error(
                fmt::format("{}: the unk_token \"{}\" is not in the vocabulary.", model.where(), *unknown),
                "Fetch the file again.");
    }
    parts.around = read_post_processor(component("post_processor"), place("post_processor"));
    parts.decoder = read_decoder(component("decoder"), place("decoder"));
    parts.model =
        std::make_unique<BpeModel>(std::move(description.vocabulary), description.merges, options, where);
    if (file.find("added_tokens"))
        for (const Json& token : file.list("added_tokens"))
            parts.added.add(read_added_token(JsonFields(token, place("added_tokens")), false),
                            parts.model->vocabulary());
    return parts;
}

}  // namespace drover
