#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drover/data.h"
#include "drover/export.h"
#include "drover/model.h"

namespace drover {
DROVER_INLINE_NAMESPACE v1 {
    /// The result of fsdp_v2_training_args(): the values of --fsdp and --fsdp_config.
    struct FsdpTrainingArguments {
        std::string fsdp;         ///< "full_shard"; empty: no sharding
        std::string fsdp_config;  ///< JSON text
    };

    /// Enables fully sharded training by single-program annotations; must be called before anything that uses
    /// it.
    DROVER_EXPORT void use_fsdp_v2();

    /// Sharding of weights, gradients and optimizer over all ranks, one decoder block at a time (its class is
    /// deduced from the model), with blocks recomputed in backward.
    DROVER_EXPORT FsdpTrainingArguments fsdp_v2_training_args(const CausalLM& model);

    /// transformers' TrainingArguments under their names and with their defaults.
    struct TrainingArguments {
        std::string output_dir = "trainer_output";
        std::int64_t per_device_train_batch_size = 8;
        std::int64_t per_device_eval_batch_size = 8;
        std::int64_t gradient_accumulation_steps = 1;
        double num_train_epochs = 3;
        std::int64_t max_steps = -1;  ///< > 0: instead of num_train_epochs
        double learning_rate = 5e-5;
        std::string lr_scheduler_type = "linear";
        double warmup_steps = 0;  ///< below 1: a share of all steps
        std::string optim = "adamw_torch";
        double weight_decay = 0;
        double max_grad_norm = 1;
        double logging_steps = 500;
        std::string save_strategy = "steps";
        double save_steps = 500;
        std::string eval_strategy = "no";
        bool dataloader_drop_last = false;
        std::uint64_t seed = 42;
        bool disable_tqdm = false;
        FsdpTrainingArguments fsdp = {};
        /// Every other argument of `drover run_clm` by name: {{"recompute", "selective"}, {"threads", "4"}}.
        std::map<std::string, std::string> more = {};
    };

    /// The result of a run.
    struct TrainOutput {
        std::int64_t global_step = 0;
        double training_loss = 0;               ///< mean over all steps
        std::vector<double> losses;             ///< as they were logged
        std::map<std::string, double> metrics;  ///< of the last record: train_runtime, …
    };

    /// The parts of a run; without an eval_dataset there is nothing to evaluate on.
    struct TrainerParts {
        CausalLM model;
        Split train_dataset;
        TrainingArguments args = {};
        DataCollatorForLanguageModeling data_collator;
        std::optional<Split> eval_dataset = {};
    };

    /// Hugging Face's Trainer: the same loop, records and files as `drover run_clm`.
    ///
    /// If mpirun or srun started the program several times, these processes train together. All of them must
    /// create the same Trainers and make the same calls, in the same order. If a constructor or a call fails
    /// in one process, nothing is thrown: one process prints the error on standard error, and all end, with
    /// the exit code of `drover run_clm`.
    class DROVER_EXPORT Trainer {
      public:
        /// Checks the arguments and plans the memory; throws when something does not fit.
        explicit Trainer(const TrainerParts& parts);
        ~Trainer();
        Trainer(Trainer&&) noexcept;
        Trainer& operator=(Trainer&&) noexcept;

        TrainOutput train();
        /// eval_loss, eval_accuracy, …; throws without an eval_dataset.
        std::map<std::string, double> evaluate();
        /// Saves weights, config and tokenizer, for from_pretrained() here and in transformers.
        void save_model(const std::string& folder) const;
        /// Whether this is the process that reports for all; true for a single process.
        bool is_world_process_zero() const;

      private:
        struct Run;
        std::unique_ptr<Run> run_;
    };

    /// For a catch block in main(): prints "program: what went wrong" on standard error. With several
    /// processes, the first one does so immediately and the others after a few seconds: by then the launcher
    /// has ended them, unless they failed for a reason of their own.
    DROVER_EXPORT void report_failure(const std::string& program, const std::exception& error);

}  // namespace v1
}  // namespace drover
