#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "data/packing/token_file.h"
#include "data/packing/token_stream.h"
#include "data/readers/file_notes.h"
#include "data/rows/row_source.h"

namespace drover {

/// $DROVER_CACHE, otherwise drover/ in $XDG_CACHE_HOME or ~/.cache.
std::filesystem::path default_cache_folder();
/// Where a cache in `folder` keeps its FileNotes; datasets that are opened with it start sooner.
std::filesystem::path cache_notes_folder(const std::filesystem::path& folder);
/// The same for default_cache_folder(); empty (no notes) if there is no place for a cache.
std::filesystem::path default_notes_folder();

/// Everything that determines the content of a token file, as a file name without suffix.
std::string token_cache_key(const RowDataset& dataset, const Tokenizer& tokenizer,
                            const PackingOptions& options);

using ReportProgress = std::function<void(const TokenStreamProgress&)>;

/// Tokenizes `dataset` into `path`. `report` is called after every row and at the end, on the calling thread.
/// Error if that gives no rows.
TokenFileHeader write_token_file(const std::filesystem::path& path, const RowDataset& dataset,
                                 std::shared_ptr<const Tokenizer> tokenizer, const PackingOptions& options,
                                 std::size_t threads, const ReportProgress& report = {});

/// Token files, keyed by what they were made from. Any number of processes may use one folder: the first that
/// needs a file makes it, the others wait for it.
class TokenCache {
  public:
    explicit TokenCache(std::filesystem::path folder);

    struct Entry {
        TokenFile file;
        bool made = false;         ///< by this call
        std::int64_t dropped = 0;  ///< tokens of the text that are in no row
    };
    /// The token file of `dataset`, made if it does not exist or cannot be opened. `overwrite` makes it again
    /// unless another process has done so since this call began. A damaged file is made again. Data is
    /// verified the first time a file is found, unless it was made here.
    Entry get(const RowDataset& dataset, std::shared_ptr<const Tokenizer> tokenizer,
              const PackingOptions& options, std::size_t threads, bool overwrite,
              const ReportProgress& report = {});

    struct Made {
        TokenFile file;
        bool made = false;   ///< by this call
        std::string note{};  ///< what was returned when the file was made; empty if that was lost
    };
    /// The same for a file that is made in any way: `key` is a hash of everything that determines it, and
    /// `make` writes it to a path and returns a text that is remembered with it.
    Made get(const std::string& key, bool overwrite,
             const std::function<std::string(const std::filesystem::path& path)>& make);

    const FileNotes& notes() const { return notes_; }

  private:
    std::filesystem::path folder_;
    FileNotes notes_;
};

}  // namespace drover
