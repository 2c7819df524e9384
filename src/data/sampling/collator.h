#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/batch.h"
#include "text/tokenizer.h"

namespace drover {

struct CollatorOptions {
    TokenId pad_id = 0;
    /// Every label equal to pad_id becomes −100, as in DataCollatorForLanguageModeling: when the pad token is
    /// EOS, real EOS targets are lost too. If false, only padding has no label.
    bool ignore_every_pad_id = true;
    std::int64_t pad_to_multiple_of = 1;
    /// The first label of a sequence, which nothing predicts, becomes −100, as in TRL's collator without
    /// padding.
    bool drops_first_labels = false;
};

/// Right-pads rows to the longest one and labels them.
class CausalCollator {
  public:
    /// UsageError if the options are invalid.
    explicit CausalCollator(CollatorOptions options);

    /// Labels are made from the ids, except for rows with their own `labels` (as many as ids), which are used
    /// unchanged. A row with `documents`, the lengths of its parts, is as many sequences; others are one.
    Batch collate(std::span<const std::vector<TokenId>> rows,
                  std::span<const std::vector<TokenId>> labels = {},
                  std::span<const std::vector<std::int32_t>> documents = {}) const;

  private:
    CollatorOptions options_;
};

/// The id to pad with: the tokenizer's, or EOS if `eos_pads` (which then overrides the tokenizer's own).
/// Error if the tokenizer has no such token.
TokenId choose_pad_id(const Tokenizer& tokenizer, bool eos_pads);

}  // namespace drover
