#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/batch.h"
#include "text/tokenizer.h"

namespace drover {

struct CollatorOptions {
    TokenId pad_id = 0;
    /// Every label equal to pad_id becomes −100, as DataCollatorForLanguageModeling does it: when the pad
    /// token is EOS, real EOS targets are lost too. Otherwise only the padding has no label.
    bool ignore_every_pad_id = true;
    std::int64_t pad_to_multiple_of = 1;
};

/// Right-pads rows to the longest one and labels them.
class CausalCollator {
  public:
    /// UsageError when the options make no sense.
    explicit CausalCollator(CollatorOptions options);

    /// Labels are made from the ids, but for rows that have `labels` of their own (as many as ids); those
    /// are taken as they are.
    Batch collate(std::span<const std::vector<TokenId>> rows,
                  std::span<const std::vector<TokenId>> labels = {}) const;

  private:
    CollatorOptions options_;
};

/// The id to pad with: the tokenizer's, or that of EOS where `eos_pads` asks for it (it then wins over the
/// tokenizer's own). Error when the tokenizer has no such token.
TokenId choose_pad_id(const Tokenizer& tokenizer, bool eos_pads);

}  // namespace drover
