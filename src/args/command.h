#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

/// The program's commands and those of their flags that are not in the table of arguments. CLI11 reads them.
/// Every file that includes that library compiles all of it, for eight seconds, so command.cpp alone does.
namespace drover {

/// A flag of a command. Copies name the same flag; it lives as long as its CommandLine.
class Flag {
  public:
    explicit Flag(CLI::Option* option) : option_(option) {}

    Flag required() const;
    Flag one_of(std::initializer_list<const char*> values) const;
    Flag one_of(std::initializer_list<int> values) const;
    /// For whole numbers, both ends included.
    Flag between(std::int64_t least, std::int64_t most) const;
    /// The same for real numbers.
    Flag within(double least, double most) const;
    Flag existing_path() const;
    /// An error without the other flag.
    Flag needs(const Flag& other) const;
    /// An error together with the other flag.
    Flag excludes(const Flag& other) const;
    /// --help does not show it.
    Flag hidden() const;
    /// Of a list that may be one word.
    Flag separated_by(char delimiter) const;
    /// yes or no, and it may be missing.
    Flag with_optional_boolean() const;
    /// `changed` is applied to a value before it is checked and read.
    Flag changed_by(std::function<std::string(std::string)> changed) const;
    /// `problem` returns what is wrong with a value; empty: nothing.
    Flag checked_by(std::function<std::string(const std::string&)> problem) const;
    /// On the command line that was parsed.
    bool is_given() const;

  private:
    CLI::Option* option_;
};

/// A flag, or a word at a fixed place, as help, man pages and shells present it.
struct FlagDescription {
    std::vector<std::string> names;  ///< with their hyphens; of a word its name
    bool is_word = false;            ///< not a flag
    bool takes_value = false;
    bool value_may_be_missing = false;
    bool is_required = false;
    bool is_number = false;
    std::vector<std::string> choices{};
    std::string default_text{};
    std::string help{};  ///< its meaning, and the flags without which it is an error

    /// Those that differ from others in hyphens alone are left out.
    std::string names_text() const;
    /// What stands for its value: "N", "TEXT", "auto|cpu|cuda", "[yes|no]"; empty if it takes none.
    std::string value() const;
    /// "--device auto|cpu|cuda", "--steps N", "[files]"
    std::string usage() const;
};

/// A command, or one inside another. Copies name the same command; it lives as long as its CommandLine.
class Command {
  public:
    explicit Command(CLI::App* app) : app_(app) {}

    Command add_command(const std::string& name, const std::string& description) const;
    /// A flag with a value. `names`: "--log_dir" or several, "--log_dir,--log-dir". T: std::string, bool,
    /// double, std::int64_t, std::uint64_t, std::filesystem::path, a vector of std::string or std::int32_t,
    /// an optional int or std::int64_t. `value` is written when the command line is parsed.
    template <class T>
    Flag add_option(const std::string& names, T& value, const std::string& help = {}) const;
    /// The same; `take` gets the value.
    Flag add_taken_option(const std::string& names, std::function<void(const std::string&)> take,
                          const std::string& help = {}) const;
    /// A flag without a value.
    Flag add_flag(const std::string& names, bool& value, const std::string& help = {}) const;
    /// The same; `act` is called if it is given.
    Flag add_acting_flag(const std::string& names, std::function<void()> act) const;
    /// --help shows the values that the flags added from now on have if they are not given.
    void show_defaults() const;
    /// The last lines of --help.
    void set_footer(const std::string& text) const;
    /// The help of the command above does not show it.
    void hide() const;
    /// Words without a command in it are an error from now on.
    void expect_command() const;
    /// --help is a word like others.
    void without_help() const;
    /// Its flags end at the first word that is none of them; that one and the rest are words().
    void take_words() const;
    /// What --help prints for a command: this one, and those that are added to it afterwards.
    void replace_help(std::function<std::string(const Command&)> text) const;
    /// What it does, once the command line is parsed.
    void set_action(std::function<void()> action) const;

    std::string name() const;
    /// Example: "drover bench ops".
    std::string full_name() const;
    std::string description() const;
    std::string footer() const;
    bool is_hidden() const;
    /// What --help prints.
    std::string help() const;
    /// Flags and words that are not hidden, --help among them if it has that.
    std::vector<FlagDescription> flags() const;
    bool takes_words() const;
    /// Words without a command in it are an error.
    bool needs_command() const;
    bool has_flag(const std::string& name) const;
    /// Of all flags, the long names without hyphens.
    std::vector<std::string> flag_names() const;
    /// The command of that name in it.
    std::optional<Command> find(std::string_view name) const;
    /// The commands in it that are not hidden.
    std::vector<std::string> command_names() const;

    /// Whether the command line that was parsed names it.
    bool is_given() const;
    /// The command in it that was named.
    std::optional<Command> given_command() const;
    /// The names of the flags that were given to this command itself.
    std::vector<std::string> given_flags() const;
    /// What neither a flag nor a command took of the words after its name.
    std::vector<std::string> words() const;
    /// The same, also of the commands inside it.
    std::vector<std::string> all_words() const;

  private:
    CLI::App* app_;
};

/// The command line of a program.
class CommandLine {
  public:
    CommandLine(const std::string& description, const std::string& name);
    ~CommandLine();

    const Command& program() const { return program_; }
    /// `drover --version` prints what `version` returns; and words without a command are an error from now
    /// on.
    void expect_command(std::function<std::string()> version) const;
    /// Parses the words after the program's name and does what the commands that they name do, or prints the
    /// help or the version that they ask for. Returns what is wrong with the words, if anything is.
    std::optional<UsageError> run(std::vector<std::string> words) const;

  private:
    std::unique_ptr<CLI::App> app_;
    Command program_;
};

}  // namespace drover
