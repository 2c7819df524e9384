#include "args/dataset_list.h"

#include <fmt/format.h>

#include <filesystem>

#include "args/argument_value.h"
#include "core/error.h"
#include "core/number_text.h"
#include "run/settings/data_settings.h"

namespace drover {
namespace {

/// The parts between commas, of which some may be empty.
std::vector<std::string> parts_of(std::string_view list) {
    std::vector<std::string> parts;
    for (;;) {
        const std::size_t comma = list.find(',');
        parts.emplace_back(list.substr(0, comma));
        if (comma == std::string_view::npos) return parts;
        list.remove_prefix(comma + 1);
    }
}

[[noreturn]] void refuse_count(std::string_view name, std::size_t given, std::size_t datasets,
                               std::string_view remedy) {
    throw UsageError(fmt::format("--{} lists {}, but --dataset_name lists {} datasets.", name,
                                 counted(static_cast<std::int64_t>(given), "value"), datasets),
                     remedy);
}

/// The value of an argument for each of the datasets.
std::vector<std::string> values_for(const Arguments& arguments, std::string_view name, std::size_t datasets) {
    const std::string text = arguments.optional_text(name).value_or("");
    if (datasets == 1) return {text};
    std::vector<std::string> values = parts_of(text);
    if (values.size() == 1) values.resize(datasets, text);
    if (values.size() != datasets)
        refuse_count(name, values.size(), datasets,
                     "Give one for all datasets, or one for each; \"a,,c\" has none for the second.");
    return values;
}

}  // namespace

std::vector<NamedDataset> named_datasets(const Arguments& arguments) {
    const auto list = arguments.optional_text("dataset_name");
    if (!list || list->empty()) return {};
    std::error_code ignored;
    const bool is_one = std::filesystem::exists(*list, ignored);
    const std::vector<std::string> names = is_one ? std::vector{*list} : parts_of(*list);
    const auto configs = values_for(arguments, "dataset_config_name", names.size());
    // Datasets of examples have one column of text, whatever dataset it is.
    const auto columns = arguments.table().find("text_column") != nullptr
                             ? values_for(arguments, "text_column", names.size())
                             : std::vector<std::string>(names.size());
    std::vector<NamedDataset> datasets;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i].empty())
            throw UsageError(fmt::format("--dataset_name is \"{}\", where a name is empty.", *list),
                             "Name the datasets as in a,b.");
        datasets.push_back({.name = names[i], .config_name = configs[i], .text_column = columns[i]});
    }
    return datasets;
}

std::vector<double> dataset_weights(const Arguments& arguments, std::size_t datasets) {
    const auto list = arguments.optional_text("dataset_weights");
    if (!list) return {};
    if (datasets < 2)
        throw UsageError("--dataset_weights is given, but --dataset_name does not list several datasets.",
                         "Name them as in --dataset_name a,b, or leave out the weights.");
    constexpr double least = 1e-9, most = 1e9;
    std::vector<double> weights;
    for (const std::string& part : parts_of(*list)) {
        const auto weight = number_from_text(part);
        if (!weight || *weight < least || *weight > most)
            throw UsageError(
                fmt::format("--dataset_weights has \"{}\", which is not a number above 0 (from 1e-9 to 1e9).",
                            part),
                "Give a positive number for each dataset; leave out a dataset that is not to be used.");
        weights.push_back(*weight);
    }
    if (weights.size() != datasets)
        refuse_count("dataset_weights", weights.size(), datasets, "Give one for each dataset.");
    return weights;
}

}  // namespace drover
