#include "run/sample_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "core/convert.h"
#include "core/error.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "model/params.h"
#include "run/merged_leaf.h"
#include "run/settings/run_settings.h"
#include "text/chat/chat_prompt.h"
#include "text/chat/template_files.h"
#include "train/engine/train_engine.h"
#include "train/engine/whole_weights.h"

namespace drover {
namespace {

/// A prompt as it is in the file: a text, or messages.
struct WrittenPrompt {
    std::string text;
    ChatMessages chat;
    bool is_chat() const { return !chat.messages.is_null(); }

    /// What is shown of it: a conversation's last message.
    std::string shown() const {
        if (!is_chat()) return text;
        const Json content = chat.messages.back().value("content", Json());
        return content.is_string() ? content.get<std::string>() : content.dump();
    }
};

WrittenPrompt prompt_of(const Json& value, const std::string& place) {
    if (value.is_string()) return {.text = value.get<std::string>()};
    if (value.is_object())
        for (const char* key : {"prompt", "text"})
            if (value.contains(key) && value[key].is_string()) return {.text = value[key].get<std::string>()};
    WrittenPrompt prompt{.text = {}, .chat = ChatMessages::of(value, place)};
    // A row of a dataset ends with the answer, which is what the model is to give.
    Json& messages = prompt.chat.messages;
    if (messages.size() > 1 && messages.back()["role"] == "assistant") messages.erase(messages.size() - 1);
    return prompt;
}

std::vector<WrittenPrompt> read_prompts(const std::filesystem::path& file) {
    const std::string text = read_text_file(file);
    std::vector<WrittenPrompt> prompts;
    if (file.extension() == ".json") {
        const Json values = parse_json(text, file.string());
        // A list of messages is one conversation; any other list has a prompt in each place.
        const bool is_one =
            !values.is_array() || (!values.empty() && values[0].is_object() && values[0].contains("role"));
        if (is_one) return {prompt_of(values, file.string())};
        for (const Json& value : values)
            prompts.push_back(
                prompt_of(value, fmt::format("{}, prompt {}", file.string(), prompts.size() + 1)));
    } else {
        std::istringstream lines(text);
        int number = 0;
        for (std::string line; std::getline(lines, line);) {
            ++number;
            if (!line.empty() && line.back() == '\r') line.pop_back();
            if (line.find_first_not_of(" \t") == std::string::npos) continue;
            const std::string place = fmt::format("{}, line {}", file.string(), number);
            if (file.extension() == ".jsonl")
                prompts.push_back(prompt_of(parse_json(line, place), place));
            else
                prompts.push_back({.text = line});
        }
    }
    if (prompts.empty())
        throw Error(fmt::format("{} has no prompts.", file.string()),
                    "Write one per line; or .jsonl or .json with texts, or with messages.");
    return prompts;
}

}  // namespace

SampleGenerator::SampleGenerator(const SampleSettings& settings, const ModelSource& model,
                                 const std::filesystem::path& tokenizer_folder,
                                 const std::filesystem::path& template_path, bool texts_are_questions)
    : generation_{.sampling = settings.sampling,
                  .max_new_tokens = settings.max_new_tokens,
                  .ends = end_ids(model.config, model.generation, "generation_config.json")},
      config_(model.config),
      tokenizer_(model.tokenizer) {
    if (!tokenizer_)
        throw Error("--eval_prompts needs a tokenizer, and the run has none.", "Name one, or leave it out.");
    config_.rows_before_resize = 0;  // any resize of the vocabulary is done when samples are made
    const bool has_template = !template_path.empty() || !find_chat_templates(tokenizer_folder).empty();
    std::optional<ChatPrompt> chat;
    const auto ids_of = [&](WrittenPrompt prompt) {
        if (!prompt.is_chat() && texts_are_questions && has_template)
            prompt.chat.messages = Json::array({Json{{"role", "user"}, {"content", prompt.text}}});
        std::vector<TokenId> ids;
        if (!prompt.is_chat()) {
            tokenizer_->encode(prompt.text, SpecialTokens::add, ids);
            return ids;
        }
        if (!chat)
            chat.emplace(load_chat_template(template_path.empty() ? tokenizer_folder : template_path),
                         tokenizer_, tokenizer_folder);
        return chat->ids(prompt.chat.messages, prompt.chat.tools);
    };
    for (const WrittenPrompt& prompt : read_prompts(settings.prompts)) {
        prompts_.push_back({prompt.shown(), ids_of(prompt)});
        const auto length = static_cast<std::int64_t>(prompts_.back().ids.size());
        if (length == 0 || length >= config_.max_position_embeddings)
            throw Error(
                fmt::format("{}: prompt {} has {} tokens, and the model has {} positions.", settings.prompts,
                            prompts_.size(), length, config_.max_position_embeddings),
                "Use prompts of at least one token that leave room for an answer.");
        longest_ = std::max(longest_, length);
    }
    if (chat)
        for (const std::optional<TokenId> id : {tokenizer_->eos(), chat->end_of_turn()})
            if (id) generation_.ends.push_back(*id);
    capacity_ = std::min(longest_ + generation_.max_new_tokens, config_.max_position_embeddings);
}

void SampleGenerator::plan(DType dtype, Backend& backend) {
    constexpr std::int64_t most_at_once = 512;
    model_ = std::make_unique<InferenceModel>(
        config_,
        InferenceOptions{.dtype = dtype == DType::bf16 ? DType::bf16 : DType::f32,
                         .capacity = capacity_,
                         .new_tokens = std::min(longest_, most_at_once)},
        backend);
}

void SampleGenerator::copy_weights(const TrainEngine& engine, const Adapters& adapters, Backend& backend,
                                   const Mesh& mesh) {
    if (!model_ && holds_whole_weights(engine)) return;
    const auto read = [&](const std::string& name) { return read_whole_leaf(engine, name, backend, mesh); };
    const Stream stream = backend.main_stream();
    std::vector<std::byte> converted;
    make_param_spec(config_).for_each_leaf([&](const LeafSpec& leaf) {
        const std::vector<float> values = merged_leaf(leaf.name, adapters, read);
        if (!model_) return;
        for (const OwnedLeaf& own : model_->weights()) {
            if (own.spec->name != leaf.name) continue;
            converted.resize(own.param.bytes());
            convert_elements(values.data(), DType::f32, converted.data(), own.param.dtype(),
                             own.param.numel());
            backend.copy(stream, Tensor(converted.data(), own.param.dtype(), own.param.shape()), own.param);
            backend.synchronize(stream);
        }
    });
}

std::vector<EvalSample> SampleGenerator::generate(const TrainEngine& engine, const Adapters& adapters,
                                                  Backend& backend, const Mesh& mesh) {
    copy_weights(engine, adapters, backend, mesh);
    std::vector<EvalSample> samples;
    if (!model_) return samples;
    Generator generator(*model_, backend);
    const auto is_end = [&](TokenId id) {
        return std::find(generation_.ends.begin(), generation_.ends.end(), id) != generation_.ends.end();
    };
    for (const Prompt& prompt : prompts_) {
        EvalSample& sample = samples.emplace_back(prompt.shown, "");
        try {
            std::vector<TokenId> made = generator.generate(prompt.ids, generation_);
            if (is_end(made.back())) made.pop_back();
            // A model that has learned little chooses rows of its vocabulary that no token has.
            std::erase_if(made, [&](TokenId id) { return id >= tokenizer_->size(); });
            sample.text = tokenizer_->decode(made, true);
        } catch (const Error& error) {  // weights that are not numbers; whether to go on is for others to say
            sample.text = fmt::format("({})", error.cause());
        }
    }
    return samples;
}

}  // namespace drover
