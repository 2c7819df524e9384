#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "data/conversation/example_tokenizer.h"
#include "run/messages.h"
#include "run/model_source.h"
#include "run/token_source.h"

namespace drover {

struct RunSettings;

/// Makes or finds the rows of supervised fine-tuning (settings.data.sft).
class SftRowFinder {
  public:
    /// Error if the settings contradict each other or do not fit the tokenizer. With `make_again`, honours
    /// --overwrite_cache.
    SftRowFinder(const RunSettings& settings, const ModelSource& model, const Messages& messages,
                 bool make_again);

    /// The rows of a split, which `split` names in messages.
    TokenSplit find(const SharedRows& rows, std::string_view split, bool is_training) const;
    /// The same rows, without shuffling, made while the examples are read.
    OpenTokenRows stream(const SharedRows& rows, std::string_view split, bool is_training) const;
    TokenId pad_id() const { return pad_id_; }

  private:
    SftOptions options_of(bool is_training) const;
    ExampleFormat format_of(const SharedRows& rows, std::string_view split) const;
    std::shared_ptr<const ExampleTokenizer> examples_of(ExampleFormat format, const SftOptions& options,
                                                        bool is_training) const;
    /// Uses rows of ids as they are, except for cutting those that are too long.
    TokenSplit take(const SharedRows& rows, std::string_view split, const SftOptions& options) const;

    const RunSettings& settings_;
    const ModelSource& model_;
    const Messages& messages_;
    bool make_again_;
    ExampleTemplate template_;
    TokenId pad_id_ = 0;
};

/// The text of EOS if it is not the tokenizer's own: --eos_token, or that of the folder that
/// --chat_template_path names; otherwise empty.
std::string sft_eos_token(const RunSettings& settings);

/// Writes what a fine-tuned model needs to chat as it was trained, over the tokenizer's own files in
/// `folder`: the template of --chat_template_path, and sft_eos_token().
void write_sft_texts(const std::filesystem::path& folder, const RunSettings& settings);

}  // namespace drover
