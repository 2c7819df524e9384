#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "args/argument_table.h"
#include "core/json.h"

namespace drover {

/// Where a setting comes from.
struct ArgumentSource {
    enum class Kind : std::uint8_t { default_value, command_line, file, environment, deepspeed, implied };

    Kind kind = Kind::default_value;
    std::string detail{};  ///< the file, the variable, or what implies it

    /// "default", "command line", "file X", "environment variable Y", "DeepSpeed config" or "implied by Z".
    std::string text() const;
    bool operator==(const ArgumentSource&) const = default;
};

/// The settings of a run: a value for every argument of the table, with its source. Asking for an argument
/// that is not in the table, or as a type other than its own, is a bug in the caller.
class Arguments {
  public:
    /// All arguments of the table at their defaults.
    explicit Arguments(const ArgumentTable& table = run_clm_table());

    const ArgumentTable& table() const { return *table_; }

    bool flag(std::string_view name) const;
    std::int64_t integer(std::string_view name) const;
    double number(std::string_view name) const;
    const std::string& text(std::string_view name) const;
    std::vector<std::string> words(std::string_view name) const;

    // Absent if unset.
    std::optional<bool> optional_flag(std::string_view name) const;
    std::optional<std::int64_t> optional_integer(std::string_view name) const;
    std::optional<double> optional_number(std::string_view name) const;
    std::optional<std::string> optional_text(std::string_view name) const;
    /// The object of a JSON argument; null if unset.
    const Json& json(std::string_view name) const;

    bool has(std::string_view name) const { return !value(name).is_null(); }
    /// Whether the user set it: on the command line, in a file, or by an environment variable.
    bool given(std::string_view name) const;
    const ArgumentSource& source(std::string_view name) const;

    void set(std::string_view name, Json value, ArgumentSource source);
    /// Sets a value that follows from `reason`, unless the user has set one.
    void imply(std::string_view name, Json value, std::string_view reason);

    /// One line per accepted flag or variable that has another meaning here, or none.
    const std::vector<std::string>& explanations() const { return explanations_; }
    void explain(std::string line);

    /// All settings by name, sorted, for training_args.json, which can be given as the only argument. Access
    /// tokens are left out.
    Json to_json() const;
    /// "name = value  (source; default value)" per line, sorted; all settings, or only those that differ from
    /// their defaults, which alone show them.
    std::string settings_text(bool all) const;

  private:
    struct Setting {
        Json value;
        ArgumentSource source;
    };

    const Setting& setting(std::string_view name) const;
    const Json& value(std::string_view name) const { return setting(name).value; }

    const ArgumentTable* table_;
    std::map<std::string, Setting, std::less<>> settings_;
    std::vector<std::string> explanations_;
};

}  // namespace drover
