#pragma once

#include <filesystem>
#include <vector>

#include "data/rows/row_subsets.h"

/// Files that hold token ids as datasets: see RowDataset::token_form.
namespace drover {

/// Token files written by `drover tokenize`, one after the other; they must have been made alike. Their data
/// is verified the first time they are used. `notes` is a folder of FileNotes; empty for none.
SharedRows open_token_files(const std::vector<std::filesystem::path>& files,
                            const std::filesystem::path& notes);

/// The column input_ids of Arrow files, and labels if there is one. Reads all files the first time they are
/// used. Error for a row with padding, and for invalid ids and labels.
SharedRows open_arrow_tokens(const std::vector<std::filesystem::path>& files,
                             const std::filesystem::path& notes);

}  // namespace drover
