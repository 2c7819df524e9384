#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>

#include "api/run_clm_settings.h"
#include "app/commands.h"
#include "app/run_clm_sources.h"
#include "args/help_text.h"
#include "core/python_text.h"
#include "core/stopwatch.h"
#include "model/saved_config.h"
#include "parallel/store_layout.h"
#include "train/engine_model.h"
#include "train/log_printer.h"
#include "train/model_card.h"
#include "train/non_finite_watch.h"
#include "train/operation_trace.h"
#include "train/progress_bar.h"
#include "train/results_files.h"
#include "train/run_banner.h"
#include "train/run_summary.h"
#include "train/trainer.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

void say(const std::string& line) {
    fmt::print(stderr, "{}\n", line);
}

/// A run from its arguments to its files.
class ClmRun {
  public:
    explicit ClmRun(const RunArguments& run)
        : arguments_(run.arguments),
          settings_(trainer_settings(arguments_)),
          model_(find_model_and_tokenizer(arguments_)),
          non_finite_watch_(on_non_finite(arguments_)) {
        if (arguments_.flag("do_train") || arguments_.flag("do_eval"))
            tokens_ = find_tokens(arguments_, model_, say);
        backend_ = make_backend();
        precision_ = chosen_precision(arguments_, model_.config.dtype);
        make_engine();
    }

    void describe() const {
        say(fmt::format("{}; {} parameters ({} active); {}", backend_->description(),
                        with_thousands(parameters().total), with_thousands(parameters().active),
                        precision_text(precision_)));
        say("Memory:\n" + engine_->memory_plan().table());
        if (arguments_.flag("spmd_debug"))
            say(placement_table(make_param_spec(model_.config), mesh_, Sharding::replicated,
                                precision_.parameters));
        if (tokens_.train) {
            const StepPlan plan = Trainer(settings_, *engine_model_, training_.get(), nullptr).plan();
            const double tokens = plan.trained_samples * static_cast<double>(tokens_.row_length);
            say(fmt::format("{} rows, {} epochs, {} updates of {} rows, about {} tokens",
                            training_->samples(), plan.epochs, plan.max_steps, plan.total_batch_size,
                            with_thousands(static_cast<std::int64_t>(tokens))));
            // What depends on the number of steps could not be compared before.
            if (const Json& deepspeed = arguments_.json("deepspeed"); !deepspeed.is_null())
                read_deepspeed_settings(deepspeed, "--deepspeed", arguments_,
                                        {.total_steps = plan.max_steps});
            if (arguments_.flag("dry_run")) say(time_estimate(tokens));
        }
        check_memory();
    }

    void go() {
        engine_->allocate();
        const Stopwatch preparation;
        prepare_weights();
        align_special_tokens(
            {.bos = model_.tokenizer->bos(), .eos = model_.tokenizer->eos(), .pad = model_.tokenizer->pad()},
            model_.config, model_.generation);
        // Hugging Face turns the cache of generation off for training and saves it so.
        model_.config.json["use_cache"] = arguments_.flag("use_cache");

        Trainer trainer(settings_, *engine_model_, training_.get(), evaluation_.get(),
                        {.model_preparation_seconds = preparation.seconds()});
        add_callbacks(trainer);
        if (arguments_.flag("do_train")) train(trainer);
        if (arguments_.flag("do_eval")) evaluate(trainer);
        write_card(trainer);
        fmt::print("{}", summary_.text());
        std::fflush(stdout);
        say(fmt::format("The files are in {}.", settings_.output_dir.string()));
    }

  private:
    std::unique_ptr<Backend> make_backend() const {
        if (const auto threads = arguments_.optional_integer("threads"))
            omp_set_num_threads(static_cast<int>(*threads));
        if (arguments_.text("device") == "cuda") return make_cuda_backend(0);
        return make_cpu_backend();
    }

    ParameterCounts parameters() const { return count_parameters(model_.config); }

    /// Six operations per token and active parameter, at the rate that a step usually reaches.
    std::string time_estimate(double tokens) const {
        constexpr double usual_share_of_peak = 0.7;
        const double peak = backend_->measure_peaks().flops(precision_.parameters);
        const double seconds =
            6 * static_cast<double>(parameters().active) * tokens / (usual_share_of_peak * peak);
        return fmt::format(
            "Training will take about {:.0f} min at {:.0f} % of this machine's {:.0f} GFLOP/s.",
            std::ceil(seconds / 60), 100 * usual_share_of_peak, peak / 1e9);
    }

    /// Error before anything is allocated, when the plan is larger than the memory that it may take.
    void check_memory() const {
        const double installed =
            static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
        const double allowed = installed * arguments_.optional_number("memory_fraction").value_or(1);
        const std::size_t needed = engine_->memory_plan().total;
        if (static_cast<double>(needed) <= allowed) return;
        throw Error(
            fmt::format("The run needs {}, but may take {} of this machine's {}.", bytes_text(needed),
                        bytes_text(static_cast<std::size_t>(allowed)),
                        bytes_text(static_cast<std::size_t>(installed))),
            "Use a smaller --per_device_train_batch_size with more --gradient_accumulation_steps, a smaller "
            "--block_size, --recompute full, or --dtype bfloat16.");
    }

    void make_engine() {
        TrainEngineOptions options = engine_options(arguments_, precision_);
        options.model.rows = arguments_.flag("do_train") ? settings_.per_device_train_batch_size
                                                         : settings_.per_device_eval_batch_size;
        options.model.row_length = std::max<std::int64_t>(tokens_.row_length, 1);
        engine_ = std::make_unique<TrainEngine>(model_.config, options, *backend_, mesh_);
        engine_model_ = std::make_unique<EngineModel>(
            *engine_, model_.config, *backend_, mesh_, settings_.seed, [this](const fs::path& folder) {
                write_file_atomically(folder / "config.json",
                                      model_.config.saved_text(engine_->saved_dtype()));
                write_file_atomically(folder / "generation_config.json",
                                      generation_config_text(model_.generation));
                save_tokenizer(*model_.tokenizer, folder);
                write_file_atomically(folder / "training_args.json",
                                      python_json(arguments_.to_json(), 2) + "\n");
            });
        if (tokens_.train)
            training_ =
                make_data(*tokens_.train, training_sampler(settings_), "max_train_samples", StreamEnd::never);
        if (tokens_.validation)
            evaluation_ = make_data(*tokens_.validation, evaluation_sampler(settings_), "max_eval_samples",
                                    StreamEnd::after_one_epoch);
    }

    std::unique_ptr<TokenFileData> make_data(const TokenFile& file, SamplerOptions sampler,
                                             const char* max_samples, StreamEnd end) const {
        if (end == StreamEnd::never) {
            const std::string& order = arguments_.text("train_sampling_strategy");
            if (arguments_.flag("group_by_length") || order == "group_by_length") {
                sampler.order = SampleOrder::by_length;
                sampler.lengths = file.rows().lengths();
                sampler.length_group =
                    settings_.per_device_train_batch_size * settings_.gradient_accumulation_steps;
            } else if (arguments_.flag("streaming") || order == "sequential") {
                sampler.order = SampleOrder::sequential;
            }
        }
        return std::make_unique<TokenFileData>(
            file.rows(),
            LoaderOptions{
                .sampler = std::move(sampler),
                .collator = {.pad_id = pad_id(), .ignore_every_pad_id = arguments_.text("packing") == "none"},
                .max_samples = arguments_.optional_integer(max_samples)},
            end);
    }

    /// Blocks are never padded, and every token of theirs is a label.
    TokenId pad_id() const {
        if (arguments_.text("packing") == "hf") return 0;
        const std::string name = arguments_.optional_text("pad_token").value_or("");
        if (name == "unk") {
            if (const auto unk = model_.tokenizer->unk()) return *unk;
            throw Error("--pad_token is \"unk\", but the tokenizer has no such token.",
                        "Use --pad_token eos.");
        }
        if (!name.empty() && name != "eos") {
            std::vector<TokenId> ids;
            model_.tokenizer->encode(name, SpecialTokens::omit, ids);
            if (ids.size() == 1) return ids[0];
            throw Error(fmt::format("--pad_token is \"{}\", which is not one token of this tokenizer.", name),
                        "Use eos, unk, or the text of a token.");
        }
        return choose_pad_id(*model_.tokenizer, name == "eos");
    }

    void prepare_weights() {
        if (model_.weights.empty()) {
            say(fmt::format("Training new model from scratch - Total size={:.2f}M params",
                            static_cast<double>(parameters().total) / (1 << 20)));
            engine_->initialize_weights(settings_.seed);
            return;
        }
        const LoadReport report = engine_->load_weights(model_.weights, settings_.seed);
        if (const std::string text = report.text(); !text.empty()) say(text);
    }

    void add_callbacks(Trainer& trainer) {
        const bool no_bar = arguments_.optional_flag("disable_tqdm").value_or(false);
        if (!no_bar) {
            // Measuring takes a moment, which is worth it where somebody watches.
            const bool watched = isatty(STDERR_FILENO) != 0;
            bar_.emplace(watched ? backend_->measure_peaks().flops(precision_.parameters) : 0);
            trainer.add_callback(*bar_);
        }
        trainer.add_callback(non_finite_watch_);
        trainer.add_callback(banner_);
        log_printer_.emplace(
            arguments_.text("log_format") == "json" ? LogFormat::json : LogFormat::hugging_face_5,
            no_bar ? LogStyle::plain : LogStyle::beside_bar);
        trainer.add_callback(*log_printer_);
        trainer.add_callback(summary_);
        if (arguments_.integer("profile_epoch") >= 0 || arguments_.integer("profile_step") >= 0) {
            tracer_.emplace(
                *backend_,
                TraceSettings{.epoch = std::max<std::int64_t>(0, arguments_.integer("profile_epoch")),
                              .step = std::max<std::int64_t>(0, arguments_.integer("profile_step")),
                              .seconds = static_cast<double>(arguments_.integer("profile_duration_ms")) / 1e3,
                              .folder = arguments_.optional_text("profile_logdir")
                                            .value_or((settings_.output_dir / "profile").string())});
            trainer.add_callback(*tracer_);
        }
    }

    void train(Trainer& trainer) {
        Json metrics = trainer.train();
        if (arguments_.flag("save_final_model")) engine_model_->save(settings_.output_dir);
        metrics["train_samples"] = training_->samples();
        report("train", metrics);
        trainer.save_state();
        if (tracer_ && !tracer_->written().empty())
            say(fmt::format("The trace is in {}.", tracer_->written().string()));
    }

    void evaluate(Trainer& trainer) {
        say("*** Evaluate ***");
        Json metrics = trainer.evaluate();
        metrics["eval_samples"] = evaluation_->samples();
        metrics["perplexity"] = std::exp(metrics.at("eval_loss").get<double>());
        report("eval", metrics);
    }

    void report(std::string_view split, const Json& metrics) const {
        fs::create_directories(settings_.output_dir);
        fmt::print("{}", metrics_table(split, metrics));
        std::fflush(stdout);
        save_metrics(settings_.output_dir, split, metrics);
    }

    void write_card(const Trainer& trainer) const {
        const OptimizerSettings optimizer = optimizer_settings(arguments_);
        const std::string card =
            model_card({.name = settings_.output_dir.filename().string(),
                        .base_model = arguments_.optional_text("model_name_or_path").value_or(""),
                        .dataset = tokens_.name,
                        .drover_version = DROVER_VERSION,
                        .optimizer = optimizer.name,
                        .precision = precision_.parameters == DType::f32 ? "" : precision_text(precision_)},
                       settings_, trainer.state());
        fs::create_directories(settings_.output_dir);
        write_file_atomically(settings_.output_dir / "README.md", card);
    }

    const Arguments& arguments_;
    TrainerSettings settings_;
    ModelSource model_;
    TokenSource tokens_;
    std::unique_ptr<Backend> backend_;
    Precision precision_;
    const Mesh mesh_;
    std::unique_ptr<TrainEngine> engine_;
    std::unique_ptr<EngineModel> engine_model_;
    std::unique_ptr<TokenFileData> training_, evaluation_;
    std::optional<ProgressBar> bar_;
    NonFiniteWatch non_finite_watch_;
    RunBanner banner_;
    RunSummary summary_;
    std::optional<LogPrinter> log_printer_;
    std::optional<StepTracer> tracer_;
};

/// A folder that holds another run's files is not written over by accident.
void check_output_folder(const Arguments& arguments) {
    const fs::path folder = arguments.text("output_dir");
    if (!arguments.flag("do_train") || arguments.flag("overwrite_output_dir") || arguments.flag("dry_run"))
        return;
    if (fs::exists(folder) && !fs::is_directory(folder))
        throw Error(fmt::format("--output_dir {} is a file.", folder.string()), "Name a folder.");
    bool taken = fs::exists(folder / "trainer_state.json") || fs::exists(folder / single_weights_file) ||
                 fs::exists(folder / weights_index_file);
    if (fs::exists(folder))
        for (const auto& entry : fs::directory_iterator(folder))
            taken = taken || entry.path().filename().string().starts_with("checkpoint-");
    if (taken)
        throw Error(fmt::format("--output_dir {} already holds a trained model.", folder.string()),
                    "Choose another folder, or add --overwrite_output_dir.");
}

/// The folder of the program, where Hugging Face's parser would look for the file of its script.
fs::path arguments_file() {
    std::error_code ignored;
    return fs::read_symlink("/proc/self/exe", ignored).parent_path() / "run_clm.args";
}

void run_clm(const std::vector<std::string>& words) {
    const RunArguments run =
        parse_run_arguments(words, {.environment = read_environment(), .args_file = arguments_file()});
    const Arguments& arguments = run.arguments;
    if (run.asks_for_help) {
        fmt::print("{}", arguments.flag("help_markdown") ? markdown_page() : help_text());
        return;
    }
    for (const std::string& line : arguments.explanations()) say(line);
    if (arguments.has("resume_from_checkpoint"))
        throw Error(
            "--resume_from_checkpoint is not available in this version: checkpoints do not hold the "
            "optimizer yet.",
            "Start a new run from the checkpoint's weights with --model_name_or_path.");
    check_output_folder(arguments);
    fmt::print(stderr, "{}", arguments.settings_text(arguments.flag("dry_run")));
    ClmRun clm(run);
    clm.describe();
    if (!arguments.flag("dry_run")) clm.go();
}

}  // namespace

void add_run_clm_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("run_clm",
                                           "Trains or fine-tunes a model from a run_clm.py command line.\n"
                                           "Example: drover run_clm --config_name config.json "
                                           "--tokenizer_name tokenizer/ --train_file text.txt --do_train "
                                           "--output_dir out");
    command->set_help_flag();
    command->prefix_command();
    command->callback([command] { run_clm(command->remaining()); });
}

}  // namespace drover
