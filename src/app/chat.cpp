#include "app/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <iterator>

#include "core/console.h"
#include "core/json.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "text/chat/template_files.h"
#include "text/streaming_decoder.h"

namespace drover {
namespace {

constexpr std::string_view chat_help =
    "/reset          forget the conversation (the system message stays)\n"
    "/system TEXT    set the system message and forget the conversation; without TEXT: none\n"
    "/retry          answer the last message again\n"
    "/help           this list\n"
    "/exit           end, as Ctrl-D does\n"
    "Ctrl-C stops an answer; at the prompt it ends the conversation. A line that ends with \\ goes on in "
    "the\n"
    "next one. A message that begins with / is written with //.\n";

Json message_of(std::string_view role, const std::string& content) {
    return Json{{"role", role}, {"content", content}};
}

void show_error(const Error& error) {
    print_log(stderr, "{} {}\n", error.cause(), error.remedy());
}

/// A conversation on a terminal.
class Conversation {
  public:
    Conversation(const ChatPrompt& prompt, std::shared_ptr<const Tokenizer> tokenizer, Generator& generator,
                 GenerationSettings settings, std::int64_t capacity, Interrupts& interrupts,
                 const std::string& system)
        : prompt_(prompt),
          tokenizer_(std::move(tokenizer)),
          generator_(generator),
          settings_(std::move(settings)),
          capacity_(capacity),
          seed_(settings_.sampling.seed),
          interrupts_(interrupts) {
        settings_.keep_common_start = true;
        settings_.is_stopped = [this] { return stopped_ = stopped_ || interrupts_.take(); };
        begin(system);
    }

    void run() {
        interrupts_.record();
        print_log(stderr, "Type a message. /help lists the commands, Ctrl-D ends.\n");
        while (const std::optional<std::string> text = read_message()) {
            if (text->find_first_not_of(" \t\r") == std::string::npos) continue;
            if (text->starts_with("//"))
                ask(text->substr(1));
            else if (!text->starts_with("/"))
                ask(*text);
            else if (!obey(*text))
                return;
        }
        write_result("\n");
    }

  private:
    void begin(const std::string& system) {
        messages_ = Json::array();
        if (!system.empty()) messages_.push_back(message_of("system", system));
    }
    bool has_system() const { return !messages_.empty() && messages_[0]["role"] == "system"; }

    /// Nothing at the end of the input.
    std::optional<std::string> read_message() {
        std::string text;
        for (const char* prompt = "> ";; prompt = "… ") {
            write_result(prompt);
            std::optional<std::string> line = interrupts_.read_line();
            if (!line) return std::nullopt;
            if (!line->ends_with('\\')) return text + *line;
            line->pop_back();
            text += *line + "\n";
        }
    }

    /// Returns false if the command ends the conversation.
    bool obey(const std::string& line) {
        const std::size_t space = std::min(line.find(' '), line.size());
        const std::string command = line.substr(0, space);
        if (command == "/exit" || command == "/quit") return false;
        if (command == "/help") {
            write_result(chat_help);
        } else if (command == "/reset") {
            begin(has_system() ? messages_[0]["content"].get<std::string>() : "");
        } else if (command == "/system") {
            begin(space < line.size() ? line.substr(space + 1) : "");
        } else if (command == "/retry") {
            retry();
        } else {
            print_log(stderr, "There is no command {}. /help lists those there are.\n", command);
        }
        return true;
    }

    void retry() {
        if (messages_.empty() || messages_.back()["role"] != "assistant") {
            print_log(stderr, "There is no answer yet.\n");
            return;
        }
        messages_.erase(messages_.size() - 1);
        answer();
    }

    void ask(const std::string& text) {
        messages_.push_back(message_of("user", text));
        answer();
    }

    /// Answers the last message, which is the user's. When that fails, it is forgotten.
    void answer() try {
        const std::vector<TokenId> prompt = fitting_prompt();
        const auto room = capacity_ - static_cast<std::int64_t>(prompt.size());
        GenerationSettings settings = settings_;
        settings.max_new_tokens = std::min(settings.max_new_tokens, room);
        settings.sampling.seed = seed_++;  // the same question may get another answer
        stopped_ = false;
        StreamingDecoder decoder(tokenizer_, true);
        std::string text;
        const auto print = [&](const std::string& part) {
            text += part;
            write_result(part);
        };
        const auto is_end = [&](TokenId id) {
            return std::find(settings.ends.begin(), settings.ends.end(), id) != settings.ends.end();
        };
        const std::vector<TokenId> made = generator_.generate(prompt, settings, [&](TokenId id) {
            if (!is_end(id)) print(decoder.push(id));
        });
        print(decoder.finish());
        write_result("\n");
        if (!stopped_ && !is_end(made.back()))
            print_log(stderr, "(The answer was cut off after {} tokens; {}.)\n", made.size(),
                      settings.max_new_tokens < settings_.max_new_tokens
                          ? "--context_length allows no more"
                          : "--max_new_tokens allows longer ones");
        messages_.push_back(message_of("assistant", text));
    } catch (const Error& error) {
        show_error(error);
        messages_.erase(messages_.size() - 1);
    }

    /// The ids of the conversation. If they leave too little room for an answer, the oldest messages after
    /// the system message are forgotten, up to the next one of the user.
    std::vector<TokenId> fitting_prompt() {
        const std::int64_t wanted = std::min(settings_.max_new_tokens, capacity_ / 2);
        std::vector<TokenId> ids = prompt_.ids(messages_);
        bool forgot = false;
        while (static_cast<std::int64_t>(ids.size()) + wanted > capacity_) {
            const std::size_t first = has_system() ? 1 : 0;
            if (messages_.size() <= first + 1) break;
            do messages_.erase(first);
            while (messages_.size() > first + 1 && messages_[first]["role"] != "user");
            ids = prompt_.ids(messages_);
            forgot = true;
        }
        if (forgot)
            print_log(stderr, "(The conversation is longer than {} tokens: its beginning is forgotten.)\n",
                      capacity_);
        return ids;
    }

    const ChatPrompt& prompt_;
    std::shared_ptr<const Tokenizer> tokenizer_;
    Generator& generator_;
    GenerationSettings settings_;
    std::int64_t capacity_;
    std::uint64_t seed_;
    Interrupts& interrupts_;
    bool stopped_ = false;  // Ctrl-C during this answer
    Json messages_;
};

}  // namespace

Chat::Chat(const ChatOptions& options, std::shared_ptr<const Tokenizer> tokenizer,
           const std::filesystem::path& folder)
    : options_(options),
      tokenizer_(tokenizer),
      prompt_(load_chat_template(
                  options.template_path.empty() ? folder : std::filesystem::path(options.template_path)),
              std::move(tokenizer), folder) {
    if (!options.messages.empty())
        given_ = read_messages(options.messages);
    else if (isatty(STDIN_FILENO) == 0)
        given_ = read_messages("-");
    if (!given_) {
        interrupts_ = std::make_unique<Interrupts>();
    } else if (!options.system.empty()) {
        const Json message = message_of("system", options.system);
        given_->messages.insert(given_->messages.begin(), message);
    }
}

ChatMessages Chat::read_messages(const std::string& file) const {
    if (file != "-") return ChatMessages::of(read_json_file(file), file);
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos)
        throw Error("Standard input is empty.", "Send messages as JSON, or the text of one message.");
    if (text[first] == '[' || text[first] == '{')
        return ChatMessages::of(parse_json(text, "Standard input"), "Standard input");
    const std::size_t last = text.find_last_not_of("\r\n");
    return {.messages = Json::array({message_of("user", text.substr(0, last + 1))}), .tools = {}};
}

std::vector<TokenId> Chat::ends(std::vector<TokenId> ends) const {
    for (const std::optional<TokenId> id : {tokenizer_->eos(), prompt_.end_of_turn()})
        if (id && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
    return ends;
}

std::vector<TokenId> Chat::prompt() const {
    return prompt_.ids(given_->messages, given_->tools);
}

void Chat::converse(Generator& generator, const GenerationSettings& settings, std::int64_t capacity) {
    Conversation(prompt_, tokenizer_, generator, settings, capacity, *interrupts_, options_.system).run();
}

}  // namespace drover
