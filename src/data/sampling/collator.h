#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace drover {

/// The label of a position at which nothing is to be predicted, as in Hugging Face.
inline constexpr std::int32_t no_label = -100;

/// A rectangle of ids with labels in Hugging Face's convention (aligned with the ids; the model shifts).
struct LabelledBatch {
    std::int64_t rows = 0;
    std::int64_t row_length = 0;
    std::vector<std::int32_t> ids;      ///< [rows·row_length], right-padded
    std::vector<std::int32_t> labels;   ///< the ids; −100 is no target
    std::vector<std::int32_t> lengths;  ///< tokens per row; attention_mask is 1 on them and 0 after
};

struct CollatorOptions {
    TokenId pad_id = 0;
    /// Every label equal to pad_id becomes −100, as DataCollatorForLanguageModeling does it: when the pad
    /// token is EOS, real EOS targets are lost too. Otherwise only the padding has no label.
    bool ignore_every_pad_id = true;
    std::int64_t pad_to_multiple_of = 1;
    /// Ascending row lengths; a batch is padded to the smallest one that holds it. A longer batch adds its
    /// own length. Fewer shapes mean fewer plans. Empty: no buckets.
    std::vector<std::int64_t> buckets;
};

/// Right-pads rows to the longest one and labels them.
class CausalCollator {
  public:
    /// UsageError when the options make no sense.
    explicit CausalCollator(CollatorOptions options);

    /// Labels are made from the ids, but for rows that have `labels` of their own (as many as ids); those
    /// are taken as they are.
    LabelledBatch collate(std::span<const std::vector<TokenId>> rows,
                          std::span<const std::vector<TokenId>> labels = {});

  private:
    std::int64_t padded_length(std::int64_t longest);

    CollatorOptions options_;
};

/// `count` lengths in equal steps up to `longest`.
std::vector<std::int64_t> uniform_buckets(std::int64_t longest, std::int64_t count);

/// The id to pad with: the tokenizer's, or that of EOS where `eos_pads` asks for it (it then wins over the
/// tokenizer's own). Error when the tokenizer has no such token.
TokenId choose_pad_id(const Tokenizer& tokenizer, bool eos_pads);

}  // namespace drover
