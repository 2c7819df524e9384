#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/conversation/example_tokenizer.h"
#include "data/conversation/sft_options.h"
#include "data/rows/token_row.h"

namespace drover {

/// Packs a group of examples into rows of at most `max_length` tokens, as TRL's pack_dataset packs a batch of
/// its map. Under `wrapped` a row is one document, whatever it holds. Not for DocumentPacking::none.
std::vector<TokenRow> pack_documents(DocumentPacking packing, std::int64_t max_length,
                                     const std::vector<TokenizedExample>& examples);

/// Cuts an example to `max_length` tokens, keeping one end.
void cut_example(TokenizedExample& example, std::int64_t max_length, KeptEnd kept);

}  // namespace drover
