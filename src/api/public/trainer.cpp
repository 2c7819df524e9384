#include "drover/trainer.h"

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <atomic>

#include "api/choose_backend.h"
#include "api/launch_environment.h"
#include "api/model_texts.h"
#include "api/public/parts.h"
#include "api/run_clm_settings.h"
#include "core/error.h"
#include "core/python_text.h"
#include "data/token_file_writer.h"
#include "model/saved_config.h"
#include "train/engine_model.h"
#include "train/log_printer.h"
#include "train/progress_bar.h"
#include "train/run_banner.h"
#include "train/trainer.h"

namespace drover::v1 {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> fsdp_v2_enabled = false;

/// The arguments as words of a command line of run_clm, whose rules and checks count.
std::vector<std::string> words_of(const TrainerParts& parts) {
    const TrainingArguments& a = parts.args;
    std::vector<std::string> words = {"--do_train"};
    const auto add = [&](const std::string& name, const std::string& value) {
        words.push_back("--" + name);
        words.push_back(value);
    };
    add("model_name_or_path", parts.model.parts()->folder.string());
    add("dtype", parts.model.parts()->dtype);
    add("train_file", parts.train_dataset.parts()->files.files.front().string());  // where the rows come from
    add("packing", "none");
    add("output_dir", a.output_dir);
    add("per_device_train_batch_size", std::to_string(a.per_device_train_batch_size));
    add("per_device_eval_batch_size", std::to_string(a.per_device_eval_batch_size));
    add("gradient_accumulation_steps", std::to_string(a.gradient_accumulation_steps));
    add("num_train_epochs", python_float(a.num_train_epochs));
    add("max_steps", std::to_string(a.max_steps));
    add("learning_rate", python_float(a.learning_rate));
    add("lr_scheduler_type", a.lr_scheduler_type);
    add("warmup_steps", python_float(a.warmup_steps));
    add("optim", a.optim);
    add("weight_decay", python_float(a.weight_decay));
    add("max_grad_norm", python_float(a.max_grad_norm));
    add("logging_steps", python_float(a.logging_steps));
    add("save_strategy", a.save_strategy);
    add("save_steps", python_float(a.save_steps));
    add("eval_strategy", a.eval_strategy);
    if (parts.eval_dataset) words.emplace_back("--do_eval");
    add("dataloader_drop_last", a.dataloader_drop_last ? "True" : "False");
    add("seed", std::to_string(a.seed));
    add("disable_tqdm", a.disable_tqdm ? "True" : "False");
    if (!a.fsdp.fsdp.empty()) add("fsdp", a.fsdp.fsdp);
    if (!a.fsdp.fsdp_config.empty()) add("fsdp_config", a.fsdp.fsdp_config);
    for (const auto& [name, value] : a.more) add(name, value);
    return words;
}

RunArguments checked_arguments(const TrainerParts& parts) {
    RunArguments run =
        parse_run_arguments(words_of(parts), {.environment = read_environment(), .args_file = {}});
    if (run.fsdp && run.fsdp->xla_fsdp_v2 && !fsdp_v2_enabled)
        throw Error("The training arguments ask for FSDP v2, which is not enabled.",
                    "Call drover::use_fsdp_v2() before everything else.");
    return run;
}

/// A token file of mapped rows, removed when it is no longer needed.
class MappedRows {
  public:
    MappedRows(const Split& split, const drover::Tokenizer& tokenizer, std::int64_t vocab_size) {
        static std::atomic<int> number = 0;
        path_ = fs::temp_directory_path() / fmt::format("drover-{}-{}.tokens", getpid(), number++);
        TokenFileWriter writer(path_, tokenizer, {.packing = Packing::none, .block_size = 0});
        for (const std::vector<TokenId>& row : split.input_ids()) {
            if (row.empty()) continue;  // as an example it has nothing to predict
            writer.add(row);
            longest_ = std::max(longest_, static_cast<std::int64_t>(row.size()));
        }
        writer.finish();
        file_.emplace(path_);
        file_->rows().check_vocabulary(vocab_size);
    }
    ~MappedRows() {
        std::error_code ignored;
        fs::remove(path_, ignored);
    }
    MappedRows(const MappedRows&) = delete;
    MappedRows& operator=(const MappedRows&) = delete;

    const TokenRows& rows() const { return file_->rows(); }
    std::int64_t longest() const { return longest_; }

  private:
    fs::path path_;
    std::optional<TokenFile> file_;
    std::int64_t longest_ = 0;
};

std::map<std::string, double> numbers_in(const Json& record) {
    std::map<std::string, double> numbers;
    for (const auto& [key, value] : record.items())
        if (value.is_number()) numbers[key] = value.get<double>();
    return numbers;
}

ModelConfig config_of(const TrainerParts& parts) {
    ModelConfig config = parts.model.parts()->config;
    const std::int64_t tokens = parts.data_collator.tokenizer().size();
    if (tokens > config.vocab_size) config.resize_vocabulary(tokens);
    return config;
}

/// Each of several processes would train alone and write the same files.
void refuse_other_processes() {
    const LaunchEnvironment launch = read_launch_environment();
    if (launch.has_others())
        throw Error(fmt::format("A Trainer of the C++ API trains in one process, but {} were started ({}).",
                                launch.processes, launch.told_by),
                    "Start it without mpirun or srun, or train with mpirun drover run_clm.");
}

}  // namespace

void use_fsdp_v2() {
    fsdp_v2_enabled = true;
}

FsdpTrainingArguments fsdp_v2_training_args(const CausalLM& model) {
    const std::map<std::string, std::string> classes = {{"llama", "LlamaDecoderLayer"},
                                                        {"mixtral", "MixtralDecoderLayer"}};
    const auto found = classes.find(model.model_type());
    if (found == classes.end())
        throw Error(
            fmt::format("The decoder class of a model of type \"{}\" is not known.", model.model_type()),
            "Fill in FsdpTrainingArguments by hand.");
    const Json config = {{"transformer_layer_cls_to_wrap", {found->second}},
                         {"xla", true},
                         {"xla_fsdp_v2", true},
                         {"xla_fsdp_grad_ckpt", true}};
    return {.fsdp = "full_shard", .fsdp_config = config.dump()};
}

/// The parts of a run, as `drover run_clm` puts them together.
struct Trainer::Run {
    RunArguments run;
    TrainerSettings settings;
    ModelConfig config;
    fs::path weights;
    std::shared_ptr<const drover::Tokenizer> tokenizer;
    std::int32_t pad;
    std::int64_t pad_to_multiple_of;
    std::unique_ptr<Backend> backend;
    const Mesh mesh{};
    MappedRows training_rows;
    std::optional<MappedRows> evaluation_rows;
    Json generation;
    std::unique_ptr<TrainEngine> engine;
    std::unique_ptr<EngineModel> model;
    std::unique_ptr<TokenFileData> training, evaluation;
    std::optional<ProgressBar> bar;
    NonFiniteWatch watch;
    RunBanner banner;
    std::optional<LogPrinter> printer;
    std::optional<drover::Trainer> loop;
    bool has_weights = false;

    explicit Run(const TrainerParts& parts)
        : run(checked_arguments(parts)),
          settings(trainer_settings(run.arguments)),
          config(config_of(parts)),
          weights(parts.model.parts()->folder),
          tokenizer(parts.data_collator.tokenizer().parts()->tokenizer),
          pad(parts.data_collator.tokenizer().pad_token_id()),
          pad_to_multiple_of(parts.data_collator.options().pad_to_multiple_of),
          training_rows(parts.train_dataset, *tokenizer, config.vocab_size),
          watch(on_non_finite(run.arguments)) {
        refuse_other_processes();
        if (parts.eval_dataset) evaluation_rows.emplace(*parts.eval_dataset, *tokenizer, config.vocab_size);
        if (const auto threads = run.arguments.optional_integer("threads"))
            omp_set_num_threads(static_cast<int>(*threads));
        backend = make_chosen_backend(run.arguments.text("device"));
        read_generation_config();
        make_engine();
        make_loop();
    }

    void read_generation_config() {
        const fs::path file = weights / "generation_config.json";
        generation = fs::exists(file) ? read_json_file(file) : derived_generation_config(config);
    }

    void make_engine() {
        TrainEngineOptions options =
            engine_options(run.arguments, chosen_precision(run.arguments, config.dtype, backend->device()));
        std::int64_t longest = training_rows.longest();
        if (evaluation_rows) longest = std::max(longest, evaluation_rows->longest());
        options.model.rows = settings.per_device_train_batch_size;
        options.model.row_length =
            (longest + pad_to_multiple_of - 1) / pad_to_multiple_of * pad_to_multiple_of;
        engine = std::make_unique<TrainEngine>(config, options, *backend, mesh);
        model =
            std::make_unique<EngineModel>(*engine, config, *backend, mesh, [this](const fs::path& folder) {
                write_model_texts(folder, config, engine->saved_dtype(), generation, *tokenizer,
                                  run.arguments);
            });
        const CollatorOptions collator{
            .pad_id = pad, .ignore_every_pad_id = true, .pad_to_multiple_of = pad_to_multiple_of};
        training = std::make_unique<TokenFileData>(
            training_rows.rows(), LoaderOptions{.sampler = training_sampler(settings), .collator = collator},
            StreamEnd::never);
        if (evaluation_rows)
            evaluation = std::make_unique<TokenFileData>(
                evaluation_rows->rows(),
                LoaderOptions{.sampler = evaluation_sampler(settings), .collator = collator},
                StreamEnd::after_one_epoch);
    }

    void make_loop() {
        loop.emplace(settings, *model, training.get(), evaluation.get());
        const bool no_bar = run.arguments.optional_flag("disable_tqdm").value_or(false);
        if (!no_bar) loop->add_callback(bar.emplace());
        loop->add_callback(watch);
        loop->add_callback(banner);
        loop->add_callback(
            printer.emplace(LogFormat::hugging_face_5, no_bar ? LogStyle::plain : LogStyle::beside_bar));
    }

    void need_weights() {
        if (has_weights) return;
        for (const std::string& line : run.arguments.explanations()) fmt::print(stderr, "{}\n", line);
        engine->allocate();
        const LoadReport report = engine->load_weights(weights, settings.seed);
        if (const std::string text = report.text(); !text.empty()) fmt::print(stderr, "{}\n", text);
        align_special_tokens({.bos = tokenizer->bos(), .eos = tokenizer->eos(), .pad = pad}, config,
                             generation);
        // Hugging Face turns the cache of generation off for training and saves it so.
        config.json["use_cache"] = run.arguments.flag("use_cache");
        has_weights = true;
    }
};

Trainer::Trainer(const TrainerParts& parts) : run_(std::make_unique<Run>(parts)) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

TrainOutput Trainer::train() {
    run_->need_weights();
    const Json metrics = run_->loop->train();
    run_->loop->save_state();
    TrainOutput output;
    output.global_step = run_->loop->state().global_step;
    output.training_loss = metrics.value("train_loss", 0.0);
    output.metrics = numbers_in(metrics);
    for (const Json& record : run_->loop->state().log_history)
        if (record.contains("loss")) output.losses.push_back(record.at("loss").get<double>());
    return output;
}

std::map<std::string, double> Trainer::evaluate() {
    if (!run_->evaluation)
        throw Error("There is nothing to evaluate on: the trainer has no eval_dataset.", "Give one.");
    run_->need_weights();
    return numbers_in(run_->loop->evaluate());
}

void Trainer::save_model(const std::string& folder) const {
    run_->need_weights();
    run_->model->save(folder);
}

}  // namespace drover::v1
