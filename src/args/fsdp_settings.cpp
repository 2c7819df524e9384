#include "args/fsdp_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "args/argument_value.h"
#include "args/object_reader.h"
#include "core/error.h"
#include "core/words.h"

namespace drover {
namespace {

using FsdpSharding = FsdpSettings::Sharding;

struct ShardingWord {
    std::string_view word;
    FsdpSharding sharding;
};
constexpr std::array sharding_words{
    ShardingWord{"full_shard", FsdpSharding::full_shard},
    ShardingWord{"shard_grad_op", FsdpSharding::shard_grad_op},
    ShardingWord{"no_shard", FsdpSharding::no_shard},
    ShardingWord{"hybrid_shard", FsdpSharding::hybrid_shard},
    ShardingWord{"hybrid_shard_zero2", FsdpSharding::hybrid_shard_zero2},
};

void read_words(FsdpSettings& settings, const std::vector<std::string>& words) {
    std::string strategy;
    for (const std::string& word : words) {
        if (word == "offload") {
            settings.offload = true;
        } else if (word == "auto_wrap") {
            settings.auto_wrap = true;
        } else {
            const bool yes = boolean_from_word(word).value_or(false);  // 5.x: --fsdp true
            const std::string_view name = yes ? "full_shard" : std::string_view(word);
            const auto* found = std::find_if(sharding_words.begin(), sharding_words.end(),
                                             [&](const ShardingWord& known) { return known.word == name; });
            if (found == sharding_words.end())
                throw UsageError(
                    fmt::format("--fsdp has the word \"{}\", which is not known.", word),
                    "Use full_shard, shard_grad_op, no_shard, hybrid_shard or hybrid_shard_zero2, with "
                    "offload and auto_wrap where wanted.");
            if (!strategy.empty() && strategy != name)
                throw UsageError(
                    fmt::format("--fsdp asks for {} and for {}, which exclude each other.", strategy, name),
                    "Keep one of them.");
            strategy = name;
            settings.sharding = found->sharding;
        }
    }
    if (settings.offload && strategy.empty())
        throw UsageError("--fsdp has the word offload, but not what to shard.",
                         "Add full_shard or shard_grad_op.");
}

/// Keys may have the prefix "fsdp_".
Json without_prefix(const Json& config, const std::string& where) {
    Json plain = Json::object();
    for (const auto& [key, value] : config.items()) {
        const std::string name = key.starts_with("fsdp_") ? key.substr(5) : key;
        if (plain.contains(name))
            throw UsageError(fmt::format("{} has the key \"{}\" with and without fsdp_ in front.", where,
                                         name.substr(0, 60)),
                             "Remove one of them.");
        plain[name] = value;
    }
    return plain;
}

struct ExplainedKey {
    const char *key, *meaning;
};
constexpr std::array explained_keys{
    ExplainedKey{"auto_wrap_policy", "the units are the embedding, each block and the head."},
    ExplainedKey{"min_num_params", "the units are the embedding, each block and the head."},
    ExplainedKey{"version", "1 and 2 mean the same here."},
    ExplainedKey{"limit_all_gathers", "there is memory for one block that is gathered ahead, never more."},
    ExplainedKey{"use_orig_params", "every weight keeps its own name, shape and settings."},
    ExplainedKey{"sync_module_states",
                 "nothing is sent: each process draws or reads its own rows, of the same weights."},
    ExplainedKey{"cpu_ram_efficient_loading",
                 "each process reads its own rows; none ever holds the whole model."},
};
constexpr std::array explained_xla_keys{
    ExplainedKey{"flatten_parameters",
                 "weights are not joined into one vector; each keeps its shape, so that weight decay and "
                 "Adafactor see it, and the weights of a block travel together."},
    ExplainedKey{
        "opt_flatten_overlap",
        "gathering and scattering always run alongside the computation; there is nothing to switch on."},
    ExplainedKey{"pin_layout_in_collective_ops",
                 "it fixes memory layouts that a compiler might change, and nothing changes them here."},
};

void explain_keys(FsdpSettings& settings, ObjectReader& reader, std::span<const ExplainedKey> keys) {
    for (const ExplainedKey& explained : keys)
        if (reader.has(explained.key))
            settings.explanations.push_back(
                fmt::format("{}: {}: {}", reader.where(), explained.key, explained.meaning));
}

/// Only explicit settings count; Hugging Face's default would be slower here without a benefit.
void read_prefetch(FsdpSettings& settings, ObjectReader& reader) {
    for (const char* key : {"backward_prefetch", "backward_prefetch_policy"}) {
        if (!reader.has(key)) continue;
        const std::string asked = reader.choice(key, "", {"NO_PREFETCH", "BACKWARD_PRE", "BACKWARD_POST"});
        settings.backward_prefetch = asked != "NO_PREFETCH";
        if (asked == "BACKWARD_POST")
            settings.explanations.push_back(fmt::format(
                "{}: {}: BACKWARD_POST is treated as BACKWARD_PRE; there is memory for two blocks anyway.",
                reader.where(), key));
    }
    settings.forward_prefetch = reader.flag("forward_prefetch", true);
    for (const auto& [is_on, pass] :
         {std::pair(settings.forward_prefetch, "forward"), std::pair(settings.backward_prefetch, "backward")})
        if (!is_on)
            settings.explanations.push_back(
                fmt::format("{}: {}_prefetch is off: in the {} pass a block is gathered when it is needed, "
                            "not while the one before computes.",
                            reader.where(), pass, pass));
}

void read_xla_settings(FsdpSettings& settings, ObjectReader reader, std::vector<std::string>& no_effect) {
    const std::vector<std::string> types{"float32", "bfloat16", "float16"};
    const auto dtype = [&](std::string_view key) {
        return reader.has(key) ? reader.choice(key, "", types) : std::string();
    };
    settings.compute_dtype = dtype("compute_dtype");
    settings.buffer_dtype = dtype("buffer_dtype");
    settings.fp32_reduce_scatter = reader.flag("fp32_reduce_scatter", false);
    settings.reshard_after_forward = reader.flag("reshard_after_forward", settings.reshard_after_forward);
    for (const char* key : {"opt_flatten_overlap", "pin_layout_in_collective_ops", "flatten_parameters",
                            "disable_reshard_on_root", "shard_param_on_dim_0", "execute_sharding_on_init",
                            "optimization_barrier_in_forward", "optimization_barrier_in_backward",
                            "coalesce_all_gather_ops", "sync_module_states", "mark_step_on_finalization"})
        reader.flag(key, false);
    for (const char* key : {"reduce_scatter_bucket_size_mb", "all_gather_bucket_size_mb"})
        reader.integer(key, 0, 0);
    explain_keys(settings, reader, explained_xla_keys);
    for (std::string& key : reader.without_effect(
             {"disable_reshard_on_root", "shard_param_on_dim_0", "execute_sharding_on_init",
              "optimization_barrier_in_forward", "optimization_barrier_in_backward",
              "coalesce_all_gather_ops", "reduce_scatter_bucket_size_mb", "all_gather_bucket_size_mb",
              "sync_module_states", "mark_step_on_finalization"}))
        no_effect.push_back(std::move(key));
    reader.check_all_known();
}

void read_config(FsdpSettings& settings, const Json& config, const std::string& where) {
    ObjectReader reader(config, where);
    settings.wrap_classes = reader.texts("transformer_layer_cls_to_wrap");
    settings.min_num_params = reader.integer("min_num_params", 0, 0);
    settings.xla = reader.flag("xla", false);
    settings.xla_fsdp_v2 = reader.flag("xla_fsdp_v2", false);
    const bool grad_ckpt = reader.flag("xla_fsdp_grad_ckpt", false);
    settings.activation_checkpointing = reader.flag("activation_checkpointing", false) || grad_ckpt;
    settings.reshard_after_forward = reader.flag("reshard_after_forward", true);
    for (const char* key : {"cpu_offload", "offload_params"})
        if (reader.flag(key, false)) settings.offload = true;
    settings.sharded_state_dict =
        reader.choice("state_dict_type", "FULL_STATE_DICT",
                      {"FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT"}) != "FULL_STATE_DICT";
    const std::vector<std::string> policies{"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"};
    reader.choice("auto_wrap_policy", "TRANSFORMER_BASED_WRAP", policies);
    read_prefetch(settings, reader);
    const std::int64_t version = reader.integer("version", 1, 1);
    if (version > 2)
        reader.fail("version", fmt::format("is {}", version), "Use 1 or 2; they mean the same here.");
    const bool sync = reader.flag("sync_module_states", true);
    if (reader.flag("cpu_ram_efficient_loading", false) && !sync)
        reader.fail("cpu_ram_efficient_loading", "is true, but sync_module_states is false",
                    "Set sync_module_states to true, or leave both out.");
    for (const char* key : {"limit_all_gathers", "use_orig_params"}) reader.flag(key, true);
    explain_keys(settings, reader, explained_keys);
    std::vector<std::string> no_effect;
    read_xla_settings(settings, reader.object("xla_fsdp_settings"), no_effect);
    reader.check_all_known();

    if (settings.min_num_params > 0 && !settings.wrap_classes.empty())
        throw UsageError(
            fmt::format("{} has min_num_params and transformer_layer_cls_to_wrap, which exclude each other.",
                        where),
            "Keep one of them.");
    if (settings.xla_fsdp_v2 && !settings.xla)
        settings.explanations.push_back(
            fmt::format("{}: xla_fsdp_v2 is used although xla is not true.", where));
    if (!no_effect.empty())
        settings.explanations.push_back(
            fmt::format("{}: {} tune{} PyTorch/XLA's sharding; here every weight is sharded by rows, and "
                        "gathers and scatters run alongside the computation.",
                        where, fmt::join(no_effect, ", "), no_effect.size() == 1 ? "s" : ""));
}

}  // namespace

std::optional<FsdpSettings> read_fsdp_settings(const std::vector<std::string>& words, const Json& config,
                                               const std::string& where) {
    FsdpSettings settings;
    const bool off = words.empty() || (words.size() == 1 && !boolean_from_word(words[0]).value_or(true));
    if (!off) read_words(settings, words);
    if (!config.is_null()) {
        if (!config.is_object())
            throw UsageError(fmt::format("{} is not a JSON object.", where), "Write {\"key\": value, …}.");
        read_config(settings, without_prefix(config, where), where);
    }
    if (off) return std::nullopt;
    if (settings.sharded_state_dict)
        settings.explanations.push_back(
            "--fsdp_config: state_dict_type: every process writes its own part of a checkpoint, and together "
            "the parts are whole tensors.");
    if (!settings.reshard_after_forward)
        settings.explanations.push_back(
            "--fsdp_config: reshard_after_forward is false: weights stay gathered from one update to the "
            "next, "
            "as with shard_grad_op.");
    if (settings.offload)
        settings.explanations.push_back(
            "--fsdp: on a GPU, offload keeps the optimizer's state and the fp32 copy of the weights in the "
            "host's memory; weights and gradients stay on the GPU, which makes the updates.");
    return settings;
}

std::optional<FsdpSettings> read_fsdp_settings(const Arguments& arguments) {
    Json config = arguments.json("fsdp_config");
    const std::int64_t min_num_params = arguments.integer("fsdp_min_num_params");
    const auto wrap_class = arguments.optional_text("fsdp_transformer_layer_cls_to_wrap");
    if (config.is_null() && (min_num_params > 0 || wrap_class)) config = Json::object();
    if (min_num_params > 0 && !config.contains("min_num_params")) config["min_num_params"] = min_num_params;
    if (wrap_class && !config.contains("transformer_layer_cls_to_wrap") &&
        !config.contains("fsdp_transformer_layer_cls_to_wrap"))
        config["transformer_layer_cls_to_wrap"] = *wrap_class;
    return read_fsdp_settings(arguments.words("fsdp"), config, "--fsdp_config");
}

}  // namespace drover
