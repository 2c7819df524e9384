#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/readers/byte_stream.h"
#include "data/rows/row_source.h"

namespace drover {

/// Splits a delimited file into records as pandas does. Cells may be quoted; inside quotes, line breaks and
/// delimiters are text and a doubled quote is one quote. Quotes elsewhere in a cell are text. "\n", "\r\n"
/// and "\r" end a record. Lines that are empty or only blanks and tabs are skipped. A byte-order mark is
/// dropped.
class CsvRecords {
  public:
    CsvRecords(std::unique_ptr<ByteStream> stream, std::string name, char delimiter);

    /// Replaces `cells` by the cells of the next record; false at the end. Error for an unclosed quote and
    /// for text that is not UTF-8.
    bool next(RowBatch& cells);
    /// Where the last returned record begins: "data.csv, line 7".
    std::string place() const;

  private:
    enum class State { record, blank_line, cell, plain, quoted, quote_in_quoted };

    /// The next byte, or −1 at the end.
    int peek();
    void drop();
    /// Takes "\r", "\n" or "\r\n".
    void take_line_break();
    /// Copies bytes of a cell up to the next one that may be special.
    void copy_run(RowBatch& cells, bool quoted);
    void check_utf8(const RowBatch& cells) const;

    ByteWindow window_;
    std::string name_;
    char delimiter_;
    std::int64_t line_ = 1;
    std::int64_t record_line_ = 1;
    std::int64_t quote_line_ = 1;
};

}  // namespace drover
