#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "app/commands.h"
#include "args/command.h"
#include "core/console.h"
#include "core/error.h"
#include "core/number_text.h"
#include "hub/cache_report.h"
#include "hub/places.h"

namespace drover {
namespace {

std::string day_of(std::filesystem::file_time_type time) {
    const auto system = std::chrono::file_clock::to_sys(time);
    return fmt::format("{:%Y-%m-%d}",
                       std::chrono::time_point_cast<std::chrono::system_clock::duration>(system));
}

std::filesystem::path chosen(const std::string& cache) {
    return cache.empty() ? hub_cache_folder() : std::filesystem::path(cache);
}

void list(const std::string& cache) {
    std::uint64_t bytes = 0, unused = 0;
    const std::vector<CachedRepository> repositories = list_cache(chosen(cache));
    for (const CachedRepository& repository : repositories) {
        print_result("{:>12}  {}  {:>12}  {}\n", bytes_text(repository.bytes), day_of(repository.last_change),
                     counted(static_cast<std::int64_t>(repository.snapshots), "commit"), repository.name);
        bytes += repository.bytes;
        unused += repository.unused_bytes;
    }
    print_result("{} in {}: {}\n",
                 counted(static_cast<std::int64_t>(repositories.size()), "repository", "repositories"),
                 chosen(cache).string(), bytes_text(bytes));
    if (unused > 0) print_result("`drover cache prune` would free {}.\n", bytes_text(unused));
}

void prune(const std::string& cache, const std::vector<std::string>& names) {
    if (names.empty()) {
        print_result("{} freed.\n", bytes_text(prune_cache(chosen(cache))));
        return;
    }
    for (const std::string& name : names) {
        if (!remove_from_cache(chosen(cache), "model " + name) &&
            !remove_from_cache(chosen(cache), "dataset " + name))
            throw Error(
                fmt::format("{} holds neither a model nor a dataset {}.", chosen(cache).string(), name),
                "`drover cache list` shows what is there.");
        print_result("{} is removed.\n", name);
    }
}

}  // namespace

void add_cache_command(const Command& app) {
    const Command command = app.add_command("cache", "Show and clear the cache of the Hugging Face Hub.");
    command.expect_command();
    auto folder = std::make_shared<std::string>();
    auto names = std::make_shared<std::vector<std::string>>();
    const Command list_command = command.add_command("list", "Print what is in the cache, and its size.");
    const Command prune_command = command.add_command(
        "prune",
        "Remove commits that no branch or tag of the cache names any more, contents that nothing uses, and "
        "interrupted downloads, if they are older than an hour; or the repositories that are named.");
    for (const Command& one : {list_command, prune_command})
        one.add_option("--cache_dir", *folder, "another cache than HF_HUB_CACHE or ~/.cache/huggingface/hub");
    prune_command.add_option("repositories", *names, "models and datasets to remove: owner/name");
    list_command.set_action([folder] { list(*folder); });
    prune_command.set_action([folder, names] { prune(*folder, *names); });
}

}  // namespace drover
