#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "drover/data.h"
#include "drover/export.h"

namespace drover {
DROVER_INLINE_NAMESPACE v1 {
    struct PretrainedOptions {
        std::string torch_dtype = "float32";  ///< float32, bfloat16, or auto: the stored one
    };

    struct GenerationOptions {
        std::int64_t max_new_tokens = 128;
        double temperature = 0;  ///< 0: always the likeliest token
        std::int64_t top_k = 0;  ///< 0: all
        double top_p = 1;
        std::uint64_t seed = 42;
    };

    /// A causal language model in a folder of safetensors: type llama or mixtral. Weights are read when they
    /// are needed. A Trainer trains it in place: from then on the weights of the model and of its copies are
    /// the trained ones. Cheap to copy.
    class DROVER_EXPORT CausalLM {
      public:
        /// A folder, or a repository that is in the Hugging Face cache.
        static CausalLM from_pretrained(const std::string& model_id, const PretrainedOptions& options = {});

        std::string model_type() const;
        std::int64_t num_parameters() const;
        std::int64_t vocab_size() const;

        /// The text that follows the prompt. Where several processes have trained the model and none has all
        /// of its weights, all of them call this together. Throws when such weights, or weights that there
        /// was no memory to keep, were lost with their Trainer.
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
