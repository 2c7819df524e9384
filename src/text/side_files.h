#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/pipeline_tokenizer.h"

namespace drover {

/// The contents of the files next to a tokenizer: tokenizer_config.json, special_tokens_map.json,
/// added_tokens.json and the model_type of config.json. All of them may be absent.
class SideFiles {
  public:
    SideFiles() = default;
    explicit SideFiles(const std::filesystem::path& folder);

    /// The transformers classes that do more than use the file as it is.
    enum class Class { llama, gpt2, other };
    /// The class that transformers would use for this folder. For Mistral's models it uses the file as it is.
    Class tokenizer_class() const;
    bool has_config() const { return has_config_; }

    std::optional<bool> add_bos_token, add_eos_token, add_prefix_space, legacy;
    double model_max_length = 1e30;
    bool llama3_rope = false;  ///< config.json scales RoPE like Llama-3.1

    /// Tokens by role, in the order in which missing ones are added: "bos_token", "eos_token", …
    std::vector<std::pair<std::string, AddedToken>> named;
    /// Gives a role its usual token if no file names one.
    void name_by_default(std::string_view role, std::string_view content);

    /// tokenizer_config.json has "added_tokens_decoder", which then alone decides which tokens are added.
    bool has_added_tokens_decoder = false;
    /// Those tokens, or those of added_tokens.json, ordered by id.
    std::vector<AddedToken> added;

    /// Adds the contents of these files to a tokenizer, and sets its bos, eos, pad and unk.
    void complete(TokenizerParts& parts) const;

  private:
    void read_config(const Json& config, const std::string& where);
    void read_special_tokens_map(const Json& map, const std::string& where);
    void read_added_tokens(const Json& map, const std::string& where);
    void set_named(const std::string& role, const Json& value, const std::string& where);
    void add_extra(const Json& value, const std::string& where);

    std::string tokenizer_class_, model_type_;
    bool has_config_ = false;
    std::vector<AddedToken> extra_;
};

}  // namespace drover
