#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/json.h"

namespace drover {

inline constexpr std::string_view adapter_config_file = "adapter_config.json";
/// The release of PEFT whose files are written.
inline constexpr std::string_view peft_version = "0.21.2";

/// Modules by name: none, a regular expression for the whole name, or a list of names and endings.
using ModuleSelection = std::variant<std::monostate, std::string, std::vector<std::string>>;

/// Is told of what a file says and what has no meaning here.
using PeftWarning = std::function<void(const std::string&)>;

/// The adapter_config.json of a LoRA adapter, as PEFT reads and writes it.
struct PeftConfig {
    std::string base_model;  ///< base_model_name_or_path; empty: null
    std::string revision;    ///< of the base model; empty: null
    std::int64_t rank = 8;
    double alpha = 8;
    double dropout = 0;
    bool rank_stabilized = false;  ///< use_rslora: the scale is alpha/√rank
    bool magnitudes = false;       ///< use_dora
    ModuleSelection targets{};     ///< none: those that PEFT has for the model's type
    ModuleSelection excluded{};
    std::vector<std::string> target_parameters{};
    std::vector<std::string> modules_to_save{};
    std::optional<std::vector<std::int64_t>> layers{};          ///< layers_to_transform; absent: all
    std::vector<std::string> layers_patterns{};                 ///< empty: any list of layers
    std::vector<std::pair<std::string, std::int64_t>> ranks{};  ///< rank_pattern, in the file's order
    std::vector<std::pair<std::string, double>> alphas{};       ///< alpha_pattern

    /// Every key of PEFT's class with its value.
    Json values;

    /// Error, naming `where` and the key, when the text is no configuration of a LoRA adapter that can be
    /// used here. Keys that PEFT does not know are dropped, and `warn` is told.
    static PeftConfig parse(std::string_view text, std::string_view where, const PeftWarning& warn = {});
    /// The same of values that are not from a file; those left out have PEFT's defaults.
    static PeftConfig of(const Json& values, std::string_view where, const PeftWarning& warn = {});
    /// The file in a folder.
    static PeftConfig read(const std::filesystem::path& folder, const PeftWarning& warn = {});

    /// Names the modules that the adapter was resolved to, as PEFT does before it saves.
    void set_targets(std::vector<std::string> names);
    void set_base_model(std::string name);

    /// The file: indented by two, sorted, inference_mode true, no newline at the end.
    std::string text() const;
};

/// Whether a folder holds an adapter.
bool is_adapter_folder(const std::filesystem::path& folder);

}  // namespace drover
