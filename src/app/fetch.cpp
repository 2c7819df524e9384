#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/commands.h"
#include "args/command.h"
#include "core/console.h"
#include "core/error.h"
#include "core/number_text.h"
#include "hub/cache.h"
#include "hub/client.h"
#include "hub/places.h"
#include "hub/snapshot.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

struct FetchOptions {
    std::string id, revision = "main", kind = "model", folder, cache, token;
    std::vector<std::string> files, include, exclude;
    bool dry_run = false;
};

/// Those of the repository's files that are asked for.
std::vector<RepositoryFile> wanted_files(const FetchOptions& options, const Repository& repository,
                                         const RepositoryListing& listing) {
    std::vector<std::string> include = options.include;
    for (const std::string& file : options.files) {
        if (listing.find(file) == nullptr)
            throw Error(fmt::format("The {} has no file {}.", repository.shown(), file),
                        "Check the name, or give a pattern with --include.");
        include.push_back(file);
    }
    std::vector<RepositoryFile> files = matching_files(listing, include, options.exclude);
    if (files.empty())
        throw Error(fmt::format("No file of the {} matches.", repository.shown()),
                    "Check --include and --exclude.");
    return files;
}

/// Without a network: the cache's snapshot, if it has all that is asked for.
fs::path find_in_cache(const FetchOptions& options, const RepositoryCache& cache) {
    const auto snapshot = cache.snapshot();
    const auto listing = snapshot ? cache.listing(snapshot->filename().string()) : std::nullopt;
    const auto is_there = [&](const RepositoryFile& file) {
        std::error_code ignored;
        return fs::exists(*snapshot / file.path, ignored);
    };
    if (listing && std::ranges::all_of(wanted_files(options, cache.repository(), *listing), is_there))
        return *snapshot;
    throw HubError(
        HubError::Reason::offline,
        fmt::format("The {} is {}in the cache, and HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids the "
                    "network.",
                    cache.repository().shown(), snapshot ? "only in parts " : "not "),
        "Unset it, or copy the cache of a machine that has it.");
}

RepositoryListing listing_of(HubClient& client, const Repository& repository) {
    try {
        return client.list(repository);
    } catch (const HubError& error) {
        if (error.reason() != HubError::Reason::missing_repository ||
            repository.kind == RepositoryKind::dataset)
            throw;
        throw HubError(error.reason(), error.cause(),
                       error.remedy() + " For a dataset, add --repo_type dataset.");
    }
}

void fetch(const FetchOptions& options) {
    if (!is_hub_id(options.id))
        throw UsageError(fmt::format("\"{}\" is not the name of a repository.", options.id),
                         "A name is owner/name, as in the address of its page.");
    if (!options.folder.empty() && !options.cache.empty())
        throw UsageError("Both --local_dir and --cache_dir are given.", "Give one of them.");
    const Repository repository{
        .kind = options.kind == "model" ? RepositoryKind::model : RepositoryKind::dataset,
        .id = options.id,
        .revision = options.revision};
    const RepositoryCache cache(options.cache.empty() ? hub_cache_folder() : fs::path(options.cache),
                                repository);
    HubClient client(HubSettings::from_environment(options.token));
    if (client.settings().offline && options.folder.empty() && !options.dry_run) {
        print_result("{}\n", find_in_cache(options, cache).string());
        return;
    }
    const RepositoryListing listing = listing_of(client, repository);
    const std::vector<RepositoryFile> files = wanted_files(options, repository, listing);
    if (options.dry_run) {
        std::uint64_t bytes = 0;
        for (const RepositoryFile& file : files) {
            print_result("{:>12}  {}\n", bytes_text(file.size), file.path);
            bytes += file.size;
        }
        print_result("{}, {}\n", counted(static_cast<std::int64_t>(files.size()), "file"), bytes_text(bytes));
        return;
    }
    if (!options.folder.empty()) {
        std::error_code failure;
        fs::create_directories(options.folder, failure);
        if (failure)
            throw Error(fmt::format("{} cannot be made: {}.", options.folder, failure.message()),
                        "Name another folder with --local_dir.");
        fetch_to_folder(client, repository, listing, files, options.folder);
        print_result("{}\n", fs::absolute(options.folder).lexically_normal().string());
        return;
    }
    print_result("{}\n", fetch_to_cache(client, cache, listing, files).string());
}

}  // namespace

void add_fetch_command(const Command& app) {
    const Command command = app.add_command(
        "fetch",
        "Download a model or a dataset of the Hugging Face Hub into its cache, which other programs share, "
        "or into a folder. Prints the folder. What is there already is not fetched again, and what was "
        "interrupted continues.\n"
        "Example: drover fetch meta-llama/Llama-3.2-1B --include \"*.json\" \"*.safetensors\"");
    auto options = std::make_shared<FetchOptions>();
    command.add_option("repository", options->id, "owner/name").required();
    command.add_option("files", options->files, "files of it; none: all that --include names, or all");
    command.add_option("--revision", options->revision, "branch, tag or commit (main)");
    command.add_option("--repo_type", options->kind, "model or dataset (model)").one_of({"model", "dataset"});
    command.add_option("--include", options->include, "only files that match a pattern: \"*.safetensors\"");
    command.add_option("--exclude", options->exclude, "no files that match a pattern");
    command.add_option("--local_dir", options->folder, "folder for the files, instead of the cache");
    command.add_option("--cache_dir", options->cache,
                       "another cache than HF_HUB_CACHE or ~/.cache/huggingface/hub");
    command.add_option("--token", options->token, "instead of that of HF_TOKEN or of `drover login`");
    command.add_flag("--dry_run", options->dry_run, "list the files and their sizes, and fetch nothing");
    command.set_action([options] { fetch(*options); });
}

}  // namespace drover
