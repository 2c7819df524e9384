#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "drover/callback.h"
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
    ///
    /// ```cpp
    /// const drover::TrainingArguments args{.output_dir = "out",
    ///                                      .per_device_train_batch_size = 4,
    ///                                      .learning_rate = 1e-3,
    ///                                      .report_to = "tensorboard",
    ///                                      .more = {{"save_total_limit", "2"}, {"threads", "4"}}};
    /// ```
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
        std::string report_to = "none";  ///< tensorboard: records for TensorBoard, in logging_dir
        /// While train() runs, SIGTERM does not end the program: the step is finished and saved, and train()
        /// returns with TrainOutput::interrupted. Without this, no signal is touched.
        bool enable_jit_checkpoint = false;
        FsdpTrainingArguments fsdp = {};
        /// Every other argument of `drover run_clm` by name: {{"recompute", "selective"}, {"threads", "4"}}.
        std::map<std::string, std::string> more = {};
    };

    struct TrainOptions {
        /// true: from the newest complete checkpoint in output_dir; a text: from the checkpoint in this
        /// folder, one of Drover's or of transformers'. Weights, optimizer, order of the data and records
        /// then continue as if the run had not been stopped; throws if there is no such checkpoint.
        std::variant<bool, std::string> resume_from_checkpoint = false;
    };

    /// The result of a run.
    struct TrainOutput {
        std::int64_t global_step = 0;
        double training_loss = 0;               ///< mean over all steps
        std::vector<double> losses;             ///< as they were logged
        std::map<std::string, double> metrics;  ///< of the last record: train_runtime, …
        /// SIGTERM ended training after global_step, which is saved in output_dir; there are no metrics.
        bool interrupted = false;
    };

    /// The parts of a run; without an eval_dataset there is nothing to evaluate on.
    struct TrainerParts {
        CausalLM model;
        Split train_dataset;
        TrainingArguments args = {};
        DataCollatorForLanguageModeling data_collator;
        std::optional<Split> eval_dataset = {};
        std::vector<std::shared_ptr<TrainerCallback>> callbacks = {};  ///< called in this order
    };

    /// Hugging Face's Trainer: the same loop, records and files as `drover run_clm`.
    ///
    /// If mpirun or srun started the program several times, these processes train together. All of them must
    /// create the same Trainers and make the same calls, in the same order. If a constructor or a call fails
    /// in one process, nothing is thrown: one process prints the error on standard error, and all end, with
    /// the exit code of `drover run_clm`.
    ///
    /// ```cpp
    /// auto tokenizer = drover::Tokenizer::from_pretrained("model");
    /// tokenizer.add_special_tokens({{"pad_token", tokenizer.eos_token()}});
    /// const auto data = drover::Dataset::load("quotes.jsonl")["train"].train_test_split(0.1).map(
    ///     [&](const drover::Row& row) { return tokenizer(row["quote"]); });
    /// const auto model = drover::CausalLM::from_pretrained("model");
    /// drover::Trainer trainer{{.model = model,
    ///                          .train_dataset = data["train"],
    ///                          .args = {.output_dir = "out", .max_steps = 4, .save_steps = 2},
    ///                          .data_collator = drover::DataCollatorForLanguageModeling(tokenizer),
    ///                          .eval_dataset = data["test"]}};
    /// trainer.train();
    /// const double loss = trainer.evaluate().at("eval_loss");
    /// trainer.save_model("out");
    /// // Again from the first checkpoint.
    /// const drover::TrainOutput again = trainer.train({.resume_from_checkpoint = "out/checkpoint-2"});
    /// ```
    class DROVER_EXPORT Trainer {
      public:
        /// Checks the arguments and plans the memory; throws when something does not fit.
        explicit Trainer(const TrainerParts& parts);
        ~Trainer();
        Trainer(Trainer&&) noexcept;
        Trainer& operator=(Trainer&&) noexcept;

        TrainOutput train(const TrainOptions& options = {});
        /// eval_loss, eval_accuracy, …; throws without an eval_dataset.
        std::map<std::string, double> evaluate();
        /// Saves weights, config and tokenizer, for from_pretrained() here and in transformers.
        void save_model(const std::string& folder) const;
        /// From the next train() or evaluate() on, this callback is called after the others.
        void add_callback(std::shared_ptr<TrainerCallback> callback);
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
