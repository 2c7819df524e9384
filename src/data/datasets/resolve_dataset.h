#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/datasets/file_rows.h"
#include "data/rows/row_subsets.h"

namespace drover {

/// What the user requests: a dataset by name, or files.
struct DatasetRequest {
    std::string
        dataset_name;  ///< a local folder, a Hub id ("owner/name"), or an archive of the raw Wikicorpus
    std::string dataset_config_name;  ///< empty: the only one, or the one marked as default
    std::string revision = "main";
    std::string token{};              ///< of the Hub; empty: that of HF_TOKEN or a login
    std::filesystem::path cache_dir;  ///< of the datasets library; empty: HF_DATASETS_CACHE and its defaults

    std::vector<std::string> train_files;  ///< paths or patterns
    std::vector<std::string> validation_files;

    std::string text_column;
    bool refuses_conversations = false;      ///< see ReadOptions
    std::vector<std::string> row_columns{};  ///< see ReadOptions
    std::string train_split = "train";       ///< the names of the splits
    std::string validation_split = "validation";
    bool keep_linebreaks =
        true;  ///< for text files given as files; datasets by name have none, as in run_clm.py
    std::filesystem::path notes;  ///< see ReadOptions::notes
    /// Where the archives of Wikicorpus are.
    std::string wikicorpus_address = "https://www.cs.upc.edu/~nlp/wikicorpus/";
};

struct DatasetSplit {
    std::string name;
    std::vector<std::filesystem::path> files;
    ReadOptions options;
};

struct ResolvedDataset {
    std::string origin;  ///< where it was found; for logs
    std::vector<DatasetSplit> splits;

    const DatasetSplit* find(std::string_view split) const;
};

/// Finds the files of a request without reading their rows: local ones, those of the caches, and at last
/// those of the Hub, which are fetched. Error, listing where it looked, if there are none.
ResolvedDataset resolve_dataset(const DatasetRequest& request);

/// How run_clm.py gets its two splits from a request.
struct SplitRule {
    int validation_percent = 5;  ///< used if there is no split "validation"
    bool streaming = false;
    /// With a share of 0 a stream goes to training as a whole; run_clm.py leaves out a row of a hundred.
    bool streams_every_row = false;
    bool do_train = true;  ///< false: the validation split determines the text column
    bool do_eval = false;  ///< a validation split without rows is an Error
};

/// The splits that the request names. Without the latter, part of train takes its place; without the
/// former, train is null. The text column is chosen once for both. Files of token ids (token files, and Arrow
/// files with the column input_ids) give rows with a token_form().
TrainAndValidation load_train_and_validation(const DatasetRequest& request, const SplitRule& rule);

}  // namespace drover
