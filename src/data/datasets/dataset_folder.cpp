#include "data/datasets/dataset_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/json_text.h"
#include "core/path_inside.h"
#include "data/datasets/dataset_card.h"
#include "data/datasets/glob.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using Files = std::vector<fs::path>;

constexpr std::string_view shard_number = "-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]";

struct SplitWords {
    std::string_view split;
    std::vector<std::string_view> words;
};

const std::array<SplitWords, 3>& split_words() {
    static const std::array<SplitWords, 3> words{{
        {"train", {"train", "training"}},
        {"validation", {"validation", "valid", "dev", "val"}},
        {"test", {"test", "testing", "eval", "evaluation"}},
    }};
    return words;
}

/// Files that match the pattern and whose names indicate a readable format.
Files data_files(const fs::path& folder, std::string_view pattern) {
    static const std::set<std::string> ignored{"README.md", "config.json", "dataset_info.json",
                                               "dataset_infos.json", "dataset_dict.json"};
    Files files = glob_files(folder, pattern);
    std::erase_if(files, [&](const fs::path& file) {
        const auto format = known_format(file);
        return ignored.contains(file.filename().string()) || !format || *format == RowFormat::wikicorpus;
    });
    return files;
}

void add_new(Files& files, const Files& more) {
    for (const fs::path& file : more)
        if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
}

/// Files such as data/<split>-00000-of-00001.parquet.
std::vector<DatasetSplit> numbered_splits(const fs::path& folder) {
    std::map<std::string, Files> by_name;
    for (const fs::path& file : data_files(folder, fmt::format("data/*{}*.*", shard_number))) {
        const std::string name = file.filename().string();
        std::size_t end = name.rfind("-of-");
        while (end != std::string::npos && (end < 6 || name[end - 6] != '-'))
            end = name.rfind("-of-", end - 1);
        if (end != std::string::npos) by_name[name.substr(0, end - 6)].push_back(file);
    }
    std::vector<DatasetSplit> splits;
    for (const SplitWords& known : split_words())
        if (const auto found = by_name.extract(std::string(known.split)); !found.empty())
            splits.push_back({found.key(), found.mapped(), {}});
    for (auto& [name, files] : by_name) splits.push_back({name, std::move(files), {}});
    return splits;
}

/// Splits named after folders or files; `patterns` have {0} in place of the word.
std::vector<DatasetSplit> named_splits(const fs::path& folder, const std::vector<std::string>& patterns) {
    std::vector<DatasetSplit> splits;
    for (const SplitWords& known : split_words()) {
        Files files;
        for (const std::string_view word : known.words)
            for (const std::string& pattern : patterns)
                add_new(files, data_files(folder, fmt::format(fmt::runtime(pattern), word)));
        if (!files.empty()) splits.push_back({std::string(known.split), std::move(files), {}});
    }
    return splits;
}

std::vector<DatasetSplit> splits_by_name(const fs::path& folder) {
    if (auto splits = numbered_splits(folder); !splits.empty()) return splits;
    const std::string separator = "[-._ 0-9]";
    if (auto splits =
            named_splits(folder, {"**/{0}/**", "**/{0}" + separator + "*/**", "**/*" + separator + "{0}/**",
                                  "**/*" + separator + "{0}" + separator + "*/**"});
        !splits.empty())
        return splits;
    if (auto splits =
            named_splits(folder, {"**/{0}" + separator + "*", "**/*" + separator + "{0}" + separator + "*"});
        !splits.empty())
        return splits;
    if (Files files = data_files(folder, "**"); !files.empty()) return {{"train", std::move(files), {}}};
    return {};
}

/// The format of most files; ties go to parquet, arrow, json, csv in this order.
RowFormat main_format(const Files& files) {
    constexpr std::array preference{RowFormat::parquet, RowFormat::arrow, RowFormat::json,  RowFormat::csv,
                                    RowFormat::text,    RowFormat::tsv,   RowFormat::tokens};
    std::map<RowFormat, int> counts;
    for (const fs::path& file : files) ++counts[format_of(file)];
    return *std::max_element(preference.begin(), preference.end(),
                             [&](RowFormat a, RowFormat b) { return counts[a] < counts[b]; });
}

/// Keeps only the files of one format, which must be the same for all splits.
void keep_one_format(std::vector<DatasetSplit>& splits, const fs::path& folder) {
    std::optional<RowFormat> common;
    for (DatasetSplit& split : splits) {
        const RowFormat format = main_format(split.files);
        if (common && *common != format)
            throw Error(fmt::format("In {} the split \"{}\" has {} files, but another split has {} files.",
                                    folder.string(), split.name, format_name(format), format_name(*common)),
                        "Keep one format, or name the files with train_file and validation_file.");
        common = format;
        std::erase_if(split.files, [&](const fs::path& file) { return format_of(file) != format; });
        check_complete(split.files);
    }
}

std::vector<DatasetSplit> splits_of_config(const fs::path& folder, const CardConfig& config) {
    const auto refuse = [&](std::string_view key, std::string_view path) {
        throw Error(fmt::format("{} names {} {}, which is not inside the folder.",
                                (folder / "README.md").string(), key, path),
                    "Name the files with train_file and validation_file.");
    };
    if (!is_inner_path(config.data_dir)) refuse("data_dir", config.data_dir);
    std::vector<DatasetSplit> splits;
    if (config.data_files.empty()) splits = splits_by_name(folder / config.data_dir);
    for (const CardConfig::Files& listed : config.data_files) {
        Files files;
        for (const std::string& pattern : listed.patterns) {
            if (!is_inner_path(pattern) || pattern.find("://") != std::string::npos)
                refuse("data_files", pattern);
            add_new(files, data_files(folder / config.data_dir, pattern));
        }
        // A training copy may lack the test split; without the others it would be a different dataset.
        if (files.empty() && (listed.split == "train" || listed.split == "validation"))
            throw Error(
                fmt::format("{} has no file for the split \"{}\" of the config \"{}\" (looked for: {}).",
                            folder.string(), listed.split, config.name, fmt::join(listed.patterns, ", ")),
                "Fetch the dataset again, with all files of that config.");
        if (!files.empty()) splits.push_back({listed.split, std::move(files), {}});
    }
    for (DatasetSplit& split : splits) {
        split.options.json_field = config.field;
        if (config.delimiter.size() > 1)
            throw Error(
                fmt::format(
                    "{} gives the config \"{}\" the delimiter \"{}\"; only single characters can be used.",
                    (folder / "README.md").string(), config.name, config.delimiter),
                "Rewrite the files with commas.");
        if (!config.delimiter.empty()) split.options.csv_delimiter = config.delimiter[0];
    }
    return splits;
}

const CardConfig& choose_config(const std::vector<CardConfig>& configs, const std::string& wanted,
                                const fs::path& folder) {
    std::vector<std::string> names;
    for (const CardConfig& config : configs) names.push_back(config.name);
    for (const CardConfig& config : configs)
        if (wanted.empty() ? config.is_default || configs.size() == 1 : config.name == wanted) return config;
    if (wanted.empty())
        for (const CardConfig& config : configs)
            if (config.name == "default") return config;
    throw Error(wanted.empty() ? fmt::format("The dataset in {} has several configs: {}.", folder.string(),
                                             fmt::join(names, ", "))
                               : fmt::format("The dataset in {} has no config \"{}\"; there are: {}.",
                                             folder.string(), wanted, fmt::join(names, ", ")),
                "Name one of them with dataset_config_name.");
}

/// A folder written by save_to_disk.
DatasetSplit saved_split(const fs::path& folder, std::string name) {
    const fs::path state_file = folder / "state.json";
    const Json state = read_json_file(state_file);
    const auto fail = [&](std::string_view what) {
        throw Error(fmt::format("{} {}.", state_file.string(), what),
                    "Save the dataset again with save_to_disk.");
    };
    if (!state.is_object() || !state.contains("_data_files") || !state["_data_files"].is_array())
        fail("does not list data files");
    if (state.contains("_indices_data_files") && !state["_indices_data_files"].empty())
        fail("selects rows through an index file, which cannot be read");
    DatasetSplit split{std::move(name), {}, {}};
    for (const Json& entry : state["_data_files"]) {
        if (!entry.is_object() || !entry.contains("filename") || !entry["filename"].is_string())
            fail("has a data file without a name");
        const fs::path file = entry["filename"].get<std::string>();
        if (!is_inner_name(file)) fail("names a data file outside its folder");
        split.files.push_back(folder / file);
    }
    if (split.files.empty()) fail("lists no data files");
    if (split.name.empty())
        split.name = state.contains("_split") && state["_split"].is_string()
                         ? state["_split"].get<std::string>()
                         : "train";
    return split;
}

std::vector<DatasetSplit> saved_splits(const fs::path& folder) {
    const fs::path list = folder / "dataset_dict.json";
    const Json names = read_json_file(list);
    std::vector<DatasetSplit> splits;
    if (names.is_object() && names.contains("splits") && names["splits"].is_array())
        for (const Json& name : names["splits"])
            if (name.is_string() && is_inner_name(name.get<std::string>()))
                splits.push_back(saved_split(folder / name.get<std::string>(), name.get<std::string>()));
    if (splits.empty())
        throw Error(fmt::format("{} lists no splits.", list.string()),
                    "Save the dataset again with save_to_disk.");
    return splits;
}

}  // namespace

void check_complete(const Files& files) {
    std::map<std::string, std::pair<int, int>> groups;  // "<before>-of-<count><after>" → (found, expected)
    for (const fs::path& file : files) {
        const std::string name = file.string();
        const std::size_t of = name.rfind("-of-");
        if (of == std::string::npos || of < 6 || !matches_pattern(shard_number, name.substr(of - 6, 15)))
            continue;
        auto& [there, count] = groups[name.substr(0, of - 6) + name.substr(of)];
        ++there;
        count = std::stoi(name.substr(of + 4, 5));
    }
    for (const auto& [name, counts] : groups)
        if (counts.first < counts.second)
            throw Error(fmt::format("Of the {} files *{} only {} are there.", counts.second,
                                    fs::path(name).filename().string(), counts.first),
                        "Fetch the missing ones.");
}

std::vector<DatasetSplit> read_dataset_folder(const fs::path& folder, const std::string& config) {
    std::error_code ignored;
    if (fs::exists(folder / "state.json", ignored)) return {saved_split(folder, "")};
    if (fs::exists(folder / "dataset_dict.json", ignored)) return saved_splits(folder);
    std::vector<CardConfig> configs;
    if (fs::exists(folder / "README.md", ignored)) configs = read_dataset_card(folder / "README.md");
    std::vector<DatasetSplit> splits;
    fs::path data = folder;
    if (!configs.empty()) {
        splits = splits_of_config(folder, choose_config(configs, config, folder));
    } else {
        if (!config.empty() && config != "default") data /= config;
        if (!fs::is_directory(data, ignored))
            throw Error(
                fmt::format("The dataset in {} has no config \"{}\": neither a README.md that lists it nor a "
                            "folder of that name.",
                            folder.string(), config),
                "Check dataset_config_name, or leave it out.");
        splits = splits_by_name(data);
    }
    if (splits.empty()) {
        const bool script = !glob_files(folder, "*.py").empty();
        throw Error(
            script ? fmt::format("The dataset in {} is a Python script without data files.", folder.string())
                   : fmt::format("{} holds no data files.", data.string()),
            script
                ? "Scripts are not run; convert the dataset to parquet or JSON lines once, with the datasets "
                  "library."
                : "Put .txt, .json, .jsonl, .csv, .parquet, .arrow or .tokens files into it.");
    }
    keep_one_format(splits, folder);
    return splits;
}

}  // namespace drover
