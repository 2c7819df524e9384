#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/conversation/sft_options.h"
#include "data/rows/training_rows.h"
#include "data/sampling/sampler.h"

namespace drover {

/// A dataset as a folder, a file or a name of the Hub.
struct NamedDataset {
    std::string name;
    std::string config_name{};  ///< empty: the only one, or the default
    std::string text_column{};  ///< empty: "text", or the first column
};

/// Supervised fine-tuning: rows are conversations, prompts with completions, or text (data/conversation).
struct SftSettings {
    SftOptions rows{};                   ///< of training
    std::optional<bool> eval_packing{};  ///< whether rows of evaluation are packed; absent: as in training
    std::string chat_template_path{};    ///< a template, or a folder with one; empty: the tokenizer's own
    std::string pad_token{};             ///< its text; empty: the tokenizer's, or else its EOS
    bool padding_free = false;           ///< first tokens of examples are not counted as labels (TRL)
    std::int64_t pad_to_multiple_of = 1;

    /// As TRL: rows that hold several examples need no padding.
    bool is_padding_free() const {
        return padding_free || rows.packing == DocumentPacking::bfd ||
               rows.packing == DocumentPacking::bfd_split;
    }
};

/// The data to train on and to evaluate, and how text becomes rows.
struct DataSettings {
    std::vector<NamedDataset> datasets{};  ///< empty: the files
    /// One for each of several datasets: their shares of the training examples are in this proportion. Empty:
    /// the datasets are trained on as one.
    std::vector<double> dataset_weights{};
    std::string train_split = "train";            ///< of the datasets
    std::string validation_split = "validation";  ///< the same
    std::string train_file{};
    std::string validation_file{};
    std::string text_column{};  ///< of the files; empty: "text", or the first column
    Packing packing = Packing::hf;
    bool packing_is_given = false;             ///< otherwise files of tokens decide
    std::string pad_token{};                   ///< "eos", "unk" or a token's text; empty: the tokenizer's
    std::optional<std::int64_t> block_size{};  ///< absent: from tokenizer and model
    std::optional<std::int64_t> max_train_samples{};
    std::optional<std::int64_t> max_eval_samples{};
    bool streaming = false;
    bool overwrite_cache = false;
    int validation_split_percentage = 5;
    std::optional<std::int64_t> preprocessing_num_workers{};
    bool keep_linebreaks = true;
    SampleOrder order = SampleOrder::shuffled;  ///< of training
    /// Rows of training are dealt to replicas one by one, and those that do not fill an update are left out
    /// of an epoch, as with PyTorch's DistributedSampler and a loader of whole updates that drops the last.
    bool strided = false;
    /// Given: the rows are examples for supervised fine-tuning. Then `packing`, `block_size`, `pad_token` and
    /// `text_column` have no meaning.
    std::optional<SftSettings> sft{};
};

}  // namespace drover
