#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "run/process_group.h"

/// Where a run resumes from, and how it ends early.
namespace drover {

struct CheckpointPlace;
struct RunSettings;

/// Whether a folder holds a model.
bool holds_weights(const std::filesystem::path& folder);

/// The complete checkpoint that the settings ask to resume from; nothing: the run starts over. Removes what
/// interrupted saves left in the output folder. Error if a resume is required but impossible, and if another
/// model's files would be overwritten.
std::optional<std::filesystem::path> find_resume_point(const RunSettings& settings,
                                                       const std::function<void(const std::string&)>& say);

/// The same for all ranks: the first one looks and reports. Collective.
std::optional<std::filesystem::path> agree_on_resume_point(
    const ProcessGroup& group, const RunSettings& settings,
    const std::function<void(const std::string&)>& say);

/// Where a run's checkpoints are.
CheckpointPlace checkpoint_place(const RunSettings& settings);

/// A run that a signal ended: exit code 128 + its number, as shells count.
class StoppedBySignal final : public AgreedError {
  public:
    StoppedBySignal(int signal_number, std::string_view cause, std::string_view remedy)
        : AgreedError(cause, remedy), signal_number_(signal_number) {}
    int exit_code() const override { return 128 + signal_number_; }

  private:
    int signal_number_;
};

}  // namespace drover
