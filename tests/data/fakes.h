#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/content_hash.h"
#include "data/rows/row_source.h"
#include "text/tokenizer.h"

namespace drover::test {

/// Waits until a file whose modification time was set back counts as no longer being written.
inline void let_settle() {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
}

/// Bytes are ids 3 to 258, after pad (0), BOS (1) and EOS (2); a text begins with BOS.
class ByteTokenizer : public Tokenizer {
  public:
    explicit ByteTokenizer(std::int64_t size = 259) : size_(size) {}

    void encode(std::string_view text, SpecialTokens special, std::vector<TokenId>& ids) const override {
        if (special == SpecialTokens::add) ids.push_back(1);
        for (const char byte : text) ids.push_back(3 + static_cast<unsigned char>(byte));
    }
    void encode_aligned(std::string_view text, SpecialTokens special, std::vector<TokenId>& ids,
                        std::vector<Span>& spans) const override {
        spans.clear();
        if (special == SpecialTokens::add) spans.push_back({0, 0});
        encode(text, special, ids);
        for (std::size_t i = 0; i < text.size(); ++i) spans.push_back({i, i + 1});
    }
    std::optional<TokenId> find(std::string_view token) const override {
        if (token == "</s>") return 2;
        return token.size() == 1 ? std::optional(3 + static_cast<unsigned char>(token[0])) : std::nullopt;
    }
    bool is_added(TokenId id) const override { return id < 3; }
    std::string decode(std::span<const TokenId> ids, bool) const override {
        std::string text;
        for (const TokenId id : ids)
            if (id >= 3) text += static_cast<char>(id - 3);
        return text;
    }
    std::int64_t size() const override { return size_; }
    std::optional<TokenId> bos() const override { return 1; }
    std::optional<TokenId> eos() const override { return 2; }
    std::optional<TokenId> pad() const override { return 0; }
    std::optional<TokenId> unk() const override { return std::nullopt; }
    double model_max_length() const override { return 1e30; }
    std::string fingerprint() const override { return ContentHash().add(std::to_string(size_)).hex(); }

  private:
    std::int64_t size_;
};

/// Rows generated when they are read.
class MadeDataset : public RowDataset {
  public:
    using Make = std::function<std::string(std::int64_t row)>;
    MadeDataset(std::int64_t rows, Make make, std::string name = "made")
        : rows_(rows), make_(std::move(make)), name_(std::move(name)) {}

    std::unique_ptr<RowSource> open(std::int64_t first_row) const override {
        return std::make_unique<Source>(*this, first_row);
    }
    std::int64_t row_count() const override { return rows_; }
    const std::vector<std::string>& column_names() const override { return columns_; }
    const std::string& text_column() const override { return columns_[0]; }
    std::string fingerprint() const override {
        return ContentHash().add(name_).add(std::to_string(rows_)).hex();
    }
    std::string quick_fingerprint() const override { return fingerprint(); }

  private:
    class Source : public RowSource {
      public:
        Source(const MadeDataset& dataset, std::int64_t row) : dataset_(dataset), row_(row) {}
        void next(RowBatch& batch, std::size_t max_rows) override {
            batch.clear();
            while (batch.size() < max_rows && row_ < dataset_.rows_) batch.add(dataset_.make_(row_++));
        }

      private:
        const MadeDataset& dataset_;
        std::int64_t row_;
    };

    std::int64_t rows_;
    Make make_;
    std::string name_;
    std::vector<std::string> columns_{"text"};
};

/// Rows of different lengths, some of them empty.
inline MadeDataset uneven_rows(std::int64_t rows) {
    return MadeDataset(rows, [](std::int64_t row) {
        return row % 7 == 3 ? std::string() : std::to_string(row * row * 31 + 5) + " " + std::to_string(row);
    });
}

inline std::shared_ptr<const Tokenizer> byte_tokenizer(std::int64_t size = 259) {
    return std::make_shared<ByteTokenizer>(size);
}

}  // namespace drover::test
