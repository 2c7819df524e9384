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

    /// One row of a dataset.
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

    /// One split: rows on disk, or what map() made of them. Cheap to copy.
    class DROVER_EXPORT Split {
      public:
        /// Number of rows.
        std::int64_t size() const;
        /// The ids made by map(); throws before that.
        const std::vector<std::vector<std::int32_t>>& input_ids() const;

        struct Parts;
        explicit Split(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
        const std::shared_ptr<const Parts>& parts() const { return parts_; }

      private:
        std::shared_ptr<const Parts> parts_;
    };

    /// The splits of a dataset, as in load_dataset.
    class DROVER_EXPORT Dataset {
      public:
        /// A file (json, jsonl, csv, txt, parquet; its only split is "train"), a folder, or a dataset in the
        /// Hugging Face cache.
        static Dataset load(const std::string& name);

        /// Calls `tokenize` with every row, in order, and keeps the ids in memory.
        Dataset map(const std::function<std::vector<std::int32_t>(const Row&)>& tokenize) const;

        /// Throws when there is no such split.
        const Split& operator[](std::string_view split) const;
        std::vector<std::string> split_names() const;

      private:
        std::map<std::string, Split, std::less<>> splits_;
    };

    struct DataCollatorOptions {
        bool mlm = false;                     ///< masked language modelling is not supported
        std::int64_t pad_to_multiple_of = 1;  ///< row lengths are rounded up to a multiple of it
    };

    /// Pads the rows of a batch on the right with the tokenizer's pad token. Labels are the ids, and −100
    /// wherever the id is the pad token's: with EOS as the pad token, real ends are not targets, as in
    /// transformers.
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
