#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "drover/data.h"
#include "drover/export.h"

namespace drover {
DROVER_INLINE_NAMESPACE v1 {
    struct PretrainedOptions {
        std::string torch_dtype = "float32";  ///< float32, bfloat16, or auto: as stored
    };

    struct ConfigOptions {
        std::string torch_dtype = "float32";  ///< float32, bfloat16, or auto: as the config says
        std::uint64_t seed = 42;              ///< of the random weights
    };

    struct GenerationOptions {
        std::int64_t max_new_tokens = 128;
        double temperature = 0;  ///< 0: always the likeliest token
        std::int64_t top_k = 0;  ///< 0: all
        double top_p = 1;
        std::uint64_t seed = 42;
    };

    /// A causal language model: one in a folder (safetensors or pytorch_model.bin), whose weights are read when
    /// they are needed, or a new one. A Trainer trains it in place: from then on, the model and its copies have the trained
    /// weights. Cheap to copy.
    ///
    /// ```cpp
    /// const auto tokenizer = drover::Tokenizer::from_pretrained("model");
    /// const auto model = drover::CausalLM::from_pretrained("model", {.torch_dtype = "bfloat16"});
    /// std::printf("%s\n", model.generate(tokenizer, "To be", {.max_new_tokens = 8}).c_str());
    /// // A model of the same shape with random weights, and a smaller one.
    /// const auto fresh = drover::CausalLM::from_config("model", {.seed = 1});
    /// const auto small = drover::CausalLM::from_config(
    ///     R"({"model_type": "llama", "vocab_size": 4096, "hidden_size": 64, "intermediate_size": 128,
    ///         "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2})");
    /// small.save_pretrained("small");
    /// ```
    class DROVER_EXPORT CausalLM {
      public:
        /// A folder, or a repository in the Hugging Face cache.
        static CausalLM from_pretrained(const std::string& model_id, const PretrainedOptions& options = {});

        /// A model with random weights: those that `drover run_clm --config_name` and transformers draw for
        /// this seed. `config` is a config.json, a folder that holds one, a repository in the Hugging Face
        /// cache, or the JSON text itself.
        static CausalLM from_config(const std::string& config, const ConfigOptions& options = {});

        std::string model_type() const;
        std::int64_t num_parameters() const;
        std::int64_t vocab_size() const;

        /// The text that follows the prompt. If several processes have trained the model and none has all of
        /// its weights, all of them must call this together. Throws if the weights were lost with their
        /// Trainer, because there was not enough memory to keep them.
        std::string generate(const Tokenizer& tokenizer, const std::string& prompt,
                             const GenerationOptions& options = {}) const;

        /// Saves weights, config and generation config, for from_pretrained() here and in transformers;
        /// Trainer::save_model() also saves the tokenizer. Processes that must call generate() together must
        /// do so here as well; one of them writes. Throws as generate() does.
        void save_pretrained(const std::string& folder) const;

        struct Parts;
        const std::shared_ptr<const Parts>& parts() const { return parts_; }

      private:
        explicit CausalLM(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
        std::shared_ptr<const Parts> parts_;
    };

}  // namespace v1
}  // namespace drover
