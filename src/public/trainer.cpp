#include "drover/trainer.h"

#include <fmt/format.h>

#include <atomic>
#include <numeric>

#include "core/console.h"
#include "core/content_hash.h"
#include "core/machine_memory.h"
#include "generate/generator.h"
#include "model/saved_config.h"
#include "public/mapped_rows.h"
#include "public/parts.h"
#include "public/trainer_arguments.h"
#include "run/batch_layout.h"
#include "run/choose_backend.h"
#include "run/lost_updates.h"
#include "run/mesh_report.h"
#include "run/model_texts.h"
#include "run/output_folder.h"
#include "run/process_limits.h"
#include "run/program_processes.h"
#include "run/run_clm_settings.h"
#include "run/run_mesh.h"
#include "run/speech.h"
#include "train/callbacks/log_printer.h"
#include "train/callbacks/progress_bar.h"
#include "train/callbacks/run_banner.h"
#include "train/engine/engine_model.h"
#include "train/loop/trainer.h"

namespace drover::v1 {
namespace {

namespace fs = std::filesystem;

std::map<std::string, double> numbers_in(const Json& record) {
    std::map<std::string, double> numbers;
    for (const auto& [key, value] : record.items())
        if (value.is_number()) numbers[key] = value.get<double>();
    return numbers;
}

ModelConfig config_of(const TrainerParts& parts) {
    ModelConfig config = parts.model.parts()->current_config();
    const std::int64_t tokens = parts.data_collator.tokenizer().size();
    if (tokens > config.vocab_size) config.resize_vocabulary(tokens);
    return config;
}

/// One run at a time has the GPUs of several processes: their progress is watched for one alone.
class GpusOfProcesses {
  public:
    GpusOfProcesses() {
        if (taken_.exchange(true))
            throw Error("Another Trainer of this program still uses the GPUs of these processes.",
                        "Let the first one go before the second is made.");
    }
    ~GpusOfProcesses() { taken_ = false; }
    GpusOfProcesses(const GpusOfProcesses&) = delete;
    GpusOfProcesses& operator=(const GpusOfProcesses&) = delete;

  private:
    static inline std::atomic<bool> taken_ = false;
};

}  // namespace

void report_failure(const std::string& program, const std::exception& error) {
    try {
        let_first_speak(read_launch_environment());
    } catch (const Error&) {
        // No launcher has set what cannot be read.
    }
    print_log(stderr, "{}: {}\n", program, error.what());
}

/// The parts of a run, as `drover run_clm` puts them together. Where there are other processes, all make
/// theirs at the same time and call the same functions in the same order.
struct Trainer::Run {
    RunArguments run;
    const RunProcesses* processes = nullptr;
    std::optional<Speech> speech;
    TrainerSettings settings;
    ModelConfig config;
    fs::path weights;
    std::shared_ptr<const drover::Tokenizer> tokenizer;
    CollatorOptions collator;
    std::optional<MappedRows> training_rows, evaluation_rows;
    Json generation;
    std::unique_ptr<Backend> backend;
    std::optional<GpusOfProcesses> gpus;
    MeshSettings mesh_settings;
    std::optional<RunMesh> mesh;
    BatchLayout batches;
    TrainEngineOptions engine_settings;
    std::unique_ptr<TrainEngine> engine;
    std::unique_ptr<EngineModel> model;
    std::unique_ptr<TokenFileData> training, evaluation;
    std::optional<ProgressBar> bar;
    std::optional<NonFiniteWatch> watch;
    RunBanner banner;
    std::optional<LogPrinter> printer;
    std::optional<drover::Trainer> loop;
    const OutputFolder* locked_folder = nullptr;  ///< while train() writes to it

    /// The output folder's lock while train() lasts. It goes only after the last checkpoint is written, also
    /// when training fails.
    class Locked {
      public:
        explicit Locked(Run& run)
            : run_(run), folder_(run.processes->ranks, run.run.arguments, run.messages(), {}, words) {
            folder_.take();
            run_.locked_folder = &folder_;
        }
        ~Locked() {
            run_.model->finish_writing();
            run_.locked_folder = nullptr;
        }
        Locked(const Locked&) = delete;
        Locked& operator=(const Locked&) = delete;

      private:
        Run& run_;
        OutputFolder folder_;
    };
    static inline const FolderWords words{.output_dir = "TrainingArguments::output_dir",
                                          .steal_lock = "steal_lock in TrainingArguments::more"};
    bool has_weights = false;
    std::shared_ptr<const CausalLM::Parts> trained_model;
    std::shared_ptr<TrainedWeights> trained;  ///< null until training begins

    explicit Run(const TrainerParts& parts) {
        find_processes(parts);
        const RunRanks& ranks = processes->ranks;
        ranks.together([&] { read(parts); });
        check_ranks_agree(ranks, fingerprints());
        ranks.together([&] { choose_device(); });
        mesh.emplace(processes->world, ranks, mesh_settings, *backend);
        ranks.together([&] {
            make_engine();
            make_loop();
        });
    }

    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    /// Whoever still has the model keeps its trained weights, where there is room for them beside the engine.
    ~Run() {
        if (!trained) return;
        const bool is_used = trained_model.use_count() > 1 && trained_model->trained == trained;
        const std::size_t on_host = engine->host_memory_plan().total +
                                    (backend->device() == Device::cpu ? engine->memory_plan().total : 0);
        const std::size_t share = usable_memory() / static_cast<std::size_t>(processes->machine.ranks);
        const bool stays = is_used && !trained->are_spread() && on_host + trained->copy_bytes() <= share;
        try {
            if (stays) trained->keep_copy();
        } catch (const std::exception&) {
            trained->let_go();  // whoever asks for them is told that they are gone
        }
        if (!stays) trained->let_go();
    }

    const Messages& messages() const { return speech->messages(); }

    /// Checks the arguments, which concern the processes too.
    void find_processes(const TrainerParts& parts) {
        const LaunchEnvironment launch = read_launch_environment();
        refuse_foreign_launcher(launch, own_program_words());
        std::exception_ptr refusal;  // of this process; the others may have been given something else
        try {
            run = checked_arguments(parts, launch.processes);
        } catch (const Error&) {
            if (!launch.has_others()) throw;
            refusal = std::current_exception();
        }
        const WorldOptions waits = world_options(run.arguments, launch);
        processes = &program_processes(waits);
        processes->ranks.together([&] {
            if (refusal) std::rethrow_exception(refusal);
            check_waits(*processes, waits);
        });
        check_started_alike(*processes, run);
        processes->ranks.together([&] { speech.emplace(*processes, run.arguments); });
    }

    /// What this process has to train with.
    void read(const TrainerParts& parts) {
        settings = trainer_settings(run.arguments);
        settings.is_world_process_zero = processes->is_first();
        settings.is_local_process_zero = processes->machine.rank == 0;
        watch.emplace(on_non_finite(run.arguments));
        config = config_of(parts);
        trained_model = parts.model.parts();
        weights = trained_model->folder;
        tokenizer = parts.data_collator.tokenizer().parts()->tokenizer;
        collator = {.pad_id = parts.data_collator.tokenizer().pad_token_id(),
                    .ignore_every_pad_id = true,
                    .pad_to_multiple_of = parts.data_collator.options().pad_to_multiple_of};
        training_rows.emplace(parts.train_dataset, *tokenizer, config.vocab_size);
        if (parts.eval_dataset) evaluation_rows.emplace(*parts.eval_dataset, *tokenizer, config.vocab_size);
        const fs::path file = weights / "generation_config.json";
        generation = fs::exists(file) ? read_json_file(file) : derived_generation_config(config);
    }

    NamedTexts fingerprints() const {
        NamedTexts own{
            {"the model's config", ContentHash().add(config.json.dump()).hex()},
            {"the tokenizer", tokenizer->fingerprint()},
            {"the collator's padding", fmt::format("{} to {}", collator.pad_id, collator.pad_to_multiple_of)},
            {"the training data", training_rows->fingerprint()}};
        if (evaluation_rows) own.emplace_back("the evaluation data", evaluation_rows->fingerprint());
        return own;
    }

    void choose_device() {
        mesh_settings = drover::mesh_settings(run, config, processes->ranks.size(), processes->machine);
        backend = make_process_backend(run.arguments, processes->machine);
        if (!processes->alone() && backend->device() == Device::cuda) gpus.emplace();
    }

    /// Plans everything, but allocates nothing yet.
    void make_engine() {
        batches = deal_batches(mesh_settings, **mesh, Packing::none, settings);
        batches.row_multiple = std::lcm(batches.row_multiple, collator.pad_to_multiple_of);
        collator.pad_to_multiple_of = batches.row_multiple;
        std::int64_t longest = training_rows->longest();
        if (evaluation_rows) longest = std::max(longest, evaluation_rows->longest());
        engine_settings = engine_options(
            run, chosen_precision(run, config.dtype, backend->device()), mesh_settings, backend->device(),
            batches.part.rows_of(settings.per_device_train_batch_size), batches.padded(longest));
        engine = std::make_unique<TrainEngine>(config, engine_settings, *backend, **mesh);
        const ProcessLimits limits(run.arguments, *processes, *backend, *mesh);
        limits.check(*engine, config, engine_settings, settings.gradient_accumulation_steps,
                     batches.part.replicas);
        model = std::make_unique<EngineModel>(
            *engine, config, *backend, **mesh,
            [this](const fs::path& folder) {
                write_model_texts(folder, config, engine->saved_dtype(), generation, *tokenizer,
                                  run.arguments);
            },
            CheckpointOptions{
                .with_optimizer = !run.arguments.flag("save_only_model"),
                .buffer_bytes = limits.checkpoint_buffer(*engine),
                .facts = {.tokenizer = tokenizer->fingerprint(),
                          .total_batch = settings.per_device_train_batch_size * settings.replicas *
                                         settings.gradient_accumulation_steps}});
        training = data_of(*training_rows, training_sampler(settings), StreamEnd::never);
        if (evaluation_rows)
            evaluation = data_of(*evaluation_rows, evaluation_sampler(settings), StreamEnd::after_one_epoch);
    }

    std::unique_ptr<TokenFileData> data_of(const MappedRows& mapped, SamplerOptions sampler,
                                           StreamEnd end) const {
        return std::make_unique<TokenFileData>(
            mapped.rows(),
            LoaderOptions{.sampler = std::move(sampler), .collator = collator, .part = batches.part}, end);
    }

    void make_loop() {
        loop.emplace(settings, *model, training.get(), evaluation.get(),
                     TrainerOptions{.before_writing = [this] { locked_folder->check_still_ours(); }});
        const bool with_bar =
            processes->is_first() && !run.arguments.optional_flag("disable_tqdm").value_or(false);
        if (with_bar) loop->add_callback(bar.emplace());
        loop->add_callback(*watch);
        if (messages().tell_info()) loop->add_callback(banner);
        if (std::FILE* records = speech->records())
            loop->add_callback(printer.emplace(LogFormat::hugging_face_5,
                                               with_bar ? LogStyle::beside_bar : LogStyle::plain, records));
    }

    void describe() const {
        for (const std::string& line : run.arguments.explanations()) messages().warning(line);
        for (const std::string& line : mesh_settings.explanations) messages().warning(line);
        if (processes->alone()) return;
        messages().info(
            mesh_table(mesh_settings, processes->machine, engine_settings.sequence_parallel, false));
        messages().info(batch_text(mesh_settings, settings.per_device_train_batch_size));
    }

    void need_weights() {
        if (has_weights) return;
        describe();
        // Nothing in these is collective, and a file that no rank can read is shown once.
        processes->ranks.together([&] { engine->allocate(); });
        if (const auto earlier = trained_model->trained) {
            processes->ranks.together([&] {
                earlier->check_there();
                const std::int64_t rows =
                    config.rows_before_resize > 0 ? config.rows_before_resize : config.vocab_size;
                if (rows != earlier->config().vocab_size)
                    throw Error("Another Trainer has enlarged the model's vocabulary in the meantime.",
                                "Make this Trainer after the other has trained.");
            });
            engine->take_weights([&](const LeafSpec& leaf) { return earlier->whole_leaf(leaf.name); },
                                 settings.seed);
        } else {
            processes->ranks.together([&] {
                const LoadReport report = engine->load_weights(weights, settings.seed);
                if (const std::string text = report.text(); !text.empty()) messages().warning(text);
            });
        }
        align_special_tokens({.bos = tokenizer->bos(), .eos = tokenizer->eos(), .pad = collator.pad_id},
                             config, generation);
        // Hugging Face turns the cache of generation off for training and saves it so.
        config.json["use_cache"] = run.arguments.flag("use_cache");
        has_weights = true;
    }

    TrainOutput train() {
        const Locked locked(*this);
        warn_of_little_space();
        need_weights();
        if (const std::string lost = lost_updates_warning(*engine, engine_settings, settings.learning_rate);
            !lost.empty())
            messages().warning(lost);
        if (!trained)
            trained = std::make_shared<TrainedWeights>(
                *engine, *backend, **mesh, config,
                end_ids(config, generation, (weights / "generation_config.json").string()));
        trained_model->trained = trained;  // also when another Trainer has trained it in between
        const Json metrics = loop->train();
        loop->save_state();
        TrainOutput output;
        output.global_step = loop->state().global_step;
        output.training_loss = metrics.value("train_loss", 0.0);
        output.metrics = numbers_in(metrics);
        for (const Json& record : loop->state().log_history)
            if (record.contains("loss")) output.losses.push_back(record.at("loss").get<double>());
        return output;
    }

    void warn_of_little_space() const {
        if (settings.save_strategy == IntervalStrategy::no) return;
        const TensorFiles files =
            engine->saved_tensors(!run.arguments.flag("save_only_model"), SaveModelOptions{}.max_shard_bytes);
        const std::string warning =
            space_warning(settings.output_dir, files.file_bytes(), "A checkpoint", words);
        if (!warning.empty()) messages().warning(warning);
    }

    std::map<std::string, double> evaluate() {
        if (!evaluation)
            throw AgreedError("There is nothing to evaluate on: the trainer has no eval_dataset.",
                              "Give one.");
        need_weights();
        return numbers_in(loop->evaluate());
    }

    void save_model(const std::string& folder) {
        need_weights();
        model->save(folder);
    }
};

Trainer::Trainer(const TrainerParts& parts) {
    in_all_processes("the constructor of a Trainer", [&] { run_ = std::make_unique<Run>(parts); });
}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

TrainOutput Trainer::train() {
    TrainOutput output;
    in_all_processes("train()", [&] { output = run_->train(); });
    return output;
}

std::map<std::string, double> Trainer::evaluate() {
    std::map<std::string, double> metrics;
    in_all_processes("evaluate()", [&] { metrics = run_->evaluate(); });
    return metrics;
}

void Trainer::save_model(const std::string& folder) const {
    in_all_processes(fmt::format("save_model(\"{}\")", folder), [&] { run_->save_model(folder); });
}

bool Trainer::is_world_process_zero() const {
    return run_->processes->is_first();
}

}  // namespace drover::v1
