#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>

#include "app/chat.h"
#include "app/commands.h"
#include "args/command.h"
#include "core/console.h"
#include "core/json.h"
#include "core/python_json.h"
#include "generate/generator.h"
#include "run/adapter_source.h"
#include "run/choose_backend.h"
#include "run/model_source.h"
#include "text/streaming_decoder.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

struct GenerateOptions {
    std::string model, tokenizer, prompt, dtype = "auto", device = "auto";
    std::vector<std::string> adapters;
    std::string adapter;           ///< the one that is used, by name
    std::string tokenizer_beside;  ///< where there is one when `tokenizer` is empty
    std::vector<std::int32_t> prompt_ids;
    bool has_prompt = false;
    ChatOptions chat;
    GenerationSettings generation;
    bool has_max_new_tokens = false;
    std::int64_t threads = 0;
    bool json = false, logits = false;
};

/// CLI11 would read -1 as the largest number, and an empty text as 0.
std::string whole_number(const std::string& text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= 0) return {};
    return fmt::format("\"{}\" is not a whole number from 0 to {}", text,
                       std::numeric_limits<std::int64_t>::max());
}

std::string without_spaces_around(const std::string& text) {
    const std::size_t begin = text.find_first_not_of(' ');
    return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

/// Prompt tokens processed at once: enough to keep the matrix products busy.
constexpr std::int64_t prefill_tokens = 512;

/// The model's own dtype unless --dtype names another; float16 becomes float32, since nothing is computed in
/// float16 here.
DType chosen_dtype(const GenerateOptions& options, const ModelConfig& config) {
    DType dtype = options.dtype == "auto" ? config.dtype.value_or(stored_dtype(options.model))
                                          : floating_dtype_from_name(options.dtype, "--dtype");
    if (dtype == DType::f32 || dtype == DType::bf16) return dtype;
    print_log(stderr, "Generating in float32: {} is not computed with here.\n", name_of(dtype));
    return DType::f32;
}

/// The folder of the tokenizer's files.
fs::path tokenizer_folder(const GenerateOptions& options) {
    const fs::path path = options.tokenizer.empty() ? options.tokenizer_beside : options.tokenizer;
    return fs::is_directory(path) ? path : path.parent_path();
}

/// Null if ids were given and there is no tokenizer; then no text is printed either.
std::shared_ptr<const Tokenizer> find_tokenizer(const GenerateOptions& options) {
    try {
        return load_tokenizer(options.tokenizer.empty() ? options.tokenizer_beside : options.tokenizer);
    } catch (const Error& error) {
        if (options.has_prompt || options.chat.wanted() || !options.tokenizer.empty()) throw;
        print_log(stderr, "Ids only, no text: {}\n", error.cause());
        return nullptr;
    }
}

std::vector<TokenId> prompt_ids(const GenerateOptions& options, const Tokenizer* tokenizer) {
    if (!options.has_prompt) return options.prompt_ids;
    std::vector<TokenId> ids;
    tokenizer->encode(options.prompt, SpecialTokens::add, ids);
    if (ids.empty() && tokenizer->bos()) ids.push_back(*tokenizer->bos());
    return ids;
}

/// Prints text as it is generated.
class TextPrinter {
  public:
    explicit TextPrinter(const std::shared_ptr<const Tokenizer>& tokenizer) : decoder_(tokenizer, true) {}
    void push(TokenId id) { print(decoder_.push(id)); }
    void finish() { print(decoder_.finish() + "\n"); }
    /// For an error's message, which shall not stand on the line of the text.
    void break_off() {
        if (!printed_) return;
        try {
            finish();
        } catch (const Error&) {
            // The output itself may be what failed.
        }
    }

  private:
    void print(const std::string& text) {
        printed_ = printed_ || !text.empty();
        write_result(text);
    }
    StreamingDecoder decoder_;
    bool printed_ = false;
};

/// An answer is often longer than the continuation of a prompt.
constexpr std::int64_t default_answer_tokens = 512;

/// The positions that a conversation can have.
std::int64_t conversation_capacity(const ChatOptions& options, std::int64_t positions) {
    if (options.context_length == 0 && positions > default_context_length) {
        print_log(stderr, "The conversation is remembered for {} tokens; --context_length allows up to {}.\n",
                  default_context_length, positions);
        return default_context_length;
    }
    return positions;
}

void check_usage(const GenerateOptions& options) {
    const ChatOptions& chat = options.chat;
    if (chat.wanted() && (options.has_prompt || !options.prompt_ids.empty()))
        throw UsageError("Both a prompt and a chat are asked for.",
                         "Give --prompt or --prompt_ids, or --chat or --messages.");
    for (const auto& [name, given] : {std::pair("--system", !chat.system.empty()),
                                      std::pair("--chat_template_path", !chat.template_path.empty()),
                                      std::pair("--context_length", chat.context_length > 0)})
        if (given && !chat.wanted())
            throw UsageError(fmt::format("{} is given without --chat or --messages.", name), "Add --chat.");
    if (!chat.wanted() && options.has_prompt == !options.prompt_ids.empty())
        throw UsageError(options.has_prompt ? "Both --prompt and --prompt_ids are given."
                                            : "Neither --prompt nor --prompt_ids is given.",
                         "Give one of them.");
    if (options.logits && !options.json)
        throw UsageError("--logits is given without --json.", "They are printed with --json only.");
    check_sampling(options.generation.sampling);
}

void generate(GenerateOptions options) {
    check_usage(options);
    if (options.threads > 0) omp_set_num_threads(static_cast<int>(options.threads));
    const AdaptedModel adapted =
        find_adapted_model(options.model, "--model", options.adapters, "--adapter_name_or_path");
    const NamedAdapter* const adapter = choose_adapter(adapted, options.adapter, "--adapter");
    options.model = adapted.weights.string();
    if (options.tokenizer.empty()) options.tokenizer_beside = adapted.tokenizer.string();
    const ModelConfig base = ModelConfig::from_path(options.model);
    const std::vector<AdapterWeights> adapters = open_adapter(adapter, base);
    const ModelConfig config = merged_config(base, adapters);
    const std::shared_ptr<const Tokenizer> tokenizer = find_tokenizer(options);
    std::optional<Chat> chat;
    if (options.chat.wanted()) chat.emplace(options.chat, tokenizer, tokenizer_folder(options));
    const bool converses = chat && chat->is_conversation();
    if (converses && options.json)
        throw UsageError("--json is given, but the chat is on a terminal.",
                         "Give --messages FILE, or send the messages to standard input.");
    const std::vector<TokenId> prompt = converses ? std::vector<TokenId>{}
                                        : chat    ? chat->prompt()
                                                  : prompt_ids(options, tokenizer.get());
    const auto length = static_cast<std::int64_t>(prompt.size());
    std::int64_t positions = config.max_position_embeddings;
    if (options.chat.context_length > 0) positions = std::min(positions, options.chat.context_length);
    if (length >= positions)
        throw Error(
            fmt::format("The prompt has {} tokens, but {} is {}.", length,
                        positions < config.max_position_embeddings ? "--context_length"
                                                                   : "the model's max_position_embeddings",
                        positions),
            "Shorten the prompt; new tokens need positions, too.");
    GenerationSettings settings = options.generation;
    if (chat && !options.has_max_new_tokens) settings.max_new_tokens = default_answer_tokens;
    if (!converses && length + settings.max_new_tokens > positions) {
        settings.max_new_tokens = positions - length;
        print_log(stderr, "Making at most {} new tokens: the model has {} positions.\n",
                  settings.max_new_tokens, positions);
    }
    settings.ends = end_ids(config, options.model);
    if (chat) settings.ends = chat->ends(std::move(settings.ends));
    const std::int64_t capacity =
        converses ? conversation_capacity(options.chat, positions) : length + settings.max_new_tokens;

    const std::unique_ptr<Backend> backend = make_chosen_backend(options.device);
    InferenceModel model(
        config,
        {.dtype = chosen_dtype(options, config),
         .capacity = capacity,
         .new_tokens = std::clamp<std::int64_t>(converses ? capacity : length, 1, prefill_tokens)},
        *backend);
    model.allocate();
    if (const std::string text = load_weights(model, *backend, options.model, adapters).text(); !text.empty())
        print_log(stderr, "{}\n", text);

    Generator generator(model, *backend);
    if (converses) {
        chat->converse(generator, settings, capacity);
        return;
    }
    if (options.json || !tokenizer) {
        const std::vector<TokenId> ids = generator.generate(prompt, settings);
        if (!options.json) {
            print_result("{}\n", fmt::join(ids, ","));
            return;
        }
        Json result = {{"ids", ids},
                       {"text", tokenizer ? Json(tokenizer->decode(ids, true)) : Json()},
                       {"prompt_ids", prompt}};
        if (options.logits) result["logits"] = generator.prompt_logits();
        print_result("{}\n", python_json_line(result));
        return;
    }
    TextPrinter printer(tokenizer);
    const auto is_hidden = [&](TokenId id) {  // the end of an answer is no part of it
        return chat && std::find(settings.ends.begin(), settings.ends.end(), id) != settings.ends.end();
    };
    try {
        if (!chat)
            for (const TokenId id : prompt) printer.push(id);
        generator.generate(prompt, settings, [&](TokenId id) {
            if (!is_hidden(id)) printer.push(id);
        });
    } catch (const Error&) {
        printer.break_off();
        throw;
    }
    printer.finish();
}

}  // namespace

void add_generate_command(const Command& app) {
    auto options = std::make_shared<GenerateOptions>();
    const Command command =
        app.add_command("generate",
                        "Continue a prompt with a trained model and print the text as it is made.\n"
                        "Example: drover generate --model out --prompt \"Once upon a time\" "
                        "--max_new_tokens 64 --temperature 0.8\n"
                        "With --chat it talks: drover generate --model out --chat");
    command.show_defaults();
    SamplingSettings& sampling = options->generation.sampling;
    command
        .add_option(
            "--model", options->model,
            "model folder (config.json and safetensors or pytorch_model.bin), or a repository in the Hugging "
            "Face cache; or a LoRA adapter, whose base model is found")
        .required();
    command.add_option("--adapter_name_or_path", options->adapters,
                       "LoRA adapters of the model, PATH or NAME=PATH; of several, --adapter chooses");
    command.add_option("--adapter", options->adapter, "name of the adapter to use, if there are several");
    command.add_option("--tokenizer", options->tokenizer,
                       "folder or file of the tokenizer; that of the model folder when empty");
    const Flag prompt = command.add_option("--prompt", options->prompt, "text to continue");
    command.add_option("--prompt_ids", options->prompt_ids, "token ids to continue: 1,15043,3186")
        .separated_by(',')
        .changed_by(without_spaces_around)
        .checked_by(whole_number);
    command.add_flag(
        "--chat", options->chat.chat,
        "a conversation on the terminal, with the model's chat template; from a pipe, one answer");
    command.add_option("--messages", options->chat.messages,
                       "answer the messages of a JSON file, [{\"role\": \"user\", \"content\": …}, …], or of "
                       "standard input (-)");
    command.add_option("--system", options->chat.system, "system message of a chat");
    command.add_option("--chat_template_path", options->chat.template_path,
                       "file or folder of the chat template; that of the tokenizer when empty");
    command
        .add_option("--context_length", options->chat.context_length,
                    "tokens of a conversation that are remembered; 0: the model's positions, at most 4096")
        .between(0, 1 << 30);
    const Flag max_new_tokens = command
                                    .add_option("--max_new_tokens", options->generation.max_new_tokens,
                                                "tokens to add at most; 512 in a chat unless given")
                                    .between(1, 1 << 30);
    command.add_option("--temperature", sampling.temperature,
                       "logits are divided by it; 0: the likeliest token");
    command.add_option("--top_k", sampling.top_k, "choose among the k likeliest tokens; 0: all");
    command.add_option("--top_p", sampling.top_p,
                       "choose among the likeliest tokens that together have this probability");
    command.add_option("--seed", sampling.seed, "the same seed gives the same text").checked_by(whole_number);
    command.add_option("--dtype", options->dtype, "float32 or bfloat16; auto: the model's");
    command.add_option("--device", options->device, "auto takes a GPU when there is one")
        .one_of({"auto", "cpu", "cuda"});
    command.add_option("--threads", options->threads, "threads of the CPU; 0: as many as OpenMP would take")
        .between(0, 4096);
    command.add_flag("--json", options->json,
                     "print {\"ids\": new ids, \"text\": their text, \"prompt_ids\": ids of the prompt}");
    command.add_flag("--logits", options->logits,
                     "with --json: also \"logits\", those after the prompt, one per token of the vocabulary");
    command.set_action([options, prompt, max_new_tokens] {
        options->has_max_new_tokens = max_new_tokens.is_given();
        options->has_prompt = prompt.is_given();
        generate(*options);
    });
}

}  // namespace drover
