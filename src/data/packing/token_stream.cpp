#include "data/packing/token_stream.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "data/packing/ordered_pipeline.h"

namespace drover {
namespace {

/// The item of the pipeline: consecutive rows of text of one group.
struct Piece {
    RowBatch text;
    std::vector<TokenId> ids;
    std::vector<std::size_t> ends;  ///< of each row in ids
    bool ends_group = false;
};

/// Cuts a source into pieces that do not cross groups and hold about `wanted_bytes` of text.
class PieceReader {
  public:
    PieceReader(const RowDataset& dataset, Groups groups)
        : source_(dataset.open(0)), groups_(std::move(groups)) {}

    bool operator()(Piece& piece) {
        const std::int64_t left = groups_.left_in_group(row_);
        source_->next(piece.text, static_cast<std::size_t>(std::min(left, rows_to_ask_)));
        const auto count = static_cast<std::int64_t>(piece.text.size());
        if (count == 0) return false;
        row_ += count;
        piece.ends_group = count == left;
        const auto bytes_per_row = static_cast<std::int64_t>(piece.text.bytes.size()) / count + 1;
        // Rows can suddenly become longer, so the number grows slowly and drops immediately.
        rows_to_ask_ = std::clamp<std::int64_t>(wanted_bytes / bytes_per_row, 1,
                                                std::min(2 * rows_to_ask_, rows_per_group));
        return true;
    }

  private:
    static constexpr std::int64_t wanted_bytes = std::int64_t{1} << 17;

    std::unique_ptr<RowSource> source_;
    Groups groups_;
    std::int64_t row_ = 0;
    std::int64_t rows_to_ask_ = 8;
};

/// For rows that are token ids already.
void copy_ids(Piece& piece) {
    piece.ids.resize(piece.text.bytes.size() / sizeof(TokenId));
    if (!piece.ids.empty()) std::memcpy(piece.ids.data(), piece.text.bytes.data(), piece.text.bytes.size());
    piece.ends.clear();
    for (const std::size_t end : piece.text.ends) piece.ends.push_back(end / sizeof(TokenId));
}

void tokenize(const Tokenizer& tokenizer, Piece& piece) {
    piece.ids.clear();
    piece.ends.clear();
    for (std::size_t i = 0; i < piece.text.size(); ++i) {
        tokenizer.encode(piece.text[i], SpecialTokens::add, piece.ids);
        piece.ends.push_back(piece.ids.size());
    }
}

Groups groups_for(const RowDataset& dataset, const PackingOptions& options) {
    const bool matters = options.packing == Packing::hf && options.workers > 1;
    return matters ? Groups(dataset.row_count(), options.workers) : Groups(0, 1);
}

}  // namespace

class TokenStream::State {
  public:
    State(const RowDataset& dataset, std::shared_ptr<const Tokenizer> tokenizer,
          const PackingOptions& options, std::size_t threads)
        : packer_(options.packing, options.block_size, [this](std::span<const TokenId> row) { keep(row); }),
          max_rows_(options.max_rows),
          pipeline_(
              threads,
              // std::function must be copyable, and a reader is not.
              [reader = std::make_shared<PieceReader>(dataset, groups_for(dataset, options))](Piece& piece) {
                  return (*reader)(piece);
              },
              [tokenizer = std::move(tokenizer), is_text = dataset.token_form() == nullptr](Piece& piece) {
                  if (is_text)
                      tokenize(*tokenizer, piece);
                  else
                      copy_ids(piece);
              }) {}

    bool next(std::vector<TokenId>& row) {
        if (max_rows_ && progress_.rows >= *max_rows_) return false;
        while (first_ready_ == ready_.size() && !finished_) {
            ready_.clear();
            first_ready_ = 0;
            advance();
        }
        if (first_ready_ == ready_.size()) return false;
        std::swap(row, ready_[first_ready_++]);
        ++progress_.rows;
        return true;
    }

    const TokenStreamProgress& progress() const { return progress_; }

  private:
    void keep(std::span<const TokenId> row) { ready_.emplace_back(row.begin(), row.end()); }

    /// Packs one more piece.
    void advance() {
        Piece* piece = pipeline_.next();
        if (piece == nullptr) {
            finished_ = true;
            packer_.finish();
        } else {
            const std::span<const TokenId> ids = piece->ids;
            std::size_t begin = 0;
            for (const std::size_t end : piece->ends) {
                packer_.add(ids.subspan(begin, end - begin));
                begin = end;
            }
            if (piece->ends_group) packer_.end_group();
            progress_.text_rows += static_cast<std::int64_t>(piece->text.size());
            progress_.text_bytes += static_cast<std::int64_t>(piece->text.bytes.size());
            progress_.tokens += static_cast<std::int64_t>(ids.size());
        }
        progress_.dropped = packer_.dropped();
    }

    Packer packer_;
    std::optional<std::int64_t> max_rows_;
    std::vector<std::vector<TokenId>> ready_;
    std::size_t first_ready_ = 0;
    bool finished_ = false;
    TokenStreamProgress progress_;
    OrderedPipeline<Piece> pipeline_;
};

TokenStream::TokenStream(const RowDataset& dataset, std::shared_ptr<const Tokenizer> tokenizer,
                         PackingOptions options, std::size_t threads)
    : state_(std::make_unique<State>(dataset, std::move(tokenizer), options, threads)) {}
TokenStream::~TokenStream() = default;
TokenStream::TokenStream(TokenStream&&) noexcept = default;

bool TokenStream::next(std::vector<TokenId>& row) {
    return state_->next(row);
}

const TokenStreamProgress& TokenStream::progress() const {
    return state_->progress();
}

std::size_t default_tokenize_threads() {
    return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace drover
