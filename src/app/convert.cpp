#include <fmt/format.h>

#include <charconv>
#include <memory>

#include "app/commands.h"
#include "app/nxdt_yaml.h"
#include "args/command.h"
#include "backend/backend.h"
#include "convert/conversion_writer.h"
#include "convert/dcp_checkpoint.h"
#include "convert/gguf_plan.h"
#include "convert/merged_checkpoint.h"
#include "convert/meta_checkpoint.h"
#include "convert/model_plan.h"
#include "convert/nxd_plan.h"
#include "convert/open_training_checkpoint.h"
#include "convert/zero_checkpoint.h"
#include "core/console.h"
#include "core/json.h"
#include "core/json_text.h"
#include "core/number_text.h"
#include "core/progress_line.h"
#include "core/text_file.h"
#include "core/words.h"
#include "run/adapter_source.h"
#include "run/model_source.h"
#include "text/tokenizer.h"
#include "train/checkpoint/run_state.h"
#include "train/state/trainer_state.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view q8_0_name = "q8_0";

struct ConvertOptions {
    bool from_full = false, to_full = false, from_xser = false, to_xser = false;
    std::string input, model_name, output, config, model_key = "model", backend;
    std::optional<std::int64_t> tensor, pipeline, experts;
    std::int64_t virtual_pipeline = 1, kv_multiplier = 1, layers = 0, round_factor = 0;
    bool qkv_linear = false, fuse_qkv = false, coalesce_qkv = false, load_xser = false, save_xser = false,
         pad_heads = false;
    std::string style = "hf", yaml, format, dtype, shard_size;
    std::vector<std::string> adapters;
};

/// "5GB" as transformers reads it: decimal, or binary with an i (5GiB).
std::uint64_t bytes_in(const std::string& text) {
    if (text.empty()) return 5'000'000'000;
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
    constexpr std::pair<std::string_view, double> units[] = {
        {"KB", 1e3},     {"MB", 1e6},        {"GB", 1e9},          {"TB", 1e12},
        {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
    for (const auto& [name, factor] : units)
        if (error == std::errc() && unit == name && number > 0)
            return static_cast<std::uint64_t>(number * factor);
    throw UsageError(fmt::format("--max_shard_size is \"{}\".", text),
                     "It must be a size such as 5GB, 200MB or 1GiB.");
}

/// Files beside a model's weights that belong to it.
constexpr std::string_view side_files[] = {
    "generation_config.json",  "tokenizer.json",    "tokenizer.model",
    "tokenizer_config.json",   "vocab.json",        "merges.txt",
    "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"};

/// The model that is read, as the options name it.
fs::path input_of(const ConvertOptions& options) {
    if (options.input.empty() && options.model_name.empty() && !options.adapters.empty())
        return find_base_of_adapter(find_pretrained(options.adapters.front(), "--merge_adapter"));
    if (options.input.empty() == options.model_name.empty())
        throw UsageError(options.input.empty() ? "Neither --input_dir nor --hf_model_name is given."
                                               : "Both --input_dir and --hf_model_name are given.",
                         "Give one of them.");
    if (!options.model_name.empty()) return find_pretrained(options.model_name, "--hf_model_name");
    if (!fs::exists(options.input))
        throw Error(fmt::format("--input_dir is {}, and there is no such file or folder.", options.input),
                    "Check the path.");
    const fs::path fsdp = fs::path(options.input) / "pytorch_model_fsdp_0";
    if (DcpCheckpoint::is_one(fsdp)) return fsdp;  // in a checkpoint of Hugging Face's Trainer
    const fs::path full_fsdp = fs::path(options.input) / "pytorch_model_fsdp.bin";
    if (fs::exists(full_fsdp)) return full_fsdp;
    const fs::path checkpoint = fs::path(options.input) / "checkpoint.pt";
    // As the conversion to a full model leaves it.
    return options.from_full && fs::exists(checkpoint) ? checkpoint : fs::path(options.input);
}

/// Where the config.json is: named, or beside the weights; empty if there is none.
fs::path config_file(const ConvertOptions& options, const fs::path& input) {
    if (!options.config.empty())
        return fs::is_directory(options.config) ? fs::path(options.config) / "config.json"
                                                : fs::path(options.config);
    for (const fs::path& folder : {input, home_of_checkpoint(input)})
        if (fs::exists(folder / "config.json")) return folder / "config.json";
    return {};
}

/// One that was only found beside the weights need not be of a kind that is known.
std::optional<ModelConfig> read_config(const ConvertOptions& options, const fs::path& file) {
    if (file.empty()) return std::nullopt;
    try {
        return ModelConfig::from_path(file);
    } catch (const Error& error) {
        if (!options.config.empty()) throw;
        print_log(stderr, "Converting without a config: {}\n", error.cause());
        return std::nullopt;
    }
}

void check_options(const ConvertOptions& options) {
    const int modes = options.from_full + options.to_full + options.from_xser + options.to_xser;
    if (modes > 1) throw UsageError("More than one --convert_… flag is given.", "Give one of them.");
    if (modes == 0 && options.format.empty() && options.adapters.empty())
        throw UsageError("No --convert_… flag and no --output_format is given.",
                         "Say what to make: shards (--convert_from_full_state), a full model "
                         "(--convert_to_full_state), or a full model in another format (--output_format).");
    const bool makes_full = modes == 0 || options.to_full;
    if (!makes_full && !options.format.empty())
        throw UsageError("--output_format is given, but shards are written.",
                         "It is for full models; shards are files of torch.save, or with --save_xser one for "
                         "each tensor.");
    if (!options.adapters.empty() && (options.to_full || options.from_xser || options.to_xser))
        throw UsageError("--merge_adapter is given, but files per rank are read.",
                         "Adapters are merged into a model folder: convert it to one first.");
    if (!options.adapters.empty() && options.format == "resumable")
        throw UsageError("--merge_adapter is given with --output_format resumable.",
                         "The optimizer's state is that of the weights before: choose safetensors.");
    if (options.format == "resumable" && !options.dtype.empty())
        throw UsageError("--dtype is given with --output_format resumable.",
                         "A run continues from the precision that its optimizer has: leave --dtype out.");
    if (!options.shard_size.empty() && options.format != "safetensors" && options.format != "bin")
        throw UsageError("--max_shard_size is given, but only safetensors and bin have shards.",
                         "Leave it out, or choose one of them with --output_format.");
    if (options.dtype == q8_0_name && options.format != "gguf")
        throw UsageError("--dtype q8_0 is given, but only GGUF files have it.", "Add --output_format gguf.");
    if (options.fuse_qkv && options.from_full && !options.qkv_linear)
        throw UsageError("--fuse_qkv is given without --qkv_linear.",
                         "Add --qkv_linear, or use --coalesce_qkv.");
    if (options.qkv_linear && options.coalesce_qkv)
        throw UsageError("Both --qkv_linear and --coalesce_qkv are given.", "Give one of them.");
    if (options.kv_multiplier > 1 && options.from_full && !options.qkv_linear)
        throw UsageError("--kv_size_multiplier is given without --qkv_linear.",
                         "Heads are repeated only in that layer: add --qkv_linear.");
    if (options.pad_heads && options.from_full && !options.qkv_linear)
        throw UsageError("--pad_attn_heads is given without --qkv_linear.",
                         "Heads are padded only in that layer: add --qkv_linear.");
    if ((options.pad_heads || options.round_factor > 0) && !options.from_full && !options.to_full)
        throw UsageError("--pad_attn_heads or --i_tp_round_factor is given, but no ranks are cut or joined.",
                         "Leave it out.");
    if (!options.yaml.empty() && !options.config.empty())
        throw UsageError("Both --config and --nxdt_yaml_config are given.", "Give one of them.");
    if (!options.yaml.empty() && options.format == "gguf")
        throw UsageError("--nxdt_yaml_config is given, but a GGUF file needs the whole config.",
                         "Give the model's config.json with --config.");
    if (!options.yaml.empty() && !options.from_full && !options.to_full)
        throw UsageError("--nxdt_yaml_config is given, but no ranks are cut or joined.",
                         "Give the model's config.json with --config.");
    if (options.style == "megatron" && (options.kv_multiplier > 1 || options.fuse_qkv || options.pad_heads))
        throw UsageError(
            "--model_style megatron is given with --kv_size_multiplier, --fuse_qkv or --pad_attn_heads.",
            "Heads are not repeated or padded and q is not fused in that style: leave them out.");
}

NxdSettings nxd_settings(const ConvertOptions& options, std::optional<ModelConfig> config) {
    NxdSettings settings{.sizes = {.tensor = options.tensor.value_or(1),
                                   .pipeline = options.pipeline.value_or(1),
                                   .experts = options.experts.value_or(1)},
                         .virtual_pipeline = options.virtual_pipeline,
                         .qkv_linear = options.qkv_linear,
                         .fuse_qkv = options.fuse_qkv,
                         .coalesce_qkv = options.coalesce_qkv,
                         .megatron = options.style == "megatron",
                         .kv_multiplier = options.kv_multiplier,
                         .pads_heads = options.pad_heads,
                         .inner_multiple = options.round_factor,
                         .xser = options.save_xser || options.to_xser,
                         .config = std::move(config)};
    if (!options.backend.empty())
        settings.order = options.backend == "trn2" ? KvSlots::Order::adjacent : KvSlots::Order::interleaved;
    if (!options.dtype.empty() && options.dtype != q8_0_name)
        settings.dtype = floating_dtype_from_name(options.dtype, "--dtype");
    return settings;
}

/// --n_layers is not needed, since layers are counted; a wrong one shows a wrong input.
void check_layers(const ConvertOptions& options, std::int64_t found) {
    if (options.layers > 0 && options.layers != found)
        throw Error(fmt::format("--n_layers is {}, but the model has {} layers.", options.layers, found),
                    "Check --input_dir, or leave --n_layers out.");
}

template <class Tensors>
void check_layers_of(const ConvertOptions& options, const Tensors& tensors) {
    std::vector<std::string> names;
    for (const auto& tensor : tensors) names.push_back(tensor.name);
    check_layers(options, count_layers(names, "The model"));
}

fs::path folder_of(const fs::path& file_or_folder) {
    return fs::is_directory(file_or_folder) ? file_or_folder : file_or_folder.parent_path();
}

/// The config with the dtype that the weights get, and the tokenizer's files.
void add_texts(ConversionPlan& plan, const NxdSettings& settings, const fs::path& config,
               const fs::path& input) {
    if (!config.empty()) {
        Json json = read_json_file(config);
        if (settings.dtype && json.is_object())
            json[json.contains("torch_dtype") ? "torch_dtype" : "dtype"] = name_of(*settings.dtype);
        const bool separate = settings.config && settings.config->head_from_embedding;
        if (separate) json["tie_word_embeddings"] = false;
        plan.texts["config.json"] = settings.dtype || separate ? json.dump(2) + "\n" : read_text_file(config);
    }
    for (const fs::path& folder : {home_of_checkpoint(input), folder_of(input)}) {
        for (const std::string_view name : side_files)
            if (fs::exists(folder / name)) plan.texts[std::string(name)] = read_text_file(folder / name);
        for (const fs::path& file : more_template_files(folder))
            plan.texts[fmt::format("{}/{}", more_templates_folder, file.filename().string())] =
                read_text_file(file);
    }
}

/// The tokenizer is beside the weights or, where they have none, beside the config.
ConversionPlan plan_for_llama_cpp(const ConvertOptions& options, const NxdSettings& settings,
                                  std::vector<PlannedTensor> tensors, const fs::path& config_file,
                                  const fs::path& input) {
    if (!settings.config)
        throw Error("A GGUF file needs the model's config, and there is none.",
                    "Add --config with the model's config.json.");
    const ModelConfig& config = *settings.config;
    GgufVocabulary vocabulary = GgufVocabulary::of_folder(folder_of(input), config.vocab_size);
    if (vocabulary.tokens.empty() && !config_file.empty())
        vocabulary = GgufVocabulary::of_folder(config_file.parent_path(), config.vocab_size);
    if (vocabulary.tokens.empty())
        print_log(stderr, "There is no tokenizer beside the weights: the model will take token ids only.\n");
    if (!vocabulary.bos && config.bos_token_id >= 0) vocabulary.bos = config.bos_token_id;
    if (!vocabulary.eos && !config.eos_token_ids.empty()) vocabulary.eos = config.eos_token_ids[0];
    if (config.sliding_window > 0 && config.sliding_window < config.max_position_embeddings)
        print_log(stderr,
                  "llama.cpp has no sliding window for this model: results agree for up to {} tokens.\n",
                  config.sliding_window);
    const fs::path named = fs::absolute(folder_of(input)).lexically_normal();
    const std::string name = (named.has_filename() ? named : named.parent_path()).filename().string();
    return plan_gguf(std::move(tensors), config, vocabulary,
                     {.name = name, .dtype = settings.dtype, .q8_0 = options.dtype == q8_0_name});
}

ConversionPlan plan_full(const ConvertOptions& options, const NxdSettings& settings,
                         std::vector<PlannedTensor> tensors, const fs::path& config, const fs::path& input) {
    check_layers_of(options, tensors);
    if (options.format == "gguf")
        return plan_for_llama_cpp(options, settings, std::move(tensors), config, input);
    const ModelFormat format = options.format == "safetensors" ? ModelFormat::safetensors
                               : options.format == "bin"       ? ModelFormat::bin
                                                               : ModelFormat::checkpoint;
    // Safetensors have no head that is the embedding, as transformers leaves it out.
    if (format == ModelFormat::safetensors && settings.config && settings.config->tie_word_embeddings)
        std::erase_if(tensors, [](const PlannedTensor& tensor) { return tensor.name == "lm_head.weight"; });
    ConversionPlan plan = plan_model(std::move(tensors), format, bytes_in(options.shard_size));
    if (format != ModelFormat::checkpoint) add_texts(plan, settings, config, input);
    return plan;
}

/// The full model of a checkpoint that is in parts of another kind.
ConversionPlan plan_joined(const ConvertOptions& options, const NxdSettings& settings,
                           std::vector<PlannedTensor> tensors, const fs::path& config,
                           const fs::path& input) {
    if (options.from_full) {
        check_layers_of(options, tensors);
        return plan_shards_of_model(tensors, settings);
    }
    set_floating_dtype(tensors, settings.dtype);
    return plan_full(options, settings, std::move(tensors), config, input);
}

/// The config is made of params.json, unless one is given.
ConversionPlan plan_meta(const ConvertOptions& options, NxdSettings settings, const MetaCheckpoint& meta,
                         const fs::path& config, const fs::path& input) {
    if (!config.empty()) return plan_joined(options, settings, meta.tensors(), config, input);
    Json made = meta.config();
    settings.config = ModelConfig::parse(made.dump(), "The config made of params.json");
    ConversionPlan plan = plan_joined(options, settings, meta.tensors(), config, input);
    if (options.from_full || plan.files.front().path == checkpoint_file) return plan;
    if (settings.dtype) made["dtype"] = name_of(*settings.dtype);
    if (options.format != "gguf") plan.texts["config.json"] = made.dump(2) + "\n";
    print_log(stderr, "params.json does not say max_position_embeddings; {} is assumed.\n",
              made["max_position_embeddings"].dump());
    return plan;
}

/// The state of the run that is converted: the Trainer's own, if it saved one beside the rest.
TrainerState trainer_state_of(const TrainingCheckpoint& checkpoint, const fs::path& input) {
    const fs::path file = home_of_checkpoint(input) / "trainer_state.json";
    if (!fs::exists(file))
        return TrainerState::of_other_program(checkpoint.step.value_or(checkpoint.optimizer.updates));
    TrainerState state = TrainerState::parse(read_text_file(file), file.string());
    const std::int64_t step = checkpoint.step.value_or(state.global_step);
    if (state.global_step != step || step < checkpoint.optimizer.updates)
        throw Error(fmt::format("{} is of step {}, and the optimizer's files of step {} after {} updates.",
                                file.string(), state.global_step, step, checkpoint.optimizer.updates),
                    "They are of different checkpoints: use the files of one.");
    return state;
}

/// A checkpoint from which run_clm continues.
ConversionPlan plan_to_resume(const ConvertOptions& options, const NxdSettings& settings,
                              const TrainingCheckpoint& checkpoint, const fs::path& config,
                              const fs::path& input) {
    if (!settings.config)
        throw Error(
            fmt::format("{} has no config.json, which says what belongs to the model.", input.string()),
            "Add --config with the model's config.json.");
    check_layers_of(options, checkpoint.weights);
    ConversionPlan plan =
        plan_resumable(checkpoint, *settings.config, bytes_in(options.shard_size), input.string());
    add_texts(plan, settings, config, input);
    const TrainerState state = trainer_state_of(checkpoint, input);
    plan.texts["trainer_state.json"] = state.text();
    plan.checkpoint = fmt::format("checkpoint-{}", state.global_step);
    const EngineState engine{.updates = checkpoint.optimizer.updates, .scaler = std::nullopt};
    plan.run_state = Json{{"loop", nullptr}, {"engine", engine.json()}}.dump();
    print_log(stderr, "Step {}; the optimizer made {} updates{}{}.\n", state.global_step,
              checkpoint.optimizer.updates, checkpoint.optimizer.settings.empty() ? "" : ": ",
              checkpoint.optimizer.settings);
    return plan;
}

/// The model with the adapters of --merge_adapter. `config` becomes that of the result.
std::unique_ptr<MergedCheckpoint> with_adapters(const ConvertOptions& options, const fs::path& input,
                                                std::optional<ModelConfig>& config) {
    if (MetaCheckpoint::is_one(input) || ZeroCheckpoint::is_one(input) || DcpCheckpoint::is_one(input))
        throw Error(
            fmt::format("{} holds a checkpoint in parts, into which no adapter is merged.", input.string()),
            "Convert it to a model folder first (--output_format safetensors).");
    if (!config)
        throw Error(
            fmt::format("{} has no config.json, which says what belongs to the model.", input.string()),
            "Add --config with the model's config.json.");
    std::vector<AdapterWeights> adapters;
    for (const std::string& name : options.adapters)
        adapters.emplace_back(find_pretrained(name, "--merge_adapter"), *config,
                              [](const std::string& line) { print_log(stderr, "{}\n", line); });
    config = merged_config(*config, adapters);
    if (config->head_from_embedding)
        print_log(stderr,
                  "The embedding is also the output head in the base model; in the result they are two "
                  "weights (tie_word_embeddings is false).\n");
    auto merged =
        std::make_unique<MergedCheckpoint>(std::make_unique<FullCheckpoint>(input, options.model_key),
                                           std::move(adapters), config->head_from_embedding);
    print_log(stderr, "Merging {} into {} of {} tensors.\n",
              counted(static_cast<std::int64_t>(options.adapters.size()), "adapter"), merged->merged_count(),
              merged->items().size());
    return merged;
}

void convert(ConvertOptions options) {
    check_options(options);
    if (!options.adapters.empty() && !options.from_full && options.format.empty())
        options.format = "safetensors";
    const fs::path input = input_of(options), config = config_file(options, input);
    NxdSettings settings = nxd_settings(
        options, options.yaml.empty() ? read_config(options, config) : config_of_nxdt_yaml(options.yaml));
    std::unique_ptr<TensorSource> source;
    ConversionPlan plan;
    if (options.format == "resumable") {
        std::optional<TrainingCheckpoint> checkpoint =
            open_training_checkpoint(input, {.model_key = options.model_key,
                                             .nxd = settings,
                                             .tensor_ranks = options.tensor,
                                             .pipeline_ranks = options.pipeline});
        if (!checkpoint)
            throw Error(fmt::format("{} has no state of an optimizer that can be converted.", input.string()),
                        "Name a checkpoint of DeepSpeed, FSDP or neuronx-distributed.");
        plan = plan_to_resume(options, settings, *checkpoint, config, input);
        source = std::move(checkpoint->source);
    } else if (options.to_full || options.from_xser || options.to_xser) {
        auto shards = std::make_unique<ShardedCheckpoint>(input, options.tensor, options.pipeline,
                                                          options.experts, options.model_key);
        plan = options.to_full
                   ? plan_full(options, settings, model_of_shards(*shards, settings), config, input)
                   : plan_same_shards(*shards, settings);
        source = std::move(shards);
    } else if (!options.adapters.empty()) {
        auto merged = with_adapters(options, input, settings.config);
        plan = plan_joined(options, settings, merged->tensors(), config, input);
        source = std::move(merged);
    } else if (MetaCheckpoint::is_one(input)) {
        auto meta = std::make_unique<MetaCheckpoint>(input);
        plan = plan_meta(options, settings, *meta, config, input);
        source = std::move(meta);
    } else if (ZeroCheckpoint::is_one(input)) {
        auto zero = std::make_unique<ZeroCheckpoint>(input);
        plan = plan_joined(options, settings, zero->tensors(), config, input);
        source = std::move(zero);
    } else if (DcpCheckpoint::is_one(input)) {
        auto chunks = std::make_unique<DcpCheckpoint>(input, options.model_key);
        plan = plan_joined(options, settings, chunks->tensors(), config, input);
        source = std::move(chunks);
    } else {
        auto model = std::make_unique<FullCheckpoint>(input, options.model_key);
        check_layers_of(options, model->items());
        plan = options.from_full
                   ? plan_shards_of_model(*model, settings)
                   : plan_full(options, settings, whole_model(*model, settings.dtype), config, input);
        source = std::move(model);
    }
    ProgressLine line;
    write_conversion(plan, *source, options.output, [&](std::uint64_t written, std::uint64_t total) {
        line.show([&] {
            return fmt::format("{:3.0f} %  {} of {}, {:.0f} MB/s",
                               100.0 * static_cast<double>(written) / static_cast<double>(total),
                               bytes_text(written), bytes_text(total),
                               static_cast<double>(written) / 1e6 / line.seconds());
        });
    });
    line.finish(fmt::format("Wrote {} in {} to {}.", bytes_text(plan.bytes()),
                            counted(static_cast<std::int64_t>(plan.files.size()), "file"), options.output));
}

/// A flag that may have a value: --load_xser, --load_xser True, --load_xser 0.
void add_boolean(const Command& command, const std::string& names, bool& value, const std::string& help) {
    command
        .add_taken_option(
            names,
            [&value, names](const std::string& text) {
                const std::string word = lower_case(text);
                const bool yes = word.empty() || word == "true" || word == "1" || word == "yes";
                if (!yes && word != "false" && word != "0" && word != "no")
                    throw UsageError(fmt::format("{} is \"{}\".", names, text), "It must be True or False.");
                value = yes;
            },
            help)
        .with_optional_boolean();
}

}  // namespace

void add_convert_command(const Command& app) {
    auto options = std::make_shared<ConvertOptions>();
    const Command command = app.add_command(
        "convert",
        "Convert checkpoints: full models (safetensors, pytorch_model.bin, checkpoint.pt) to each other, to "
        "GGUF, and to and from the files per rank of neuronx-distributed.\n"
        "Example: drover convert --tp_size 8 --pp_size 4 --input_dir Llama-3.1-70B --output_dir sharded "
        "--convert_from_full_state");
    command.show_defaults();
    add_boolean(command, "--convert_from_full_state,--convert_from_full_model", options->from_full,
                "a full model to files per rank");
    add_boolean(command, "--convert_to_full_state,--convert_to_full_model", options->to_full,
                "files per rank to a full model");
    add_boolean(command, "--convert_from_xser", options->from_xser,
                "files per rank that have a file per tensor to ones that hold their tensors");
    add_boolean(command, "--convert_to_xser", options->to_xser, "the other way round");
    command.add_option(
        "--input_dir", options->input,
        "a model folder or a file with all weights; for files per rank, the folder that has them; with "
        "--merge_adapter, when empty: the adapter's base model");
    command.add_option("--hf_model_name", options->model_name,
                       "in place of --input_dir: a repository in the Hugging Face cache");
    command.add_option("--output_dir", options->output, "where the result appears, complete").required();
    command
        .add_option(
            "--output_format", options->format,
            "of a full model: safetensors, bin (pytorch_model.bin), gguf (model.gguf, for llama.cpp), or "
            "checkpoint (one checkpoint.pt, what --convert_to_full_state writes without this flag); or "
            "resumable: with the optimizer's state, the folder checkpoint-N, which run_clm continues")
        .one_of({"safetensors", "bin", "gguf", "checkpoint", "resumable"});
    command.add_option("--dtype", options->dtype,
                       "float32, bfloat16 or float16, and for gguf q8_0; as they are when empty");
    command.add_option("--merge_adapter", options->adapters,
                       "folder or Hub name of a LoRA adapter of PEFT's or of a run with --use_peft, which is "
                       "merged into the model's weights; several are merged one after the other");
    command.add_option("--max_shard_size", options->shard_size,
                       "a file of safetensors or bin is closed before it would be larger; 5GB when empty");
    command.add_option(
        "--config", options->config,
        "config.json; needed for --kv_size_multiplier, --pad_attn_heads, --fuse_qkv and gguf, and taken from "
        "beside the weights when empty");
    command.add_option("--tp_size", options->tensor, "tensor ranks; counted when files per rank are read")
        .between(1, 1 << 16);
    command.add_option("--pp_size", options->pipeline, "pipeline ranks, likewise").between(1, 1 << 16);
    command.add_option("--ep_size", options->experts, "expert ranks, likewise").between(1, 1 << 16);
    command.add_option("--virtual_pp_size", options->virtual_pipeline, "stages of each pipeline rank")
        .between(1, 1 << 16);
    command.add_option("--n_layers", options->layers,
                       "checked if given: layers are counted from the names of the weights");
    add_boolean(
        command, "--qkv_linear", options->qkv_linear,
        "q, k and v are one layer (GQAQKVColumnParallelLinear); when files per rank are read, seen from "
        "their names");
    add_boolean(command, "--fuse_qkv", options->fuse_qkv,
                "with --qkv_linear: one tensor; also seen from names");
    add_boolean(command, "--coalesce_qkv", options->coalesce_qkv,
                "q, k and v of one size as one tensor; also seen from names");
    command
        .add_option("--kv_size_multiplier,--kv_replicator", options->kv_multiplier,
                    "with --qkv_linear: how often key/value heads are repeated")
        .between(1, 1 << 16);
    command
        .add_option(
            "--hw_backend", options->backend,
            "order of repeated heads: trn1 (all heads, then all again) or trn2 (copies side by side); "
            "trn1 when empty, and seen from the data when files per rank are read")
        .one_of({"trn1", "trn2"});
    add_boolean(command, "--load_xser", options->load_xser,
                "the ranks' tensors are in files of their own; seen from the files in any case");
    add_boolean(command, "--save_xser", options->save_xser, "write the ranks' tensors as files of their own");
    command.add_option("--model_key", options->model_key,
                       "entry of a file of torch.save that has the weights, if there is one");
    command
        .add_option("--model_style", options->style,
                    "names of the weights in files per rank; when they are read, seen from the names")
        .one_of({"hf", "megatron"});
    add_boolean(command, "--pad_attn_heads", options->pad_heads,
                "with --qkv_linear: zeros for query heads up to a multiple of --tp_size");
    command
        .add_option("--i_tp_round_factor", options->round_factor,
                    "experts' feed-forward has zeros up to a multiple of this on every rank; 0: none")
        .between(0, 1 << 20);
    command.add_option("--nxdt_yaml_config", options->yaml,
                       "in place of --config: a configuration of NxD Training, for the numbers of heads");
    command.set_action([options] { convert(*options); });
}

}  // namespace drover
