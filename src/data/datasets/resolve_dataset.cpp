#include "data/datasets/resolve_dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/json_text.h"
#include "core/path_inside.h"
#include "data/datasets/dataset_folder.h"
#include "data/datasets/glob.h"
#include "data/datasets/hub_dataset.h"
#include "data/datasets/token_datasets.h"
#include "data/packing/token_file.h"
#include "data/readers/arrow_library.h"
#include "data/rows/columns.h"
#include "hub/places.h"
#include "hub/web_file.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> expand(const std::vector<std::string>& names) {
    std::vector<fs::path> files;
    for (const std::string& name : names) {
        std::error_code ignored;
        if (fs::exists(fs::path(name) / "state.json", ignored)) {  // one split, written by save_to_disk
            for (const DatasetSplit& split : read_dataset_folder(name, ""))
                files.insert(files.end(), split.files.begin(), split.files.end());
            continue;
        }
        if (fs::exists(fs::path(name) / "dataset_dict.json", ignored))
            throw Error(fmt::format("{} is a dataset of several splits.", name),
                        "Give it as dataset_name, or name the folder of one split in it.");
        if (!is_pattern(name) || fs::exists(name, ignored)) {
            files.emplace_back(name);
            continue;
        }
        const std::vector<fs::path> found = glob_files("", name);
        if (found.empty())
            throw Error(fmt::format("No file matches the pattern {}.", name),
                        "Check the path and the pattern.");
        files.insert(files.end(), found.begin(), found.end());
    }
    return files;
}

/// Former names of datasets, under which a cache may still hold them.
std::vector<std::string> hub_ids(const std::string& name) {
    if (name == "wikitext") return {"Salesforce/wikitext", "wikitext"};
    if (name == "Salesforce/wikitext") return {"Salesforce/wikitext", "wikitext"};
    return {name};
}

/// The datasets library's name for a dataset in its cache: "my_http_data" for "MyHTTPData".
std::string snake_case(std::string_view name) {
    const auto upper = [](char c) { return c >= 'A' && c <= 'Z'; };
    const auto lower = [](char c) { return c >= 'a' && c <= 'z'; };
    std::string result;
    for (std::size_t i = 0; i < name.size(); ++i) {
        const bool after_word = i > 0 && (lower(name[i - 1]) || (name[i - 1] >= '0' && name[i - 1] <= '9'));
        const bool before_word = i > 0 && upper(name[i - 1]) && i + 1 < name.size() && lower(name[i + 1]);
        if (upper(name[i]) && (after_word || before_word)) result.push_back('_');
        result.push_back(upper(name[i]) ? static_cast<char>(name[i] + 'a' - 'A') : name[i]);
    }
    return result;
}

/// The newest <cache>/<owner>___<name>/<config>/<version>/<hash>/<name>-<split>.arrow.
std::optional<ResolvedDataset> in_datasets_cache(const fs::path& cache, const std::string& id,
                                                 std::string config) {
    const std::size_t slash = id.find('/');
    const std::string name = snake_case(id.substr(slash == std::string::npos ? 0 : slash + 1));
    const fs::path folder = cache / (slash == std::string::npos ? name : id.substr(0, slash) + "___" + name);
    if (config.empty()) {
        std::set<std::string> configs;
        for (const fs::path& info : glob_files(folder, "*/*/*/dataset_info.json"))
            configs.insert(info.parent_path().parent_path().parent_path().filename().string());
        if (configs.size() > 1 && !configs.contains("default"))
            throw Error(fmt::format("The dataset in {} has several configs: {}.", folder.string(),
                                    fmt::join(configs, ", ")),
                        "Name one of them with dataset_config_name.");
        config = configs.size() == 1 ? *configs.begin() : "default";
    }
    const std::vector<fs::path> infos = glob_files(folder, config + "/*/*/dataset_info.json");
    const auto newest = std::max_element(
        infos.begin(), infos.end(),
        [](const fs::path& a, const fs::path& b) { return fs::last_write_time(a) < fs::last_write_time(b); });
    if (newest == infos.end()) return std::nullopt;
    ResolvedDataset dataset{newest->parent_path().string(), {}};
    for (const fs::path& file : glob_files(newest->parent_path(), name + "-*.arrow")) {
        std::string split = file.stem().string().substr(name.size() + 1);
        split = split.substr(0, split.find('-'));
        auto found = std::find_if(dataset.splits.begin(), dataset.splits.end(),
                                  [&](const DatasetSplit& other) { return other.name == split; });
        if (found == dataset.splits.end()) found = dataset.splits.insert(found, {split, {}, {}});
        found->files.push_back(file);
    }
    for (const DatasetSplit& split : dataset.splits) check_complete(split.files);
    if (dataset.splits.empty()) return std::nullopt;
    return dataset;
}

/// Returns "raw.en.tgz" for the config "raw_en"; Error for unsupported configs.
std::string wikicorpus_archive(const std::string& config) {
    for (const std::string language : {"en", "es", "ca"})
        if (config == "raw_" + language) return fmt::format("raw.{}.tgz", language);
    throw Error(fmt::format("The config \"{}\" of Wikicorpus cannot be read.", config),
                "Use raw_en, raw_es or raw_ca as dataset_config_name.");
}

/// Finds the archive among the downloads of the datasets library, which are named by hashes, each with a
/// .json file next to it.
std::optional<fs::path> downloaded_archive(const fs::path& cache, const std::string& archive) {
    for (const fs::path& note : glob_files(cache / "downloads", "*.json")) {
        const Json content = read_json_file(note);
        if (!content.is_object() || !content.contains("url") || !content["url"].is_string() ||
            !content["url"].get<std::string>().ends_with("/wikicorpus/" + archive))
            continue;
        fs::path file = note;
        file.replace_extension();
        std::error_code ignored;
        if (fs::is_regular_file(file, ignored)) return file;
    }
    return std::nullopt;
}

ResolvedDataset archive_dataset(const fs::path& archive) {
    return {archive.string(), {{"train", {archive}, {.format = RowFormat::wikicorpus}}}};
}

/// The archive from its authors' server, into the downloads of the datasets library. One process of a machine
/// fetches while the others wait.
fs::path fetch_wikicorpus(const DatasetRequest& request, const std::string& archive,
                          const fs::path& datasets_cache) {
    HubSettings settings = HubSettings::from_environment(request.token);
    settings.offline = datasets_are_offline();
    HubClient client(std::move(settings));
    return fetch_web_file(client, request.wikicorpus_address + archive, datasets_cache / "downloads");
}

ResolvedDataset by_name(const DatasetRequest& request) {
    const std::string& name = request.dataset_name;
    const std::string& config = request.dataset_config_name;
    std::error_code ignored;
    if (!is_inner_path(config))
        throw Error(fmt::format("dataset_config_name is \"{}\", which leads out of the dataset.", config),
                    "Give the name of a config, or of a folder inside the dataset.");
    if (fs::is_regular_file(name, ignored)) return {name, {{"train", {name}, {}}}};
    if (fs::is_directory(name, ignored)) {
        if (config.starts_with("raw_"))
            if (const fs::path archive = fs::path(name) / wikicorpus_archive(config);
                fs::exists(archive, ignored))
                return archive_dataset(archive);
        return {name, read_dataset_folder(name, config)};
    }
    if (!is_hub_id(name))
        throw Error(
            fmt::format("There is no file or folder {}, and it is not a name of the Hub either.", name),
            "Check dataset_name.");
    std::vector<std::string> looked_at{fmt::format("the folder {}", name)};
    const fs::path datasets_cache = request.cache_dir.empty() ? datasets_cache_folder() : request.cache_dir;
    std::exception_ptr incomplete;
    for (const std::string& id : hub_ids(name)) {
        const Repository dataset{RepositoryKind::dataset, id, request.revision};
        try {
            if (const auto snapshot = find_cached_dataset(dataset, config))
                return {snapshot->string(), read_dataset_folder(*snapshot, config)};
        } catch (const Error&) {
            if (datasets_are_offline()) throw;
            incomplete = std::current_exception();  // another program may have fetched a part of it
        }
        if (auto cached = in_datasets_cache(datasets_cache, id, config)) return std::move(*cached);
    }
    looked_at.push_back(
        fmt::format("the Hub cache {} (revision {})", hub_cache_folder().string(), request.revision));
    looked_at.push_back(fmt::format("the datasets cache {}", datasets_cache.string()));
    if (name == "wikicorpus") {
        const std::string archive = wikicorpus_archive(config);
        if (const auto file = downloaded_archive(datasets_cache, archive)) return archive_dataset(*file);
        try {
            // A script of the datasets library, which is not run, fetches it from its authors.
            return archive_dataset(fetch_wikicorpus(request, archive, datasets_cache));
        } catch (const HubError& error) {
            throw Error(
                fmt::format("Wikicorpus ({}) was not found; looked at: {}. {}", config,
                            fmt::join(looked_at, ", "), error.cause()),
                fmt::format("Fetch {} and give its path, or that of its folder, as dataset_name.", archive));
        }
    }
    try {
        const Repository dataset{RepositoryKind::dataset, hub_ids(name).front(), request.revision};
        const fs::path snapshot = fetch_dataset(dataset, config, request.token);
        return {snapshot.string(), read_dataset_folder(snapshot, config)};
    } catch (const HubError& error) {
        if (incomplete && error.reason() == HubError::Reason::unreachable) std::rethrow_exception(incomplete);
        throw Error(fmt::format("The dataset {}{} was not found; looked at: {}. {}", name,
                                config.empty() ? "" : fmt::format(" ({})", config),
                                fmt::join(looked_at, ", "), error.cause()),
                    error.remedy());
    }
}

bool is_arrow(const fs::path& file, const ReadOptions& options) {
    return (options.format ? options.format : known_format(file)) == RowFormat::arrow;
}

/// Whether a split's rows are token ids. If a column is named, or there is a text column, the rows are that
/// column instead.
bool holds_token_ids(const DatasetSplit& split) {
    if (!is_arrow(split.files.front(), split.options) || !split.options.text_column.empty()) return false;
    const std::vector<std::string> columns = ArrowFile(split.files.front()).columns();
    const auto has = [&](std::string_view name) {
        return std::find(columns.begin(), columns.end(), name) != columns.end();
    };
    return has("input_ids") && !has("text");
}

/// The text column comes from `other` if the request does not name it.
SharedRows open_split(const DatasetSplit& split, const SplitRule& rule, const SharedRows& other = nullptr) {
    if (is_token_file(split.files.front())) {
        if (!split.options.text_column.empty())
            throw UsageError(
                fmt::format("{} is a token file, which has no columns.", split.files.front().string()),
                "Leave out --text_column.");
        return open_token_files(split.files, split.options.notes);
    }
    if (holds_token_ids(split)) {
        if (rule.streaming)
            throw UsageError(fmt::format("{} holds rows of token ids, which are not streamed.",
                                         split.files.front().string()),
                             "Leave out --streaming; such rows are read when they are needed.");
        return open_arrow_tokens(split.files, split.options.notes);
    }
    ReadOptions options = split.options;
    if (other != nullptr && other->token_form() == nullptr) options.text_column = other->text_column();
    return std::make_shared<FileRows>(split.files, std::move(options));
}

/// Error if a share of 0 or 100 % leaves no data for a requested task.
void check_shares_needed(const SplitRule& rule) {
    const auto refuse = [&](std::string_view work) {
        throw UsageError(fmt::format("There is nothing to {}: no validation data is given, and "
                                     "--validation_split_percentage is {}.",
                                     work, rule.validation_percent),
                         "Give --validation_file, or a percentage between 0 and 100.");
    };
    if (rule.do_eval && rule.validation_percent == 0) refuse("evaluate");
    if (rule.do_train && rule.validation_percent == 100) refuse("train on");
}

void check_share(bool needed, const RowDataset& share, std::string_view name, const SplitRule& rule,
                 const RowDataset& whole) {
    if (needed && share.row_count() == 0)
        throw Error(fmt::format("With --validation_split_percentage {} no row of {} is {} data.",
                                rule.validation_percent, whole.row_count(), name),
                    "Give --validation_file, more rows, or another percentage.");
}

}  // namespace

const DatasetSplit* ResolvedDataset::find(std::string_view split) const {
    const auto found = std::find_if(splits.begin(), splits.end(),
                                    [&](const DatasetSplit& other) { return other.name == split; });
    return found == splits.end() ? nullptr : &*found;
}

ResolvedDataset resolve_dataset(const DatasetRequest& request) {
    ResolvedDataset dataset;
    if (!request.dataset_name.empty()) {
        dataset = by_name(request);
        for (DatasetSplit& split : dataset.splits) split.options.keep_linebreaks = false;
    } else {
        dataset.origin = "the files given";
        if (!request.train_files.empty())
            dataset.splits.push_back({request.train_split, expand(request.train_files), {}});
        if (!request.validation_files.empty())
            dataset.splits.push_back({request.validation_split, expand(request.validation_files), {}});
        if (dataset.splits.empty())
            throw Error("There is no data to work with.",
                        "Give dataset_name, train_file or validation_file.");
        for (DatasetSplit& split : dataset.splits) split.options.keep_linebreaks = request.keep_linebreaks;
    }
    for (DatasetSplit& split : dataset.splits) {
        split.options.text_column = request.text_column;
        split.options.refuses_conversations = request.refuses_conversations;
        split.options.row_columns = request.row_columns;
        split.options.notes = request.notes;
    }
    return dataset;
}

TrainAndValidation load_train_and_validation(const DatasetRequest& request, const SplitRule& rule) {
    const ResolvedDataset dataset = resolve_dataset(request);
    const DatasetSplit* train = dataset.find(request.train_split);
    const DatasetSplit* validation = dataset.find(request.validation_split);
    if (train == nullptr && (validation == nullptr || rule.do_train)) {
        std::vector<std::string> names;
        for (const DatasetSplit& split : dataset.splits) names.push_back(split.name);
        throw Error(fmt::format("{} has no split \"{}\"; its splits are: {}.", dataset.origin,
                                request.train_split, fmt::join(names, ", ")),
                    "Name the training files with train_file.");
    }
    if (validation == nullptr) {
        check_shares_needed(rule);
        const SharedRows rows = open_split(*train, rule);
        if (rule.streams_every_row && rule.streaming && rule.validation_percent == 0) return {rows, nullptr};
        if (rule.streaming) return split_streaming(rows, rule.validation_percent);
        const TrainAndValidation both = split_by_percent(rows, rule.validation_percent);
        check_share(rule.do_eval, *both.validation, "validation", rule, *rows);
        check_share(rule.do_train, *both.train, "training", rule, *rows);
        return both;
    }
    if (train == nullptr) return {nullptr, open_split(*validation, rule)};
    if (rule.do_train) {
        const SharedRows rows = open_split(*train, rule);
        return {rows, open_split(*validation, rule, rows)};
    }
    const SharedRows rows = open_split(*validation, rule);
    return {open_split(*train, rule, rows), rows};
}

}  // namespace drover
