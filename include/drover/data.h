#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "drover/export.h"

namespace drover {
DROVER_INLINE_NAMESPACE v1 {
    /// The tokenizer of a model folder, as AutoTokenizer loads it. Cheap to copy: copies share what was
    /// loaded.
    ///
    /// ```cpp
    /// auto tokenizer = drover::Tokenizer::from_pretrained("model");
    /// tokenizer.add_special_tokens({{"pad_token", tokenizer.eos_token()}});
    /// const std::vector<std::int32_t> ids = tokenizer("To be, or not to be");
    /// const std::string text = tokenizer.decode(ids);
    /// ```
    class DROVER_EXPORT Tokenizer {
      public:
        /// A folder, a tokenizer file, or a repository in the Hugging Face cache.
        static Tokenizer from_pretrained(const std::string& model_id);

        /// The ids of a text, with the special tokens that the tokenizer adds.
        std::vector<std::int32_t> operator()(std::string_view text) const;
        std::string decode(const std::vector<std::int32_t>& ids, bool skip_special_tokens = true) const;

        /// Number of ids: Python's len(tokenizer).
        std::int64_t size() const;
        /// The token's text; throws when the tokenizer has none.
        std::string eos_token() const;
        /// {"pad_token": text}: the text must be a single token of the tokenizer, which becomes the pad
        /// token. No other key is supported.
        void add_special_tokens(const std::map<std::string, std::string>& tokens);
        /// −1: there is none.
        std::int32_t pad_token_id() const;
        std::int32_t eos_token_id() const;

        struct Parts;
        const std::shared_ptr<const Parts>& parts() const { return parts_; }

      private:
        explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
        std::shared_ptr<const Parts> parts_;
    };

    /// One row of text, as the function given to Dataset::map() sees it.
    ///
    /// ```cpp
    /// const auto tokenizer = drover::Tokenizer::from_pretrained("model");
    /// const auto data = drover::Dataset::load("quotes.jsonl").map([&](const drover::Row& row) {
    ///     return tokenizer(std::string(row["author"]) + ": " + std::string(row["quote"]));
    /// });
    /// ```
    class DROVER_EXPORT Row {
      public:
        /// The text in a column; throws when there is no such column or the value is not text. Valid until
        /// the next row.
        std::string_view operator[](std::string_view column) const;

        struct Cursor;
        explicit Row(Cursor& cursor) : cursor_(&cursor) {}

      private:
        Cursor* cursor_;
    };

    /// A row to train on: token ids and, where these are not the targets themselves, labels.
    ///
    /// ```cpp
    /// const drover::TokenRow answer{.input_ids = {12, 7, 40, 41, 2}, .labels = {-100, -100, 40, 41, 2}};
    /// ```
    struct TokenRow {
        std::vector<std::int32_t> input_ids;
        /// One for each id, at the same index (the model shifts them); −100: not a target. The collator uses
        /// them unchanged. Empty: the ids, except the pad token's.
        std::vector<std::int32_t> labels = {};
    };

    /// A dataset that a program writes itself, like torch's Dataset with __len__ and __getitem__.
    ///
    /// A Trainer reads rows on a thread of its own, ahead of the step that needs them, in any order and more
    /// than once. The rows to train on and those to evaluate on are read by two threads, possibly at the same
    /// time. So row() must be callable from any thread, and always return the same row for an index. What it
    /// throws ends train() or evaluate(). With several processes, every process has its own dataset, with
    /// the same rows.
    ///
    /// ```cpp
    /// class Countdown : public drover::TokenDataset {
    ///   public:
    ///     std::int64_t size() const override { return 100; }
    ///     drover::TokenRow row(std::int64_t index) const override {
    ///         drover::TokenRow row;
    ///         for (auto id = static_cast<std::int32_t>(index); id >= 0; --id) row.input_ids.push_back(id);
    ///         return row;
    ///     }
    ///     std::int64_t max_length() const override { return 100; }
    /// };
    /// const drover::Split rows(std::make_shared<Countdown>());
    /// ```
    class DROVER_EXPORT TokenDataset {
      public:
        virtual ~TokenDataset();

        /// Number of rows; does not change.
        virtual std::int64_t size() const = 0;
        /// 0 ≤ index < size(). A row has at least one id.
        virtual TokenRow row(std::int64_t index) const = 0;
        /// No row is longer than this; the memory of a run is planned for it. 0: not known, so that a Trainer
        /// reads every row once when it is made.
        virtual std::int64_t max_length() const;
    };

    class Dataset;

    /// One split, a Dataset of Hugging Face's library: rows of text on disk, what map() made of them, rows in
    /// memory, or a TokenDataset. Cheap to copy.
    ///
    /// ```cpp
    /// const auto rows = drover::Split::from_rows({{.input_ids = {5, 6, 7}},
    ///                                             {.input_ids = {8, 9, 2}, .labels = {-100, 9, 2}},
    ///                                             {.input_ids = {3, 4, 2}}});
    /// const auto parts = rows.train_test_split(0.3, 1);
    /// const drover::Split train = parts["train"].shuffle(7), first_two = rows.select(0, 2);
    /// const std::vector<std::int32_t> labels = rows[1].labels;
    /// ```
    class DROVER_EXPORT Split {
      public:
        /// Rows in memory. Rows without ids are left out when a Trainer uses them.
        static Split from_rows(std::vector<TokenRow> rows);
        /// The rows of a dataset written by the program.
        explicit Split(std::shared_ptr<const TokenDataset> rows);

        /// Number of rows.
        std::int64_t size() const;
        /// The ids made by map() or given to from_rows(); throws if the rows are text, or a TokenDataset's.
        const std::vector<std::vector<std::int32_t>>& input_ids() const;
        /// One row; throws if the rows are text, or there is no such row.
        TokenRow operator[](std::int64_t index) const;

        /// The rows with these indices, in this order; throws if there is no such row.
        Split select(const std::vector<std::int64_t>& indices) const;
        /// Rows [begin, end): select(range(begin, end)).
        Split select(std::int64_t begin, std::int64_t end) const;
        /// The rows in the random order that Hugging Face's library gives them for this seed.
        Split shuffle(std::uint64_t seed = 42) const;
        /// Two splits, "train" and "test", of the rows that Hugging Face's library chooses. `test_size` is a
        /// share of the rows if it is below 1, otherwise their number. Without `shuffle`, the last rows are
        /// the test's.
        Dataset train_test_split(double test_size = 0.25, std::uint64_t seed = 42, bool shuffle = true) const;

        /// The columns of the files of text, in order of first appearance; empty if the rows are not text.
        std::vector<std::string> column_names() const;
        /// Calls `read` with the index and the text of every row, in the order of the files; throws if the
        /// rows are not text.
        void for_each_row(const std::function<void(std::int64_t, const Row&)>& read) const;

        struct Parts;
        explicit Split(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
        const std::shared_ptr<const Parts>& parts() const { return parts_; }

      private:
        std::shared_ptr<const Parts> parts_;
    };

    /// The splits of a dataset, as in load_dataset.
    ///
    /// ```cpp
    /// const auto tokenizer = drover::Tokenizer::from_pretrained("model");
    /// const auto data = drover::Dataset::load("quotes.jsonl");
    /// const auto quotes = data.map([&](const drover::Row& row) { return tokenizer(row["quote"]); });
    /// // Only the quote is a target, not who said it.
    /// const auto answers = data.map([&](const drover::Row& row) {
    ///     drover::TokenRow made{.input_ids = tokenizer(std::string(row["author"]) + ":")};
    ///     made.labels.assign(made.input_ids.size(), -100);
    ///     const std::vector<std::int32_t> quote = tokenizer(row["quote"]);
    ///     for (std::vector<std::int32_t>* ids : {&made.input_ids, &made.labels})
    ///         ids->insert(ids->end(), quote.begin(), quote.end());
    ///     return made;
    /// });
    /// const std::int64_t rows = quotes["train"].size() + answers["train"].size();
    /// ```
    class DROVER_EXPORT Dataset {
      public:
        /// A file (json, jsonl, csv, txt, parquet; its only split is "train"), a folder, or a dataset in the
        /// Hugging Face cache.
        static Dataset load(const std::string& name);

        /// Calls `tokenize` with every row of text, in the order of the files, and keeps the ids in memory.
        /// Throws if a split has no text.
        Dataset map(const std::function<std::vector<std::int32_t>(const Row&)>& tokenize) const;
        /// The same for a function that also makes labels.
        Dataset map(const std::function<TokenRow(const Row&)>& tokenize) const;

        /// Throws when there is no such split.
        const Split& operator[](std::string_view split) const;
        std::vector<std::string> split_names() const;

      private:
        friend class Split;
        std::map<std::string, Split, std::less<>> splits_;
    };

    struct DataCollatorOptions {
        bool mlm = false;                     ///< masked language modelling is not supported
        std::int64_t pad_to_multiple_of = 1;  ///< row lengths are rounded up to a multiple of it
    };

    /// Pads the rows of a batch on the right with the tokenizer's pad token. Labels are the row's own, or the
    /// ids, and −100 wherever the id is the pad token's: with EOS as the pad token, real ends are not
    /// targets, as in transformers.
    ///
    /// ```cpp
    /// auto tokenizer = drover::Tokenizer::from_pretrained("model");
    /// tokenizer.add_special_tokens({{"pad_token", tokenizer.eos_token()}});
    /// const drover::DataCollatorForLanguageModeling collator(tokenizer, {.pad_to_multiple_of = 8});
    /// ```
    class DROVER_EXPORT DataCollatorForLanguageModeling {
      public:
        /// Throws when the tokenizer has no pad token, or mlm is set.
        explicit DataCollatorForLanguageModeling(Tokenizer tokenizer, DataCollatorOptions options = {});

        const Tokenizer& tokenizer() const { return tokenizer_; }
        const DataCollatorOptions& options() const { return options_; }

      private:
        Tokenizer tokenizer_;
        DataCollatorOptions options_;
    };

}  // namespace v1
}  // namespace drover
