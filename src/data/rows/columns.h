#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// The column that holds the text: `wanted` if it names one, else "text" if there is such a column, else the
/// first. `columns` is not empty. Error, which lists the columns there are, when `wanted` is not among them.
std::string choose_text_column(const std::vector<std::string>& columns, std::string_view wanted,
                               std::string_view file);

/// Error when the columns are those of prompts with their answers, or of conversations: none of them alone is
/// what is to be trained on. A column "text" settles it.
void refuse_conversations(const std::vector<std::string>& columns, std::string_view file);

/// Says which of the columns is read, and which are not.
std::string columns_line(const std::vector<std::string>& columns, std::string_view column);

/// The position of `column`; Error, which lists the columns there are, when it is not among them.
std::size_t find_column(const std::vector<std::string>& columns, std::string_view column,
                        std::string_view file);

}  // namespace drover
