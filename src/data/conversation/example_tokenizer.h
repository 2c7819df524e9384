#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/conversation/example.h"
#include "text/chat/chat_template.h"
#include "text/chat/special_guard.h"
#include "text/tokenizer.h"

namespace drover {

/// Ids of an example, and the label of each (−100: nothing is learned there).
struct TokenizedExample {
    std::vector<TokenId> ids;
    std::vector<TokenId> labels;
    /// The ids of the prompt alone do not begin those of prompt and completion: the end of the prompt that is
    /// not in the example. Empty otherwise.
    std::string lost_prompt{};
};

/// The chat template of a run, with the special tokens that it is told of.
struct ExampleTemplate {
    std::shared_ptr<const ChatTemplate> plain{};       ///< null: there is none
    std::shared_ptr<const ChatTemplate> with_tools{};  ///< for examples with tools
    Json special_tokens = Json::object();
    std::string source{};   ///< the texts of both
    std::string missing{};  ///< why there is none
};

/// Finds the template of `path` (a file, or the folder of a tokenizer), or, if that is empty, of the
/// tokenizer's folder. Without one, conversations are refused later. Error if `path` has none, or if it is a
/// folder with special tokens that the tokenizer does not have.
ExampleTemplate find_example_template(const std::filesystem::path& path,
                                      const std::filesystem::path& tokenizer_folder,
                                      const Tokenizer& tokenizer);

/// Examples to ids and labels, as TRL's SFTTrainer makes them. May be used by several threads at once.
class ExampleTokenizer {
  public:
    /// Error if the options do not fit the format, the tokenizer or the template.
    ExampleTokenizer(std::shared_ptr<const Tokenizer> tokenizer, ExampleTemplate chat_template,
                     ExampleFormat format, SftOptions options);

    /// Nothing is cut off. Error for a role that is unknown, a template that refuses, and, with
    /// assistant_only_loss, for an example in which the assistant says nothing.
    TokenizedExample operator()(const Example& example) const;

    /// What the user should know of the template: empty, or a sentence.
    std::string warning() const;
    /// Everything but the dataset that determines the ids and labels, as a hash.
    std::string fingerprint() const;

  private:
    void tokenize_text(const Example& example, TokenizedExample& result) const;
    void tokenize_conversation(const Example& example, TokenizedExample& result) const;
    void check_roles(const Example& example) const;
    /// Removes the labels of the prompt, of which these are the ids.
    void mask_prompt(const std::vector<TokenId>& prompt, TokenizedExample& result) const;

    std::shared_ptr<const Tokenizer> tokenizer_;
    ExampleTemplate template_;
    ExampleFormat format_;
    SftOptions options_;
    SpecialGuard guard_;
    bool completion_only_;
    std::string eos_;
};

}  // namespace drover
