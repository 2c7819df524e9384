#pragma once

#include <filesystem>
#include <vector>

#include "data/rows/row_subsets.h"

/// Files that hold token ids as datasets: see RowDataset::token_form.
namespace drover {

/// Token files that `drover tokenize` wrote, one after the other; they must be made alike. Their data is
/// verified the first time that they are met; `notes` is a folder of FileNotes, empty for none.
SharedRows open_token_files(const std::vector<std::filesystem::path>& files,
                            const std::filesystem::path& notes);

/// The column input_ids of Arrow files, with that of labels where there is one. Reads all of them the first
/// time that they are met. Error for a row with padding, and for ids and labels that cannot be any.
SharedRows open_arrow_tokens(const std::vector<std::filesystem::path>& files,
                             const std::filesystem::path& notes);

}  // namespace drover
