#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// What the name of a checkpoint's folder begins with, before its step.
inline constexpr std::string_view default_checkpoint_prefix = "checkpoint-";

/// A folder that holds the checkpoints of a run, and how they are named.
struct CheckpointPlace {
    std::filesystem::path folder;
    std::string prefix{default_checkpoint_prefix};

    CheckpointPlace(std::filesystem::path in, std::string_view begun_with = default_checkpoint_prefix)
        : folder(std::move(in)), prefix(begun_with) {}
};

/// Returns output_dir/checkpoint-N.
std::filesystem::path checkpoint_folder(const CheckpointPlace& output_dir, std::int64_t step);

/// The checkpoints in `output_dir`, oldest first: by the time they were written, or by number where all were
/// written within a second.
std::vector<std::filesystem::path> checkpoints_by_age(const CheckpointPlace& output_dir);

/// Whether neuronx-distributed wrote it: it has its marker and a file per rank.
bool is_nxd_checkpoint(const std::filesystem::path& checkpoint);

/// What is wrong with a checkpoint of ours, of Hugging Face's Trainer or of neuronx-distributed; nothing if a
/// run can resume from it.
std::optional<std::string> why_not_resumable(const std::filesystem::path& checkpoint);

/// The most recently saved checkpoint that a run can resume from; nothing if there is none. `say` is called
/// for every newer one that cannot be used, with the reason. Age is decided by time, not by step number: a
/// run that started over in the same folder, or resumed from an older checkpoint, has smaller numbers.
std::optional<std::filesystem::path> newest_complete_checkpoint(
    const CheckpointPlace& output_dir, const std::function<void(const std::string&)>& say);

/// Removes the oldest checkpoints beyond `limit` (≤ 0: none). The newest and `best` are always kept.
void rotate_checkpoints(const CheckpointPlace& output_dir, std::int64_t limit,
                        const std::optional<std::string>& best);

/// Removes all checkpoints but `best`.
void keep_only_checkpoint(const CheckpointPlace& output_dir, const std::string& best);

}  // namespace drover
