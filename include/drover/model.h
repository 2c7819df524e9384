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

    struct GenerationOptions {
        std::int64_t max_new_tokens = 128;
        double temperature = 0;  ///< 0: always the likeliest token
        std::int64_t top_k = 0;  ///< 0: all
        double top_p = 1;
        std::uint64_t seed = 42;
    };

    /// A causal language model of type llama or mixtral in a folder of safetensors. Weights are read when
    /// they are needed. A Trainer trains it in place: from then on, the model and its copies have the trained
    /// weights. Cheap to copy.
    class DROVER_EXPORT CausalLM {
      public:
        /// A folder, or a repository in the Hugging Face cache.
        static CausalLM from_pretrained(const std::string& model_id, const PretrainedOptions& options = {});

        std::string model_type() const;
        std::int64_t num_parameters() const;
        std::int64_t vocab_size() const;

        /// The text that follows the prompt. If several processes have trained the model and none has all of
        /// its weights, all of them must call this together. Throws if such weights, or weights for which
        /// there was not enough memory, were lost with their Trainer.
        std::string generate(const Tokenizer& tokenizer, const std::string& prompt,
                             const GenerationOptions& options = {}) const;

        struct Parts;
        const std::shared_ptr<const Parts>& parts() const { return parts_; }

      private:
        explicit CausalLM(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
        std::shared_ptr<const Parts> parts_;
    };

}  // namespace v1
}  // namespace drover
