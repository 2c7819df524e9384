#include "launch/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>

#include "core/console.h"
#include "core/error.h"
#include "launch/connection.h"
#include "launch/daemon_words.h"
#include "launch/network.h"
#include "launch/shown.h"
#include "launch/tee.h"

namespace drover {
namespace {

[[noreturn]] void refuse(std::string_view why, std::string_view command_line) {
    throw Error(fmt::format("mpirun wants to start something on another node that {}: {}", why, command_line),
                "Only Open MPI's daemon (orted, prted) is started; look at the settings of mpirun.");
}

struct ShellCommand {
    std::vector<std::string> words{};
    bool readable = true;  ///< false: needs a shell, which would replace some characters
};

/// Splits a line into words as a shell does, and into commands at semicolons.
class ShellLine {
  public:
    explicit ShellLine(std::string_view line) {
        for (std::size_t i = 0; i < line.size(); ++i) {
            const char sign = line[i], next = i + 1 < line.size() ? line[i + 1] : '\0';
            if (quote_ != '\'' && sign == '\\' && is_escapable(next)) {
                add(next);
                ++i;
            } else {
                take(sign);
            }
        }
        if (quote_ != 0) commands_.back().readable = false;
        end_word();
    }
    std::vector<ShellCommand>& commands() { return commands_; }

  private:
    bool is_escapable(char sign) const {
        return sign != '\0' &&
               (quote_ == 0 || std::string_view("\"\\$`").find(sign) != std::string_view::npos);
    }
    void take(char sign) {
        const auto among = [sign](std::string_view signs) {
            return signs.find(sign) != std::string_view::npos;
        };
        if (sign == quote_) {
            quote_ = 0;
        } else if (quote_ == 0 && among("\"'")) {
            quote_ = sign;
            in_word_ = true;
        } else if (quote_ == 0 && among(" \t()")) {
            end_word();
        } else if (quote_ == 0 && among(";\n")) {
            end_word();
            commands_.emplace_back();
        } else {
            if ((quote_ != '\'' && among("$`")) || (quote_ == 0 && among("|&<>*?~!#")))
                commands_.back().readable = false;
            add(sign);
        }
    }
    void add(char sign) {
        word_.push_back(sign);
        in_word_ = true;
    }
    void end_word() {
        if (in_word_) commands_.back().words.push_back(std::exchange(word_, {}));
        in_word_ = false;
    }

    std::vector<ShellCommand> commands_{1};
    std::string word_;
    bool in_word_ = false;
    char quote_ = 0;
};

}  // namespace

std::vector<std::string> daemon_words(std::string_view command_line) {
    std::vector<std::string> found;
    ShellLine line(command_line);
    for (ShellCommand& command : line.commands()) {
        if (command.words.empty()) continue;
        if (!found.empty()) refuse("does more than starting a daemon", command_line);
        const std::string name = command.words.front().substr(command.words.front().rfind('/') + 1);
        if (!is_daemon_name(name)) continue;
        if (!command.readable) refuse("only a shell can read", command_line);
        found = std::move(command.words);
        found.front() = name;
    }
    if (found.empty()) refuse("is no daemon of Open MPI", command_line);
    return found;
}

int run_launch_agent(const std::vector<std::string>& words) {
    const char* place = std::getenv(launch_socket_variable);
    if (place == nullptr || words.size() < 2)
        throw UsageError("This command is for mpirun alone.", "Use drover launch.");
    LaunchMessage request{.subject = LaunchSubject::run, .numbers = {0}, .texts = {words.front()}};
    std::string line;
    for (std::size_t i = 1; i < words.size(); ++i) line += (i > 1 ? " " : "") + words[i];
    for (std::string& word : daemon_words(line)) request.texts.push_back(std::move(word));
    FileDescriptor socket = connect_locally(place);
    if (!socket.is_open()) throw Error("The launcher of node 0 is gone.", "Start the job again.");
    LaunchConnection launcher(std::move(socket), largest_launch_message);
    launcher.send(request);
    while (!launcher.is_lost()) {
        pollfd asked{.fd = launcher.descriptor(), .events = POLLIN, .revents = 0};
        poll(&asked, 1, -1);
        for (const LaunchMessage& message : launcher.receive()) {
            if (message.subject == LaunchSubject::output)
                write_all(STDERR_FILENO, shown_lines(message.texts[0]));
            if (message.subject != LaunchSubject::ended) continue;
            if (!message.texts[0].empty()) print_log(stderr, "drover: {}\n", shown_text(message.texts[0]));
            return message.numbers[1];
        }
    }
    return 1;
}

}  // namespace drover
