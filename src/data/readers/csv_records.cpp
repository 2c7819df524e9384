#include "data/readers/csv_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/readers/file_reader.h"
#include "text/utf8.h"

namespace drover {

CsvRecords::CsvRecords(std::unique_ptr<ByteStream> stream, std::string name, char delimiter)
    : window_(std::move(stream)), name_(std::move(name)), delimiter_(delimiter) {
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    while (window_.bytes().size() < byte_order_mark.size() && window_.grow()) {
    }
    if (window_.bytes().starts_with(byte_order_mark)) window_.drop(byte_order_mark.size());
}

std::string CsvRecords::place() const {
    return fmt::format("{}, line {}", name_, record_line_);
}

int CsvRecords::peek() {
    while (window_.bytes().empty())
        if (!window_.grow()) return -1;
    return static_cast<unsigned char>(window_.bytes().front());
}

void CsvRecords::drop() {
    window_.drop(1);
}

void CsvRecords::take_line_break() {
    const bool carriage_return = peek() == '\r';
    drop();
    if (carriage_return && peek() == '\n') drop();
    ++line_;
}

void CsvRecords::copy_run(RowBatch& cells, bool quoted) {
    // An unclosed quote would otherwise read the rest of the file into memory.
    constexpr std::size_t largest_record = std::size_t{256} << 20;
    const std::string_view bytes = window_.bytes();
    const auto special = [&](char c) {
        return quoted ? c == '"' : c == delimiter_ || c == '\n' || c == '\r';
    };
    const std::string_view run(bytes.begin(), std::find_if(bytes.begin(), bytes.end(), special));
    cells.bytes.append(run);
    if (quoted) {
        // A line break inside quotes is text. For place() only, "\r\n" counts once and a lone "\r" not at
        // all.
        line_ += std::count(run.begin(), run.end(), '\n');
    }
    window_.drop(run.size());
    if (cells.bytes.size() > largest_record)
        throw Error(fmt::format("{}, line {}: a record is larger than {} MiB.", name_,
                                quoted ? quote_line_ : record_line_, largest_record >> 20),
                    "Look for a quote that is opened there and never closed.");
}

bool CsvRecords::next(RowBatch& cells) {
    cells.clear();
    const auto end_cell = [&] { cells.ends.push_back(cells.bytes.size()); };
    State state = State::record;
    std::string blanks;
    for (;;) {
        const int next = peek();
        const bool end = next < 0;
        const char c = end ? '\n' : static_cast<char>(next);
        const bool line_break = end || c == '\n' || c == '\r';
        switch (state) {
            case State::record:
                if (end) return false;
                if (line_break) {
                    take_line_break();
                } else {
                    record_line_ = line_;
                    blanks.clear();
                    state = State::blank_line;
                }
                break;
            case State::blank_line:  // blanks and tabs so far; the delimiter may be one of them
                if (end) return false;
                if (line_break) {
                    take_line_break();
                    state = State::record;
                } else if ((c == ' ' || c == '\t') && c != delimiter_) {
                    blanks.push_back(c);
                    drop();
                } else if (blanks.empty()) {
                    state = State::cell;
                } else {
                    cells.bytes.append(blanks);
                    state = State::plain;
                }
                break;
            case State::cell:
                if (c == '"' && !end) {
                    quote_line_ = line_;
                    drop();
                    state = State::quoted;
                } else {
                    state = State::plain;
                }
                break;
            case State::quoted:
                if (end)
                    throw Error(fmt::format("{}, line {}: a quote that opens there is never closed.", name_,
                                            quote_line_),
                                "Close it, or double the quotes that are text.");
                if (c == '"') {
                    drop();
                    state = State::quote_in_quoted;
                } else {
                    copy_run(cells, true);
                }
                break;
            case State::quote_in_quoted:
                if (c == '"' && !end) {
                    cells.bytes.push_back('"');
                    drop();
                    state = State::quoted;
                } else {
                    state = State::plain;  // the cell ends here, or continues without quotes
                }
                break;
            case State::plain:
                if (line_break) {
                    end_cell();
                    if (!end) take_line_break();
                    check_utf8(cells);
                    return true;
                }
                if (c == delimiter_) {
                    end_cell();
                    drop();
                    state = State::cell;
                } else {
                    copy_run(cells, false);
                }
                break;
        }
    }
}

void CsvRecords::check_utf8(const RowBatch& cells) const {
    for (std::size_t i = 0; i < cells.size(); ++i)
        if (const std::size_t valid = valid_utf8_prefix(cells[i]); valid != cells[i].size())
            fail_invalid_utf8(place(), cells[i][valid]);
}

}  // namespace drover
