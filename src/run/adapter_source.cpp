#include "run/adapter_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/console.h"
#include "core/error.h"
#include "run/model_source.h"

namespace drover {

namespace fs = std::filesystem;

fs::path find_base_of_adapter(const fs::path& adapter) {
    const PeftConfig config = PeftConfig::read(adapter);
    const std::string where = (adapter / adapter_config_file).string();
    if (config.base_model.empty())
        throw Error(fmt::format("{} does not name a base model.", where),
                    "Name the model, and the adapter with --adapter_name_or_path.");
    if (const fs::path beside = adapter / config.base_model;
        !fs::exists(config.base_model) && fs::exists(beside))
        return beside;
    return find_pretrained(config.base_model, fmt::format("base_model_name_or_path in {}", where),
                           {.revision = config.revision.empty() ? "main" : config.revision});
}

NamedAdapter NamedAdapter::find(const std::string& text, std::string_view what) {
    const std::size_t equals = text.find('=');
    const bool is_named = equals != std::string::npos && equals > 0 && !fs::exists(text);
    const std::string path = is_named ? text.substr(equals + 1) : text;
    NamedAdapter adapter{.name = is_named ? text.substr(0, equals) : "",
                         .folder = find_pretrained(path, what)};
    if (!is_named) {
        const fs::path folder = fs::path(path).lexically_normal();
        adapter.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
    }
    if (!is_adapter_folder(adapter.folder))
        throw Error(
            fmt::format("{} is {}, which is no adapter: it has no {}.", what, path, adapter_config_file),
            "Name a folder that PEFT or a training run with --use_peft saved.");
    return adapter;
}

AdaptedModel find_adapted_model(const std::string& model, std::string_view what,
                                const std::vector<std::string>& adapters, std::string_view adapter_what) {
    AdaptedModel found{.weights = find_pretrained(model, what)};
    found.tokenizer = found.weights;
    for (const std::string& text : adapters) found.adapters.push_back(NamedAdapter::find(text, adapter_what));
    for (std::size_t i = 0; i < found.adapters.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
            if (found.adapters[i].name == found.adapters[j].name)
                throw UsageError(
                    fmt::format("{} has two adapters named {}.", adapter_what, found.adapters[i].name),
                    "Write NAME=PATH to tell them apart.");
    if (!is_adapter_folder(found.weights)) return found;
    if (!found.adapters.empty())
        throw UsageError(
            fmt::format("{} is {}, which is an adapter itself, and {} names more.", what, model,
                        adapter_what),
            fmt::format("Give the base model with {}, and all adapters with {}.", what, adapter_what));
    found.adapters.push_back(NamedAdapter::find(model, what));
    found.weights = find_base_of_adapter(found.adapters.front().folder);
    const auto has = [&](const char* name) { return fs::exists(found.tokenizer / name); };
    if (!has("tokenizer.json") && !has("tokenizer.model")) found.tokenizer = found.weights;
    print_log(stderr, "{} is an adapter of {}.\n", model, found.weights.string());
    return found;
}

const NamedAdapter* choose_adapter(const AdaptedModel& model, const std::string& name,
                                   std::string_view what) {
    std::vector<std::string> names;
    for (const NamedAdapter& adapter : model.adapters) names.push_back(adapter.name);
    if (name.empty() && names.size() > 1)
        throw UsageError(fmt::format("There are {} adapters: {}.", names.size(), fmt::join(names, ", ")),
                         fmt::format("Choose one with {}.", what));
    if (name.empty()) return names.empty() ? nullptr : &model.adapters.front();
    const auto found = std::ranges::find(model.adapters, name, &NamedAdapter::name);
    if (found == model.adapters.end())
        throw UsageError(
            fmt::format("{} is {}, but {}.", what, name,
                        names.empty() ? "no adapter is given"
                                      : fmt::format("the adapters are {}", fmt::join(names, ", "))),
            "Name one of those of --adapter_name_or_path.");
    return &*found;
}

std::vector<AdapterWeights> open_adapter(const NamedAdapter* adapter, const ModelConfig& model) {
    std::vector<AdapterWeights> opened;
    if (adapter != nullptr)
        opened.emplace_back(adapter->folder, model,
                            [](const std::string& line) { print_log(stderr, "{}\n", line); });
    return opened;
}

}  // namespace drover
