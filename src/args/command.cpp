#include "args/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "core/words.h"

namespace drover {
namespace {

/// CLI11's name for it.
constexpr std::string_view boolean_type = "BOOLEAN";

}  // namespace

Flag Flag::required() const {
    option_->required();
    return *this;
}

Flag Flag::one_of(std::initializer_list<const char*> values) const {
    option_->check(CLI::IsMember(std::vector<std::string>(values.begin(), values.end())));
    return *this;
}

Flag Flag::one_of(std::initializer_list<int> values) const {
    option_->check(CLI::IsMember(std::vector<int>(values)));
    return *this;
}

Flag Flag::between(std::int64_t least, std::int64_t most) const {
    option_->check(CLI::Range(least, most));
    return *this;
}

Flag Flag::within(double least, double most) const {
    option_->check(CLI::Range(least, most));
    return *this;
}

Flag Flag::existing_path() const {
    option_->check(CLI::ExistingPath);
    return *this;
}

Flag Flag::needs(const Flag& other) const {
    option_->needs(other.option_);
    return *this;
}

Flag Flag::excludes(const Flag& other) const {
    option_->excludes(other.option_);
    return *this;
}

Flag Flag::hidden() const {
    option_->group("");
    return *this;
}

Flag Flag::separated_by(char delimiter) const {
    option_->delimiter(delimiter);
    return *this;
}

Flag Flag::with_optional_boolean() const {
    option_->expected(0, 1)->type_name(std::string(boolean_type));
    return *this;
}

Flag Flag::changed_by(std::function<std::string(std::string)> changed) const {
    option_->transform(std::move(changed));
    return *this;
}

Flag Flag::checked_by(std::function<std::string(const std::string&)> problem) const {
    option_->check(std::move(problem));
    return *this;
}

bool Flag::is_given() const {
    return option_->count() > 0;
}

Command Command::add_command(const std::string& name, const std::string& description) const {
    return Command(app_->add_subcommand(name, description));
}

template <class T>
Flag Command::add_option(const std::string& names, T& value, const std::string& help) const {
    return Flag(app_->add_option(names, value, help));
}

template Flag Command::add_option(const std::string&, std::string&, const std::string&) const;
template Flag Command::add_option(const std::string&, bool&, const std::string&) const;
template Flag Command::add_option(const std::string&, double&, const std::string&) const;
template Flag Command::add_option(const std::string&, std::int64_t&, const std::string&) const;
template Flag Command::add_option(const std::string&, std::uint64_t&, const std::string&) const;
template Flag Command::add_option(const std::string&, std::filesystem::path&, const std::string&) const;
template Flag Command::add_option(const std::string&, std::vector<std::string>&, const std::string&) const;
template Flag Command::add_option(const std::string&, std::vector<std::int32_t>&, const std::string&) const;
template Flag Command::add_option(const std::string&, std::optional<int>&, const std::string&) const;
template Flag Command::add_option(const std::string&, std::optional<std::int64_t>&, const std::string&) const;

Flag Command::add_taken_option(const std::string& names, std::function<void(const std::string&)> take,
                               const std::string& help) const {
    return Flag(app_->add_option_function<std::string>(names, take, help));
}

Flag Command::add_flag(const std::string& names, bool& value, const std::string& help) const {
    return Flag(app_->add_flag(names, value, help));
}

Flag Command::add_acting_flag(const std::string& names, std::function<void()> act) const {
    return Flag(app_->add_flag_function(names, [act = std::move(act)](std::int64_t) { act(); }));
}

void Command::show_defaults() const {
    app_->option_defaults()->always_capture_default();
}

void Command::set_footer(const std::string& text) const {
    app_->footer(text);
}

void Command::hide() const {
    app_->group("");
}

void Command::expect_command() const {
    app_->require_subcommand(1);
}

void Command::without_help() const {
    app_->set_help_flag();
}

void Command::take_words() const {
    app_->prefix_command();
}

void Command::replace_help(std::function<std::string(const Command&)> text) const {
    app_->formatter_fn([text = std::move(text)](const CLI::App* app, std::string, CLI::AppFormatMode) {
        return text(Command(const_cast<CLI::App*>(app)));
    });
}

void Command::set_action(std::function<void()> action) const {
    app_->callback(std::move(action));
}

std::string Command::name() const {
    return app_->get_name();
}

std::string Command::full_name() const {
    CLI::App* parent = app_->get_parent();
    return parent == nullptr ? name() : Command(parent).full_name() + " " + name();
}

std::string Command::description() const {
    return app_->get_description();
}

std::string Command::footer() const {
    return app_->get_footer();
}

bool Command::is_hidden() const {
    return app_->get_group().empty();
}

std::string Command::help() const {
    CLI::App* parent = app_->get_parent();
    return app_->help(parent == nullptr ? "" : Command(parent).full_name());
}

std::string FlagDescription::value() const {
    if (!takes_value) return "";
    const std::string words = fmt::format("{}", fmt::join(choices, "|"));
    if (value_may_be_missing) return fmt::format("[{}]", words);
    return !words.empty() ? words : is_number ? "N" : "TEXT";
}

std::string FlagDescription::names_text() const {
    std::string text;
    for (const std::string& name : names) {
        const std::size_t hyphens = std::min(name.find_first_not_of('-'), name.size());
        const std::string other = name.substr(0, hyphens) + with_underscores(name.substr(hyphens));
        if (other == name || std::ranges::find(names, other) == names.end())
            text += (text.empty() ? "" : ", ") + name;
    }
    return text;
}

std::string FlagDescription::usage() const {
    if (is_word) return is_required ? names.front() : fmt::format("[{}]", names.front());
    return takes_value ? fmt::format("{} {}", names_text(), value()) : names_text();
}

namespace {

/// The words of "TEXT:{a,b}", which is what CLI11 says of a choice.
std::vector<std::string> choices_of(const std::string& type) {
    const std::size_t begin = type.find('{'), end = type.find('}');
    if (begin == std::string::npos || end == std::string::npos) return {};
    return split_words(std::string_view(type).substr(begin + 1, end - begin - 1), ',');
}

FlagDescription described(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    FlagDescription flag{
        .names = {},
        .is_word = option.get_positional() && !option.nonpositional(),
        .takes_value = option.get_items_expected_max() > 0,
        .is_required = option.get_required(),
        .is_number = type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT"),
        .choices = choices_of(type),
        .default_text = option.get_default_str(),
        .help = option.get_description()};
    flag.value_may_be_missing = flag.takes_value && option.get_items_expected_min() == 0;
    if (type == boolean_type && flag.takes_value) {
        flag.choices = {"yes", "no"};
        if (!flag.default_text.empty()) flag.default_text = flag.default_text == "1" ? "yes" : "no";
    }
    if (const std::string& list = flag.default_text; list.starts_with('['))
        flag.default_text = fmt::format(
            "{}", fmt::join(split_words(std::string_view(list).substr(1, list.size() - 2), ','), ", "));
    for (const CLI::Option* other : option.get_needs())
        flag.help += fmt::format(" (with {})", other->get_name());
    if (flag.is_word) flag.names.push_back(option.get_name());
    for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
    return flag;
}

}  // namespace

std::vector<FlagDescription> Command::flags() const {
    std::vector<FlagDescription> flags;
    for (const CLI::Option* option : app_->get_options())
        if (!option->get_group().empty()) flags.push_back(described(*option));
    return flags;
}

bool Command::takes_words() const {
    return app_->get_prefix_command();
}

bool Command::needs_command() const {
    return app_->get_require_subcommand_min() > 0;
}

bool Command::has_flag(const std::string& name) const {
    return app_->get_option_no_throw(name) != nullptr;
}

std::vector<std::string> Command::flag_names() const {
    std::vector<std::string> names;
    for (const CLI::Option* option : app_->get_options())
        names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
    return names;
}

std::optional<Command> Command::find(std::string_view name) const {
    const auto found = app_->get_subcommands([&](CLI::App* command) { return command->get_name() == name; });
    return found.empty() ? std::nullopt : std::optional(Command(found.front()));
}

std::vector<std::string> Command::command_names() const {
    std::vector<std::string> names;
    for (const CLI::App* command : app_->get_subcommands({}))
        if (!command->get_group().empty()) names.push_back(command->get_name());
    return names;
}

bool Command::is_given() const {
    return app_->parsed();
}

std::optional<Command> Command::given_command() const {
    const auto given = app_->get_subcommands();
    return given.empty() ? std::nullopt : std::optional(Command(given.front()));
}

std::vector<std::string> Command::given_flags() const {
    std::vector<std::string> names;
    for (const CLI::Option* option : app_->get_options())
        if (option->count() > 0) names.push_back(option->get_name());
    return names;
}

std::vector<std::string> Command::words() const {
    return app_->remaining();
}

std::vector<std::string> Command::all_words() const {
    return app_->remaining(true);
}

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : app_(std::make_unique<CLI::App>(description, name)), program_(app_.get()) {}

CommandLine::~CommandLine() = default;

void CommandLine::expect_command(std::function<std::string()> version) const {
    app_->set_version_flag("--version", std::move(version));
    program_.expect_command();
}

namespace {

/// The rest of a text after a mark; empty if the mark is not there.
std::string after(const std::string& text, std::string_view mark) {
    const std::size_t at = text.find(mark);
    return at == std::string::npos ? "" : text.substr(at + mark.size());
}

/// A library's complaint about a command line, in the words that run_clm has for its own.
class Complaint {
  public:
    Complaint(const CLI::ParseError& error, CLI::App& app)
        : said_(error.what()), kind_(error.get_name()), app_(app), name_(Command(&app).full_name()) {}

    UsageError error() const {
        if (kind_ == "ConversionError") return of_type();
        if (kind_ == "ValidationError") return of_value();
        if (kind_ == "RequiredError") return of_missing();
        const std::string first = said_.substr(0, said_.find_first_of(": "));
        if (kind_ == "ArgumentMismatch" && said_.ends_with(" missing"))
            return with_help(fmt::format("{} needs a value.", first), "Write it after the flag.");
        if (kind_ == "RequiresError")
            return with_help(fmt::format("{} is given without {}.", first, after(said_, " requires ")),
                             "Give both.");
        if (kind_ == "ExcludesError")
            return with_help(fmt::format("{} and {} exclude each other.", first, after(said_, " excludes ")),
                             "Keep one of them.");
        return with_help(said_ + ".", "");
    }

  private:
    UsageError with_help(std::string cause, const std::string& remedy) const {
        return UsageError(std::move(cause), fmt::format("{}{}Run `{} --help` for its flags.", remedy,
                                                        remedy.empty() ? "" : " ", name_));
    }

    /// "Could not convert: --steps = abc"
    UsageError of_type() const {
        const std::string given = after(said_, ": ");
        const std::string flag = given.substr(0, given.find(" = "));
        const CLI::Option* option = app_.get_option_no_throw(flag);
        const bool is_real = option != nullptr && option->get_type_name().starts_with("FLOAT");
        return with_help(fmt::format("{} is \"{}\", which is not a {}number.", flag, after(given, " = "),
                                     is_real ? "" : "whole "),
                         is_real ? "Write it as 3, 0.5 or 5e-5." : "Write digits only, for example 8.");
    }

    /// "--device: gpu not in {auto,cpu}", "--steps: Value 0 not in range 3 to 8", or what a check has said.
    UsageError of_value() const {
        const std::string flag = said_.substr(0, said_.find(": ")), problem = after(said_, ": ");
        if (const std::size_t at = problem.find(" not in {"); at != std::string::npos)
            return with_help(
                fmt::format("{} is \"{}\", which is not one of its choices.", flag, problem.substr(0, at)),
                fmt::format("Use {}.", either_of(choices_of(problem.substr(at)))));
        if (const std::size_t at = problem.find(" not in range "); at != std::string::npos)
            return with_help(fmt::format("{} is {}, which is out of its range.", flag,
                                         after(problem.substr(0, at), "Value ")),
                             fmt::format("Use a number from {}.", after(problem, " not in range ")));
        if (problem.starts_with("Path does not exist: "))
            return with_help(fmt::format("{} is {}, which does not exist.", flag, after(problem, ": ")),
                             "Check the path.");
        return with_help(fmt::format("{}: {}.", flag, problem), "");
    }

    /// "A subcommand is required", "--model is required"
    UsageError of_missing() const {
        const std::vector<std::string> commands = Command(&app_).command_names();
        constexpr std::size_t most = 5;  // that fit into a sentence
        if (said_ == "A subcommand is required")
            return UsageError(fmt::format("`{}` needs a command.", name_),
                              commands.size() > most
                                  ? fmt::format("`{} --help` lists them.", name_)
                                  : fmt::format("Write {} after it; `{} --help` explains them.",
                                                either_of(commands), name_));
        const std::string missing = said_.substr(0, said_.find(" is required"));
        std::string choices;
        if (const CLI::Option* option = app_.get_option_no_throw(missing))
            choices = either_of(choices_of(option->get_type_name()));
        return with_help(
            fmt::format("`{}` needs {}{}.", name_, missing.starts_with('-') ? "" : "a ", missing),
            choices.empty() ? "" : fmt::format("Use {}.", choices));
    }

    std::string said_, kind_;
    CLI::App& app_;
    std::string name_;
};

/// The innermost command that the words named.
CLI::App& named_app(CLI::App& app) {
    const auto given = app.get_subcommands();
    return given.empty() ? app : named_app(*given.front());
}

}  // namespace

std::optional<UsageError> CommandLine::run(std::vector<std::string> words) const {
    std::reverse(words.begin(), words.end());  // the order that CLI11 expects
    try {
        app_->parse(words);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() != 0) return Complaint(error, named_app(*app_)).error();
        app_->exit(error);  // prints the help or the version
    }
    return std::nullopt;
}

}  // namespace drover
