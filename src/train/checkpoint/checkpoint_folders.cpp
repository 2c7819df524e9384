#include "train/checkpoint/checkpoint_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include "core/error.h"
#include "io/checkpoint_manifest.h"
#include "train/checkpoint/hf_checkpoint.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr const char* nxd_end = "done";

struct Checkpoint {
    fs::path path;
    std::int64_t step;
    fs::file_time_type written;
};

std::vector<Checkpoint> find_checkpoints(const CheckpointPlace& output_dir) {
    const std::string& prefix = output_dir.prefix;
    std::vector<Checkpoint> found;
    if (!fs::is_directory(output_dir.folder)) return found;
    for (const fs::directory_entry& entry : fs::directory_iterator(output_dir.folder)) {
        const std::string name = entry.path().filename().string();
        std::error_code unreadable;
        if (!name.starts_with(prefix) || !entry.is_directory(unreadable)) continue;
        std::int64_t step = 0;
        const char* end = name.data() + name.size();
        const auto parsed = std::from_chars(name.data() + prefix.size(), end, step);
        if (parsed.ec != std::errc() || parsed.ptr != end) continue;
        const fs::file_time_type written = entry.last_write_time(unreadable);
        if (unreadable) continue;  // removed a moment ago
        found.push_back({entry.path(), step, written});
    }
    std::sort(found.begin(), found.end(),
              [](const Checkpoint& a, const Checkpoint& b) { return a.step < b.step; });
    return found;
}

std::int64_t milliseconds_since_1970(fs::file_time_type time) {
    using namespace std::chrono;
    return duration_cast<milliseconds>(file_clock::to_sys(time).time_since_epoch()).count();
}

/// What neuronx-distributed writes last marks a checkpoint that is complete.
std::optional<std::string> find_nxd_damage(const fs::path& folder) {
    if (!fs::exists(folder / nxd_end)) return "it has no file \"done\", which is written last";
    if (!fs::is_directory(folder / "optim")) return "it has no state of an optimizer (folder optim)";
    return std::nullopt;
}

std::int64_t saved_at(const Checkpoint& checkpoint) {
    if (is_nxd_checkpoint(checkpoint.path))
        return milliseconds_since_1970(fs::last_write_time(checkpoint.path / nxd_end));
    if (is_hf_checkpoint(checkpoint.path)) return milliseconds_since_1970(checkpoint.written);
    return CheckpointManifest::read(checkpoint.path).saved_at;
}

bool is_same(const fs::path& path, const std::string& other) {
    std::error_code absent;
    return fs::equivalent(path, other, absent);
}

}  // namespace

fs::path checkpoint_folder(const CheckpointPlace& output_dir, std::int64_t step) {
    return output_dir.folder / fmt::format("{}{}", output_dir.prefix, step);
}

bool is_nxd_checkpoint(const fs::path& checkpoint) {
    return fs::is_regular_file(checkpoint / "checkpoint") && fs::is_directory(checkpoint / "model");
}

std::optional<std::string> why_not_resumable(const fs::path& checkpoint) {
    try {
        if (is_nxd_checkpoint(checkpoint)) return find_nxd_damage(checkpoint);
        return is_hf_checkpoint(checkpoint) ? find_hf_damage(checkpoint) : find_damage(checkpoint);
    } catch (const fs::filesystem_error& error) {
        return fmt::format("it cannot be read ({})", error.code().message());
    }
}

std::vector<fs::path> checkpoints_by_age(const CheckpointPlace& output_dir) {
    std::vector<Checkpoint> found = find_checkpoints(output_dir);
    std::vector<Checkpoint> by_time = found;
    std::stable_sort(by_time.begin(), by_time.end(),
                     [](const Checkpoint& a, const Checkpoint& b) { return a.written < b.written; });
    if (!found.empty() && by_time.back().written - by_time.front().written >= std::chrono::seconds(1))
        found = by_time;
    std::vector<fs::path> paths;
    for (const Checkpoint& checkpoint : found) paths.push_back(checkpoint.path);
    return paths;
}

std::optional<fs::path> newest_complete_checkpoint(const CheckpointPlace& output_dir,
                                                   const std::function<void(const std::string&)>& say) {
    struct Candidate {
        fs::path path;
        std::int64_t saved_at = 0, step = 0;
    };
    std::vector<Candidate> candidates;
    for (const Checkpoint& checkpoint : find_checkpoints(output_dir)) {
        Candidate candidate{.path = checkpoint.path, .step = checkpoint.step};
        try {
            candidate.saved_at = saved_at(checkpoint);
        } catch (const std::runtime_error&) {  // an Error, or one from the file system
            // Checked first, so that the user is told what is wrong with it.
            candidate.saved_at = std::numeric_limits<std::int64_t>::max();
        }
        candidates.push_back(std::move(candidate));
    }
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
        return std::tie(b.saved_at, b.step) < std::tie(a.saved_at, a.step);
    });
    for (const Candidate& candidate : candidates) {
        const std::optional<std::string> damage = why_not_resumable(candidate.path);
        if (!damage) return candidate.path;
        say(fmt::format("{} is not a complete checkpoint, and is passed over: {}.", candidate.path.string(),
                        *damage));
    }
    return std::nullopt;
}

void rotate_checkpoints(const CheckpointPlace& output_dir, std::int64_t limit,
                        const std::optional<std::string>& best) {
    if (limit <= 0) return;
    const std::vector<fs::path> all = checkpoints_by_age(output_dir);
    if (all.empty()) return;
    const auto is_best = [&](const fs::path& path) { return best && is_same(path, *best); };
    const bool best_is_older = std::any_of(all.begin(), all.end() - 1, is_best);
    const std::size_t keep = std::max(static_cast<std::size_t>(limit), std::size_t{best_is_older ? 2u : 1u});
    std::size_t left = all.size();
    for (const fs::path& path : all) {
        if (left <= keep) break;
        if (path == all.back() || is_best(path)) continue;
        remove_folder_safely(path);
        --left;
    }
}

void keep_only_checkpoint(const CheckpointPlace& output_dir, const std::string& best) {
    for (const fs::path& path : checkpoints_by_age(output_dir))
        if (!is_same(path, best)) remove_folder_safely(path);
}

}  // namespace drover
