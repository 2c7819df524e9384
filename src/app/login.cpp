#include <fmt/format.h>
#include <termios.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>

#include "app/commands.h"
#include "args/command.h"
#include "core/console.h"
#include "core/error.h"
#include "hub/client.h"
#include "hub/places.h"
#include "hub/settings.h"

namespace drover {
namespace {

struct LoginOptions {
    std::string token;
    bool out = false, who = false;
};

/// A line of standard input; on a terminal it is not shown while it is typed.
std::string read_token(const std::string& hub) {
    const bool on_terminal = isatty(STDIN_FILENO) == 1;
    termios before{};
    if (on_terminal) {
        print_log(stderr, "A token of {}/settings/tokens (not shown while you type): ", hub);
        tcgetattr(STDIN_FILENO, &before);
        termios hidden = before;
        hidden.c_lflag &= ~static_cast<tcflag_t>(ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &hidden);
    }
    std::string token;
    std::getline(std::cin, token);
    if (on_terminal) {
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
        print_log(stderr, "\n");
    }
    return clean_token(token, "standard input");
}

void login(const LoginOptions& options) {
    if (options.out) {
        print_result("{}\n", remove_stored_token() ? fmt::format("{} is removed.", token_file().string())
                                                   : "There was no token.");
        return;
    }
    HubSettings settings = HubSettings::from_environment(options.token);
    const std::string hub = settings.endpoint.origin();
    if (options.who) {
        print_result("{}\n", HubClient(settings).user_name());
        return;
    }
    settings.token = options.token.empty() ? read_token(hub) : settings.token;
    if (settings.token.empty())
        throw UsageError("No token was given.", fmt::format("Make one at {}/settings/tokens.", hub));
    const std::string user = HubClient(settings).user_name();
    store_token(settings.token);
    print_result("Logged in at {} as {}. The token is in {}.\n", hub, user, token_file().string());
    if (const char* other = std::getenv("HF_TOKEN"); other != nullptr && *other != '\0')
        print_log(stderr, "HF_TOKEN is set, and is used before this token.\n");
}

}  // namespace

void add_login_command(const Command& app) {
    const Command command =
        app.add_command("login",
                        "Keep a token of the Hugging Face Hub, for gated and private "
                        "repositories and for uploads. It is read "
                        "from standard input, checked, and written where other programs look "
                        "for it too; only you can read it.");
    auto options = std::make_shared<LoginOptions>();
    command.add_option("--token", options->token,
                       "the token; other users of this machine can see a command line");
    const Flag out = command.add_flag("--logout", options->out, "remove the token");
    command.add_flag("--whoami", options->who, "print whose token is used, and change nothing").excludes(out);
    command.set_action([options] { login(*options); });
}

}  // namespace drover
