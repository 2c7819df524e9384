#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

/// The program's output: logs, which must never stop the work, and results, which must be delivered.
namespace drover {

/// Writes to a log and flushes it. A log that cannot be written (a full disk, a closed terminal) does not
/// stop the program: the text is lost, and the first failure of `out` is reported on standard error, if that
/// is another file and can be written.
void write_log(std::FILE* out, std::string_view text);

/// Writes to standard output and flushes it; Error when that cannot be written.
void write_result(std::string_view text);

/// write_log() with fmt's formatting.
template <class... Values>
void print_log(std::FILE* out, fmt::format_string<Values...> format, Values&&... values) {
    write_log(out, fmt::vformat(format, fmt::make_format_args(values...)));
}

/// write_result() with fmt's formatting.
template <class... Values>
void print_result(fmt::format_string<Values...> format, Values&&... values) {
    write_result(fmt::vformat(format, fmt::make_format_args(values...)));
}

}  // namespace drover
