#include "train/loop/text_stream_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/batch.h"
#include "core/error.h"
#include "data/sampling/mixture.h"
#include "data/sampling/prefetcher.h"

namespace drover {
namespace {

constexpr std::size_t batches_ahead = 4;

/// Text in blocks.
class TextBlocks final : public TokenRowStream {
  public:
    TextBlocks(const TextStreamOptions& options, std::size_t dataset, std::size_t threads)
        : stream_(*options.datasets[dataset], options.tokenizer, endless(options.packing), threads) {}

    bool next(TokenRow& row) override {
        row.labels.clear();
        row.documents.clear();
        return stream_.next(row.ids);
    }

  private:
    static PackingOptions endless(PackingOptions packing) {
        packing.max_rows.reset();
        return packing;
    }

    TokenStream stream_;
};

/// The rows of one epoch.
class EpochBlocks {
  public:
    explicit EpochBlocks(const TextStreamOptions& options)
        : options_(options), streams_(options.datasets.size()) {
        if (!options.weights.empty()) dealing_.emplace(options.weights);
    }

    bool next(TokenRow& block) {
        if (options_.packing.max_rows && given_ >= *options_.packing.max_rows) return false;
        if (dealing_)
            next_of(dealing_->draw(given_).dataset, block);
        else if (!next_in_order(block))
            return false;
        ++given_;
        return true;
    }

  private:
    void open(std::size_t dataset) {
        const std::size_t threads = std::max<std::size_t>(1, default_tokenize_threads() / streams_.size());
        streams_[dataset] = options_.examples.empty()
                                ? std::make_unique<TextBlocks>(options_, dataset, threads)
                                : options_.examples[dataset](threads);
    }

    void next_of(std::size_t dataset, TokenRow& block) {
        if (streams_[dataset] && streams_[dataset]->next(block)) return;
        streams_[dataset].reset();
        open(dataset);
        if (!streams_[dataset]->next(block))
            throw Error(
                options_.examples.empty()
                    ? fmt::format("Dataset {} of the mixture is too short for one block of {} tokens.",
                                  dataset + 1, options_.packing.block_size)
                    : fmt::format("Dataset {} of the mixture has no example to learn from.", dataset + 1),
                options_.examples.empty() ? "Leave it out, or use a smaller --block_size."
                                          : "Leave it out, or check its columns.");
    }

    bool next_in_order(TokenRow& block) {
        for (; current_ < streams_.size(); ++current_) {
            if (!streams_[current_]) open(current_);
            if (streams_[current_]->next(block)) return true;
            streams_[current_].reset();
        }
        return false;
    }

    const TextStreamOptions& options_;
    std::optional<MixtureDealing> dealing_;
    std::vector<std::unique_ptr<TokenRowStream>> streams_;  ///< null: not begun, or ended
    std::size_t current_ = 0;
    std::int64_t given_ = 0;
};

/// Makes batches one by one; lives on the prefetcher's thread.
class BatchMaker {
  public:
    BatchMaker(const TextStreamOptions& options, BatchPosition start)
        : options_(options), collator_(options.collator), position_{start.epoch, 0}, to_pass_(start.step) {}

    std::optional<Batch> operator()() {
        std::vector<TokenRow> rows;
        while (next(rows)) {
            const BatchPosition position = position_;
            ++position_.step;
            if (to_pass_ > 0) {
                --to_pass_;
                continue;
            }
            ++given_batches_;
            given_samples_ += batches_->rows_of_all();
            Batch batch = collate(rows);
            batch.position = position;
            batch.filler_rows = batches_->filler();
            return take_part(std::move(batch), options_.part);
        }
        return std::nullopt;
    }

    // Only valid once the end was reached.
    std::int64_t given_batches() const { return given_batches_; }
    std::int64_t given_samples() const { return given_samples_; }  ///< to all ranks

  private:
    /// The rows of the next batch, from the next epoch if this one is over.
    bool next(std::vector<TokenRow>& rows) {
        if (!batches_) open_epoch();
        if (batches_->next(rows)) return true;
        if (position_.step == 0 || !has_targets_) nothing_to_train_on();
        if (options_.end == StreamEnd::after_one_epoch) return false;
        position_ = {position_.epoch + 1, 0};
        open_epoch();
        return batches_->next(rows);
    }

    void open_epoch() {
        const auto blocks = std::make_shared<EpochBlocks>(options_);
        batches_.emplace(
            [this, blocks](TokenRow& row) {
                if (!blocks->next(row)) return false;
                check_vocabulary(row.ids);
                has_targets_ = has_targets_ || has_target(row.labels);
                return true;
            },
            options_.dealing);
    }

    Batch collate(std::vector<TokenRow>& rows) const {
        std::vector<std::vector<TokenId>> ids, labels;
        std::vector<std::vector<std::int32_t>> documents;
        for (TokenRow& row : rows) {
            ids.push_back(std::move(row.ids));
            if (options_.examples.empty()) continue;
            labels.push_back(std::move(row.labels));
            documents.push_back(std::move(row.documents));
        }
        return collator_.collate(ids, labels, documents);
    }

    /// Whether a row teaches anything. Plain text has no labels: each token but the first is a target.
    bool has_target(const std::vector<TokenId>& labels) const {
        if (options_.examples.empty()) return true;
        return labels.size() > 1 &&
               std::any_of(labels.begin() + 1, labels.end(), [](TokenId label) { return label != no_label; });
    }

    void check_vocabulary(const std::vector<TokenId>& row) const {
        const TokenId largest = *std::max_element(row.begin(), row.end());
        if (static_cast<std::int64_t>(largest) < options_.vocab_size) return;
        throw Error(fmt::format("The text has the token {}, but the model's vocabulary ends at {}.", largest,
                                options_.vocab_size - 1),
                    "Use the tokenizer that belongs to the model.");
    }

    [[noreturn]] void nothing_to_train_on() const {
        if (!options_.examples.empty())
            throw Error("In the dataset nothing is to be learned.",
                        "Check the input files and their columns, or raise --max_length.");
        throw Error(fmt::format("The text is too short for one batch of blocks of {} tokens.",
                                options_.packing.block_size),
                    "Use more text, a smaller --block_size, or --packing lossless.");
    }

    const TextStreamOptions& options_;
    CausalCollator collator_;
    BatchPosition position_;
    std::int64_t to_pass_;
    std::int64_t given_batches_ = 0, given_samples_ = 0;
    bool has_targets_ = false;  // of the rows so far
    std::optional<StreamBatches> batches_;
};

}  // namespace

class TextStreamData::Stream final : public BatchStream {
  public:
    Stream(TextStreamData& data, BatchPosition start)
        : data_(data),
          maker_(data.options_, start),
          prefetcher_(batches_ahead, [this] { return maker_(); }) {}

    std::optional<Batch> next() override {
        std::optional<Batch> batch = prefetcher_.next();
        if (!batch) {
            data_.samples_ = maker_.given_samples();
            data_.batches_per_epoch_ = maker_.given_batches();
        }
        return batch;
    }

  private:
    TextStreamData& data_;
    BatchMaker maker_;
    Prefetcher<Batch> prefetcher_;  // last: its thread uses the maker
};

TextStreamData::TextStreamData(TextStreamOptions options) : options_(std::move(options)) {
    require(!options_.examples.empty() || options_.packing.packing != Packing::none,
            "a stream of rows whose lengths are not known");
    require(options_.examples.empty() || options_.examples.size() == options_.datasets.size(),
            "a stream of examples, from every dataset");
    require(!options_.datasets.empty() &&
                (options_.weights.empty() || options_.weights.size() == options_.datasets.size()),
            "a stream of datasets, with a weight for each or for none");
}

std::unique_ptr<BatchStream> TextStreamData::open(BatchPosition start) {
    return std::make_unique<Stream>(*this, start);
}

}  // namespace drover
