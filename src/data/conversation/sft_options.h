#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace drover {

/// Which end of a row that is too long is kept.
enum class KeptEnd { start, end };

/// How tokenized examples share rows, as in TRL's pack_dataset.
enum class DocumentPacking : std::uint32_t {
    none,       ///< a row for each example
    bfd,        ///< best fit decreasing: examples share a row; what is too long is cut off
    bfd_split,  ///< the same; what is too long is split into several documents
    wrapped,    ///< the examples as one stream, cut wherever a row is full
};

/// "none", "bfd", "bfd_split", "wrapped".
std::string_view document_packing_name(DocumentPacking packing);
/// `where` (a flag) is named in the UsageError. "bfd-requeue", TRL's former name of bfd_split, is known too.
DocumentPacking document_packing_from_name(std::string_view name, std::string_view where);

/// How conversations and other examples become rows of tokens with labels, named as in TRL's SFTConfig.
struct SftOptions {
    std::string text_field = "text";                ///< dataset_text_field: the column of plain text
    std::optional<std::int64_t> max_length = 1024;  ///< tokens of a row; absent: rows are not cut
    KeptEnd kept_end = KeptEnd::start;              ///< truncation_mode
    DocumentPacking packing = DocumentPacking::none;
    bool assistant_only_loss = false;            ///< only what the template marks as generated is learned
    std::optional<bool> completion_only_loss{};  ///< absent: for rows of prompt and completion
    std::string eos_token{};                     ///< its text; empty: the tokenizer's
    /// Text of messages that spells a special token becomes that token, as in transformers; otherwise it
    /// stays text.
    bool allow_special_tokens = false;
    std::int64_t workers = 1;  ///< dataset_num_proc: examples are packed in as many shards
    /// shuffle_dataset: examples are shuffled before they are packed, and rows at the end.
    std::optional<std::uint64_t> shuffle_seed{};
};

}  // namespace drover
