#include "run/run_adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "core/number_text.h"
#include "core/text_file.h"
#include "model/config.h"
#include "peft/adapter_card.h"
#include "peft/adapter_weights.h"
#include "run/model_source.h"
#include "run/settings/run_settings.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

Json list_or_null(const std::vector<std::string>& words) {
    return words.empty() ? Json() : Json(words);
}

/// As TRL does, one word is not a list: it is all-linear, or a regular expression.
Json targets_of(const std::vector<std::string>& words) {
    return words.size() == 1 ? Json(words.front()) : list_or_null(words);
}

Json new_config(const LoraSettings& settings) {
    return {{"peft_type", "LORA"},
            {"task_type", "CAUSAL_LM"},
            {"r", settings.rank},
            {"lora_alpha", settings.alpha},
            {"lora_dropout", settings.dropout},
            {"target_modules", targets_of(settings.target_modules)},
            {"target_parameters", list_or_null(settings.target_parameters)},
            {"modules_to_save", list_or_null(settings.modules_to_save)},
            {"use_rslora", settings.rank_stabilized},
            {"use_dora", settings.magnitudes}};
}

/// "16", or "8 to 32" if they differ.
std::string ranks_of(const Adapters& adapters) {
    if (adapters.weights.empty()) return "0";
    const auto [least, most] = std::ranges::minmax(adapters.weights, {}, &AdaptedWeight::rank);
    return least.rank == most.rank ? fmt::format("{}", most.rank)
                                   : fmt::format("{} to {}", least.rank, most.rank);
}

/// "7 modules × 32 blocks", or only their number if blocks differ.
std::string places_of(const Adapters& adapters, const ModelConfig& model) {
    const auto count = static_cast<std::int64_t>(adapters.weights.size());
    const std::int64_t blocks = model.num_hidden_layers;
    std::string text = count % blocks == 0 ? fmt::format("{} × {}", counted(count / blocks, "module"),
                                                         counted(blocks, "block"))
                                           : counted(count, "module");
    if (!adapters.trained_leaves.empty())
        text += fmt::format(", and {} whole",
                            counted(static_cast<std::int64_t>(adapters.trained_leaves.size()), "weight"));
    return text;
}

std::string kind_of(const Adapters& adapters) {
    return adapters.magnitudes ? "DoRA" : "LoRA";
}

}  // namespace

RunAdapters RunAdapters::find(const LoraSettings& settings, const ModelSettings& places,
                              const ModelConfig& model, const std::string& base, const PeftWarning& warn) {
    if (model.rows_before_resize > 0)
        throw Error(
            fmt::format("The tokenizer has {} tokens, but the model's vocabulary only {}, and adapters "
                        "are saved without new rows.",
                        model.vocab_size, model.rows_before_resize),
            "Use the tokenizer that belongs to the model, or enlarge and save the model first.");
    RunAdapters run;
    std::string where = "--use_peft";
    if (settings.path.empty()) {
        run.config = PeftConfig::of(new_config(settings), where, warn);
    } else {
        run.start = find_pretrained(settings.path, "--adapter_name_or_path",
                                    {.cache = places.cache_dir, .token = places.token});
        if (!is_adapter_folder(run.start))
            throw Error(fmt::format("--adapter_name_or_path is {}, which is no adapter: it has no {}.",
                                    settings.path, adapter_config_file),
                        "Name a folder that PEFT or a training run with --use_peft saved.");
        where = (run.start / adapter_config_file).string();
        run.config = PeftConfig::read(run.start, warn);
        // Every tensor is there and has its shape.
        const AdapterWeights weights(run.start, model);
    }
    if (!base.empty()) run.config.set_base_model(base);
    run.adapters = resolve(run.config, model, where);
    const ResolvedAdapter resolved = resolve_adapter(run.config, model, where);
    const auto is_sparse = [](const AdaptedWeight& weight) {
        return weight.leaf.find(".block_sparse_moe.") != std::string::npos;
    };
    if (run.adapters.dropout > 0 && std::ranges::any_of(run.adapters.weights, is_sparse) && warn)
        warn(
            "PEFT with transformers 5 does not load adapters of experts or of the router that have dropout: "
            "--lora_dropout 0 avoids that.");
    if (resolved.is_shorthand) run.config.set_targets(resolved.target_names);
    return run;
}

Precision RunAdapters::precision(Precision of_weights) {
    of_weights.gradients = of_weights.moments = DType::f32;
    of_weights.master = of_weights.parameters != DType::f32;
    return of_weights;
}

std::string RunAdapters::text(const ModelConfig& model) const {
    const TrainedCounts counts = count_trained(adapters, model);
    return fmt::format("{} r {} on {}: {} of {} parameters are trained ({:.2f} %)", kind_of(adapters),
                       ranks_of(adapters), places_of(adapters, model), with_thousands(counts.trained),
                       with_thousands(counts.all),
                       100.0 * static_cast<double>(counts.trained) / static_cast<double>(counts.all));
}

void RunAdapters::write_texts(const fs::path& folder) const {
    write_file_atomically(folder / adapter_config_file, config.text());
    write_file_atomically(folder / "README.md", adapter_card(config));
}

void RunAdapters::check_same(const fs::path& checkpoint, const ModelConfig& model) const {
    if (!is_adapter_folder(checkpoint))
        throw Error(
            fmt::format("The checkpoint {} has no adapters, but this run trains some.", checkpoint.string()),
            "Resume without --use_peft, or choose another --output_dir.");
    const std::string where = (checkpoint / adapter_config_file).string();
    const Adapters saved = resolve(PeftConfig::read(checkpoint), model, where);
    if (saved == adapters) return;
    const auto described = [&](const Adapters& some) {
        return fmt::format("{} r {} on {}, scale {}, dropout {}", kind_of(some), ranks_of(some),
                           places_of(some, model), some.weights.empty() ? 0 : some.weights.front().scale,
                           some.dropout);
    };
    const std::string theirs = described(saved), ours = described(adapters);
    throw Error(fmt::format("The adapters of the checkpoint {} are others than those of this run: {}.",
                            checkpoint.string(),
                            theirs == ours ? "they adapt other modules, or some with another rank or scale"
                                           : fmt::format("{}, not {}", theirs, ours)),
                "Resume with the --lora_… flags it was trained with, or choose another --output_dir.");
}

void refuse_adapters_of(const fs::path& checkpoint) {
    if (is_adapter_folder(checkpoint))
        throw Error(
            fmt::format("The checkpoint {} has adapters and no weights of the model.", checkpoint.string()),
            "Resume with --use_peft and the --lora_… flags it was trained with, or choose another "
            "--output_dir.");
}

}  // namespace drover
