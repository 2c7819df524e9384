#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// The column that holds the text: `wanted` if it is not empty, otherwise "text" if there is such a column,
/// otherwise the first. `columns` is not empty. Error, listing the columns, if `wanted` is not among them.
std::string choose_text_column(const std::vector<std::string>& columns, std::string_view wanted,
                               std::string_view file);

/// Error if the columns are those of prompts with answers, or of conversations: no single one of them is the
/// text to train on. A column "text" settles it.
void refuse_conversations(const std::vector<std::string>& columns, std::string_view file);

/// A line that names the column that is read, and those that are not.
std::string columns_line(const std::vector<std::string>& columns, std::string_view column);

/// The position of `column`; Error, listing the columns, if it is not among them.
std::size_t find_column(const std::vector<std::string>& columns, std::string_view column,
                        std::string_view file);

}  // namespace drover
