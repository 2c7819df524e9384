#include "data/conversation/example_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/batch.h"
#include "core/content_hash.h"
#include "core/error.h"
#include "core/text_file.h"
#include "text/chat/template_files.h"
#include "text/side_files.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> known_roles{"system", "developer", "user",   "assistant",
                                                      "tool",   "function",  "ipython"};

/// Whether a template mentions a role.
bool names_role(std::string_view source, const std::string& role) {
    return source.find(fmt::format("'{}'", role)) != std::string_view::npos ||
           source.find(fmt::format("\"{}\"", role)) != std::string_view::npos;
}

/// The first token that stands for the character at `byte`, as transformers' char_to_token.
std::optional<std::size_t> token_of(const std::vector<Span>& spans, std::size_t byte) {
    const auto found = std::find_if(spans.begin(), spans.end(),
                                    [&](const Span& span) { return span.begin <= byte && byte < span.end; });
    if (found == spans.end()) return std::nullopt;
    return static_cast<std::size_t>(found - spans.begin());
}

/// Where the last character before `end` begins.
std::size_t last_character_before(std::string_view text, std::size_t end) {
    while (end > 0 && (static_cast<unsigned char>(text[--end]) & 0xC0) == 0x80) {
    }
    return end;
}

/// Which tokens stand in {% generation %} blocks, by the rules of transformers' apply_chat_template: a block
/// that begins in no token ends the search, and one that ends in none, or in the first, goes to the end.
std::vector<bool> generated_tokens(const RenderedChat& chat, const std::vector<Span>& spans) {
    std::vector<bool> marks(spans.size(), false);
    for (const jinja::Span& block : chat.generated) {
        const auto first = token_of(spans, block.begin);
        if (!first) break;
        const auto last =
            block.end == 0 ? std::nullopt : token_of(spans, last_character_before(chat.text, block.end));
        const std::size_t end = last && *last != 0 ? *last + 1 : spans.size();
        for (std::size_t i = *first; i < end; ++i) marks[i] = true;
    }
    return marks;
}

/// Renders messages of an example and encodes them.
class ConversationEncoder {
  public:
    ConversationEncoder(const ExampleTemplate& chat_template, const Tokenizer& tokenizer,
                        const SpecialGuard* guard)
        : template_(chat_template), tokenizer_(tokenizer), guard_(guard) {}

    RenderedChat render(const Json& messages, const Example& example, bool add_generation_prompt) {
        ChatInputs inputs;
        inputs.messages = put(messages);
        inputs.tools = put(example.tools);
        inputs.variables = put(example.variables);
        inputs.add_generation_prompt = add_generation_prompt;
        inputs.special_tokens = template_.special_tokens;
        const bool with_tools = example.tools.is_array() && !example.tools.empty();
        return (with_tools ? template_.with_tools : template_.plain)->render(inputs);
    }
    void encode(const RenderedChat& chat, std::vector<TokenId>& ids) const {
        if (is_guarded_)
            tokenizer_.encode_guarded(chat.text, ids);
        else
            tokenizer_.encode(chat.text, SpecialTokens::omit, ids);
    }

  private:
    Json put(const Json& value) {
        if (guard_ == nullptr || !guard_->is_needed(value)) return value;
        is_guarded_ = true;
        return guard_->guarded(value);
    }

    const ExampleTemplate& template_;
    const Tokenizer& tokenizer_;
    const SpecialGuard* guard_;
    bool is_guarded_ = false;
};

void check_source_tokens(const fs::path& folder, const Tokenizer& tokenizer) {
    const SideFiles files(folder);
    const auto check = [&](const AddedToken& token) {
        if (!tokenizer.find(token.content))
            throw Error(
                fmt::format("The chat template of {} comes with the token \"{}\", which the tokenizer "
                            "does not have.",
                            folder.string(), token.content),
                "Add it to the tokenizer and the model first, or name the template's file alone.");
    };
    for (const AddedToken& token : files.added) check(token);
    for (const auto& [role, token] : files.named) check(token);
}

}  // namespace

ExampleTemplate find_example_template(const fs::path& path, const fs::path& tokenizer_folder,
                                      const Tokenizer& tokenizer) {
    ExampleTemplate found;
    const fs::path own =
        fs::is_directory(tokenizer_folder) ? tokenizer_folder : tokenizer_folder.parent_path();
    found.special_tokens = named_special_tokens(own);
    const fs::path source = path.empty() ? own : path;
    if (!path.empty() && !fs::exists(path))
        throw Error(fmt::format("There is no chat template at {}.", path.string()),
                    "Name a file with a template, or the folder of a tokenizer.");
    if (!fs::is_directory(source)) {
        found.source = read_text_file(source);
        found.plain = std::make_shared<const ChatTemplate>(found.source, source.string());
        found.with_tools = found.plain;
        return found;
    }
    const std::vector<ChatTemplateText> templates = find_chat_templates(source);
    if (templates.empty() && path.empty()) {
        found.missing = fmt::format("{} has no chat template", own.string());
        return found;
    }
    if (!path.empty()) {
        check_source_tokens(path, tokenizer);
        if (const Json theirs = named_special_tokens(path); theirs.contains("eos_token"))
            found.special_tokens["eos_token"] = theirs["eos_token"];
    }
    const auto load = [&](bool with_tools) {
        const ChatTemplateText& chosen = choose_chat_template(templates, source, with_tools);
        found.source += chosen.text;
        return std::make_shared<const ChatTemplate>(chosen.text, chosen.where);
    };
    found.plain = load(false);
    found.with_tools = load(true);
    return found;
}

ExampleTokenizer::ExampleTokenizer(std::shared_ptr<const Tokenizer> tokenizer, ExampleTemplate chat_template,
                                   ExampleFormat format, SftOptions options)
    : tokenizer_(std::move(tokenizer)),
      template_(std::move(chat_template)),
      format_(format),
      options_(std::move(options)),
      guard_(*tokenizer_),
      completion_only_(options_.completion_only_loss.value_or(format == ExampleFormat::prompt_completion ||
                                                              format == ExampleFormat::alpaca)) {
    if (completion_only_ && format != ExampleFormat::prompt_completion && format != ExampleFormat::alpaca)
        throw UsageError("--completion_only_loss is set, but the rows have no completions.",
                         "Give rows of \"prompt\" and \"completion\", or use --assistant_only_loss.");
    if (options_.assistant_only_loss && format == ExampleFormat::text)
        throw UsageError("--assistant_only_loss is set, but the rows are plain text.",
                         "Give rows of \"messages\", or leave the flag out.");
    if (options_.assistant_only_loss && template_.plain && !template_.plain->has_generation())
        throw Error(fmt::format("--assistant_only_loss is set, but {} does not mark what the assistant says.",
                                template_.plain->name()),
                    "Name a template with {% generation %} blocks around it with --chat_template_path.");
    eos_ = options_.eos_token;
    if (!eos_.empty()) {
        if (!tokenizer_->find(eos_))
            throw Error(fmt::format("--eos_token is \"{}\", which is not a token of this tokenizer.", eos_),
                        "Name a token of its vocabulary.");
        template_.special_tokens["eos_token"] = eos_;
    } else if (template_.special_tokens.contains("eos_token")) {
        eos_ = template_.special_tokens["eos_token"].get<std::string>();
    } else if (const auto id = tokenizer_->eos()) {
        eos_ = tokenizer_->decode({&*id, 1}, false);
    }
}

TokenizedExample ExampleTokenizer::operator()(const Example& example) const {
    TokenizedExample result;
    if (example.is_conversation())
        tokenize_conversation(example, result);
    else
        tokenize_text(example, result);
    return result;
}

void ExampleTokenizer::tokenize_text(const Example& example, TokenizedExample& result) const {
    if (options_.assistant_only_loss)
        throw Error("The row is plain text, and --assistant_only_loss is set.",
                    "Give messages, or leave the flag out.");
    if (eos_.empty())
        throw Error("The tokenizer has no EOS token to end a text with.", "Name one with --eos_token.");
    const std::string text = example.text.ends_with(eos_) ? example.text : example.text + eos_;
    tokenizer_->encode(example.prompt_text + text, SpecialTokens::add, result.ids);
    result.labels = result.ids;
    if (example.kind != Example::Kind::completion_text) return;
    std::vector<TokenId> prompt;
    tokenizer_->encode(example.prompt_text, SpecialTokens::add, prompt);
    mask_prompt(prompt, result);
}

void ExampleTokenizer::tokenize_conversation(const Example& example, TokenizedExample& result) const {
    if (!template_.plain)
        throw Error(fmt::format("The row is a conversation, and {}.", template_.missing),
                    "Add a chat_template.jinja to it, or name a template with --chat_template_path.");
    check_roles(example);
    ConversationEncoder encoder(template_, *tokenizer_, options_.allow_special_tokens ? nullptr : &guard_);
    const RenderedChat chat = encoder.render(example.messages, example, false);
    if (options_.assistant_only_loss) {
        std::vector<Span> spans;
        tokenizer_->encode_aligned(chat.text, SpecialTokens::omit, result.ids, spans);
        result.labels = result.ids;
        const std::vector<bool> generated = generated_tokens(chat, spans);
        if (std::find(generated.begin(), generated.end(), true) == generated.end())
            throw Error("The row has nothing that the assistant says, and --assistant_only_loss is set.",
                        "Take the row out, or check the template's {% generation %} blocks.");
        for (std::size_t i = 0; i < generated.size(); ++i)
            if (!generated[i]) result.labels[i] = no_label;
    } else {
        encoder.encode(chat, result.ids);
        result.labels = result.ids;
    }
    if (example.kind != Example::Kind::prompt_completion) return;
    const Json prompt_messages(
        example.messages.begin(),
        example.messages.begin() + static_cast<std::ptrdiff_t>(example.prompt_messages));
    std::vector<TokenId> prompt;
    encoder.encode(encoder.render(prompt_messages, example, true), prompt);
    mask_prompt(prompt, result);
}

void ExampleTokenizer::mask_prompt(const std::vector<TokenId>& prompt, TokenizedExample& result) const {
    const auto apart =
        std::mismatch(prompt.begin(), prompt.end(), result.ids.begin(), result.ids.end()).first;
    if (apart != prompt.end()) result.lost_prompt = tokenizer_->decode({apart, prompt.end()}, false);
    if (!completion_only_) return;
    std::fill_n(result.labels.begin(), apart - prompt.begin(), no_label);
}

void ExampleTokenizer::check_roles(const Example& example) const {
    for (const Json& message : example.messages) {
        const std::string& role = message["role"].get_ref<const std::string&>();
        if (std::find(known_roles.begin(), known_roles.end(), role) != known_roles.end() ||
            names_role(template_.source, role))
            continue;
        throw Error(fmt::format("A message has the role \"{}\", which is unknown.", role),
                    "Use system, user, assistant or tool, or a role that the chat template names.");
    }
}

std::string ExampleTokenizer::warning() const {
    if (!options_.assistant_only_loss || !template_.plain) return {};
    const Json messages = Json::array({Json{{"role", "user"}, {"content", "dummy"}},
                                       Json{{"role", "assistant"}, {"content", "dummy"}},
                                       Json{{"role", "user"}, {"content", "dummy"}}});
    const std::string sentence =
        "The chat template does not mark the end of the assistant's turns as generated: the model may not "
        "learn to stop. Put the token that ends a turn inside of {% generation %}.";
    try {
        ConversationEncoder encoder(template_, *tokenizer_, nullptr);
        const RenderedChat chat = encoder.render(messages, {}, false);
        std::vector<TokenId> ids;
        std::vector<Span> spans;
        tokenizer_->encode_aligned(chat.text, SpecialTokens::omit, ids, spans);
        const std::vector<bool> generated = generated_tokens(chat, spans);
        for (std::size_t i = ids.size(); i-- > 0;) {
            if (!generated[i]) continue;
            const std::string text = tokenizer_->decode({&ids[i], 1}, false);
            if (text.find_first_not_of(" \t\r\n\v\f") == std::string::npos) continue;
            return tokenizer_->is_added(ids[i]) ? std::string() : sentence;
        }
    } catch (const Error&) {  // it wants other messages
    }
    return sentence;
}

std::string ExampleTokenizer::fingerprint() const {
    return ContentHash()
        .add("examples 1")
        .add(tokenizer_->fingerprint())
        .add(template_.source)
        .add(template_.special_tokens.dump())
        .add(std::to_string(static_cast<int>(format_)))
        .add(options_.text_field)
        .add(options_.assistant_only_loss ? "assistant" : "all")
        .add(completion_only_ ? "completion" : "whole")
        .add(eos_)
        .add(options_.allow_special_tokens ? "special" : "plain")
        .hex();
}

}  // namespace drover
