#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/content_hash.h"
#include "data/readers/file_reader.h"
#include "data/rows/row_format.h"
#include "data/rows/row_source.h"

namespace drover {

/// How files are read.
struct ReadOptions {
    std::optional<RowFormat> format;  ///< absent: from the file's name
    std::string text_column;          ///< empty: "text" if there is such a column, otherwise the first
    /// With an empty text_column: columns that look like prompts and answers or like conversations are an
    /// Error (refuse_conversations).
    bool refuses_conversations = false;
    /// Not empty: a row is a JSON object with those of these columns that its file has (a row of a JSON file
    /// is the object in it, whole). Then there is no text column.
    std::vector<std::string> row_columns{};
    bool keep_linebreaks = true;  ///< text files: rows end in "\n"
    std::string json_field;       ///< JSON files: the list under this key holds the rows
    char csv_delimiter = ',';     ///< .csv files (.tsv files use a tab)
    /// Folder of FileNotes: files whose hash or number of rows is recorded there are not read again. Empty:
    /// nothing is recorded.
    std::filesystem::path notes;
};

/// The column names of a file, in order of first appearance; empty if it has no rows to tell them from.
std::vector<std::string> file_columns(const std::filesystem::path& path, RowFormat format,
                                      const ReadOptions& options);

/// Opens one file; `column` is one of file_columns(), and not used with options.row_columns.
std::unique_ptr<FileReader> open_file_rows(const std::filesystem::path& path, RowFormat format,
                                           const std::string& column, const ReadOptions& options);

/// The rows of the files of one split, file by file.
class FileRows : public RowDataset {
  public:
    /// `files` is not empty. Error when a file is missing, of unknown format, or without rows, or when the
    /// column does not exist.
    FileRows(std::vector<std::filesystem::path> files, ReadOptions options);

    std::unique_ptr<RowSource> open(std::int64_t first_row) const override;
    std::int64_t row_count() const override;
    const std::vector<std::string>& column_names() const override { return columns_; }
    const std::string& text_column() const override { return text_column_; }
    std::string fingerprint() const override;
    std::string quick_fingerprint() const override;

    const std::vector<std::filesystem::path>& files() const { return files_; }

  private:
    std::unique_ptr<FileReader> open_file(std::size_t index) const;
    std::int64_t count_rows(std::size_t index) const;
    /// A hash that already includes how the files are read.
    ContentHash hash_of_reading() const;

    std::vector<std::filesystem::path> files_;
    std::vector<RowFormat> formats_;
    std::vector<std::uintmax_t> sizes_;  ///< when the files were first opened; 0 if unknown
    ReadOptions options_;
    std::vector<std::string> columns_;
    std::string text_column_;

    mutable std::mutex mutex_;  ///< guards what is created on first use
    mutable std::vector<std::int64_t> counts_;
    mutable std::string fingerprint_;

    friend class FileRowSource;
};

}  // namespace drover
