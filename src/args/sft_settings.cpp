#include "args/sft_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "args/argument_value.h"
#include "args/common_settings.h"
#include "args/parse_words.h"
#include "core/error.h"

namespace drover {
namespace {

bool is_sft_command(const Arguments& arguments) {
    return arguments.table().command() == sft_table().command();
}

/// --model_init_kwargs: what from_pretrained is given.
void imply_from_init_kwargs(Arguments& arguments) {
    const Json& kwargs = arguments.json("model_init_kwargs");
    if (kwargs.is_null()) return;
    constexpr std::array no_effect{"attn_implementation", "device_map",  "experts_implementation",
                                   "low_cpu_mem_usage",   "use_kernels", "use_cache",
                                   "trust_remote_code"};
    std::vector<std::string> explained;
    for (const auto& [key, value] : kwargs.items()) {
        if (key == "dtype" || key == "torch_dtype" || key == "revision") {
            const std::string name = key == "revision" ? "model_revision" : "dtype";
            const Argument& row = *arguments.table().find(name);
            arguments.set(name, value_from_json(row, value, fmt::format("--model_init_kwargs: {}", key)),
                          {ArgumentSource::Kind::implied, "--model_init_kwargs"});
        } else if (std::find(no_effect.begin(), no_effect.end(), key) != no_effect.end()) {
            explained.push_back(key);
        } else {
            throw UsageError(fmt::format("--model_init_kwargs has \"{}\", which is not known here.", key),
                             "Use dtype and revision.");
        }
    }
    if (!explained.empty())
        arguments.explain(fmt::format("--model_init_kwargs: {} choose code of PyTorch, which is not used.",
                                      fmt::join(explained, ", ")));
}

std::int64_t padding_multiple(const Arguments& arguments) {
    const std::string& text = arguments.text("pad_to_multiple_of");
    if (text == "auto" || text == "none" || text == "None" || text == "null") return 1;
    const std::optional<double> number = number_from_text(text);
    if (!number || *number < 1 || *number > 65536 ||
        *number != static_cast<double>(static_cast<std::int64_t>(*number)))
        throw UsageError(fmt::format("--pad_to_multiple_of is \"{}\".", text),
                         "Use auto, or a whole number from 1 to 65536.");
    return static_cast<std::int64_t>(*number);
}

void refuse_sft_flags(const Arguments& arguments) {
    for (const Argument& row : sft_arguments())
        if (arguments.given(row.name))
            throw UsageError(
                fmt::format("--{} is about examples for supervised fine-tuning, but the rows are text.",
                            row.name),
                "Add --sft, or use `drover sft`.");
}

void check_sft_command(const Arguments& arguments) {
    if (const Json& kwargs = arguments.json("dataset_kwargs"); !kwargs.is_null())
        for (const auto& [key, value] : kwargs.items())
            if (key != "skip_prepare_dataset" || value != Json(false))
                throw UsageError(fmt::format("--dataset_kwargs has \"{}\": {}.", key, value.dump()),
                                 "Rows are always prepared here; leave it out.");
    if (arguments.given("datasets"))
        throw UsageError(
            "A list of datasets is not read from a configuration file.",
            "Give their names with --dataset_name a,b, and their shares with --dataset_weights.");
    if (arguments.given("test_split_size"))
        throw UsageError("--test_split_size splits a list of datasets, which is not read.",
                         "Use --validation_split_percentage.");
    if (arguments.given("packing_strategy") && !arguments.flag("packing") &&
        !arguments.optional_flag("eval_packing").value_or(false))
        throw UsageError("--packing_strategy is given, but nothing is packed.", "Add --packing.");
}

}  // namespace

bool is_sft(const Arguments& arguments) {
    return is_sft_command(arguments) || (arguments.table().find("sft") != nullptr && arguments.flag("sft"));
}

std::string chosen_packing(const Arguments& arguments) {
    if (is_sft_command(arguments))
        return arguments.flag("packing") ? arguments.text("packing_strategy") : "none";
    if (is_sft(arguments) && !arguments.given("packing")) return "none";
    return arguments.text("packing");
}

void imply_sft(Arguments& arguments) {
    if (!is_sft_command(arguments)) return;
    if (arguments.flag("fp16") && !arguments.given("bf16"))
        arguments.set("bf16", false, {ArgumentSource::Kind::implied, "--fp16"});
    for (const char* name : {"recompute", "use_selective_checkpoint"})
        if (arguments.given(name) && !arguments.given("gradient_checkpointing"))
            arguments.set("gradient_checkpointing", false,
                          {ArgumentSource::Kind::implied, fmt::format("--{}", name)});
    imply_from_init_kwargs(arguments);
}

void check_sft(const Arguments& arguments) {
    if (arguments.table().find("max_length") == nullptr) return;
    if (!is_sft(arguments)) {
        refuse_sft_flags(arguments);
        if (const std::string packing = arguments.text("packing");
            packing == "bfd" || packing == "bfd_split" || packing == "wrapped")
            throw UsageError(fmt::format("--packing {} packs examples for supervised fine-tuning.", packing),
                             "Add --sft, or use --packing hf, lossless or none.");
        return;
    }
    if (is_sft_command(arguments)) {
        check_sft_command(arguments);
    } else {
        if (const std::string packing = chosen_packing(arguments); packing == "hf" || packing == "lossless")
            throw UsageError(
                fmt::format("--packing {} packs text, but with --sft rows are examples.", packing),
                "Use --packing none, bfd, bfd_split or wrapped.");
        if (arguments.has("block_size"))
            throw UsageError(
                "--block_size is the length of blocks of text, but with --sft rows are examples.",
                "Use --max_length.");
    }
    if (arguments.flag("streaming") && is_sft_command(arguments) && arguments.flag("shuffle_dataset"))
        throw UsageError("--streaming reads the examples in order, and cannot shuffle them.",
                         "Leave out --shuffle_dataset or --streaming.");
    if (arguments.flag("streaming") && arguments.integer("max_length") == 0)
        throw UsageError("--streaming does not know how long the longest example is, and --max_length is 0.",
                         "Give the length of a row, or leave out --streaming.");
    if (arguments.text("loss_type") == "dft")
        throw UsageError("--loss_type dft (dynamic fine-tuning) is not available here.", "Use nll.");
    if (chosen_packing(arguments) != "none" && arguments.integer("max_length") == 0)
        throw UsageError("Examples are packed into rows of --max_length tokens, but that is 0.",
                         "Give a length, or leave out --packing.");
    padding_multiple(arguments);
}

std::optional<SftSettings> sft_settings(const Arguments& arguments) {
    if (!is_sft(arguments)) return std::nullopt;
    const bool command = is_sft_command(arguments);
    SftOptions rows{
        .text_field = command ? arguments.text("dataset_text_field")
                              : arguments.optional_text("text_column").value_or("text"),
        .kept_end = arguments.text("truncation_mode") == "keep_end" ? KeptEnd::end : KeptEnd::start,
        .packing = document_packing_from_name(chosen_packing(arguments), "--packing"),
        .assistant_only_loss = arguments.flag("assistant_only_loss"),
        .completion_only_loss = arguments.optional_flag("completion_only_loss"),
        .eos_token = text_or_empty(arguments, "eos_token"),
        .allow_special_tokens = arguments.flag("allow_special_tokens"),
        .workers = command ? arguments.integer("dataset_num_proc")
                           : arguments.optional_integer("preprocessing_num_workers").value_or(1)};
    if (command && arguments.flag("shuffle_dataset"))
        rows.shuffle_seed = static_cast<std::uint64_t>(arguments.integer("seed"));
    rows.max_length = arguments.integer("max_length");
    if (*rows.max_length == 0) rows.max_length.reset();
    return SftSettings{.rows = rows,
                       .eval_packing = arguments.optional_flag("eval_packing"),
                       .chat_template_path = text_or_empty(arguments, "chat_template_path"),
                       .pad_token = text_or_empty(arguments, "pad_token"),
                       .padding_free = arguments.flag("padding_free"),
                       .pad_to_multiple_of = padding_multiple(arguments)};
}

RunArguments parse_sft_arguments(std::span<const std::string> words, const ParseOptions& options) {
    return settle_run_arguments(read_arguments(sft_table(), words, options), options);
}

}  // namespace drover
