#pragma once

#include <cstdint>
#include <filesystem>

#include "comm/communicator.h"
#include "train/profile/profile_data.h"

namespace drover {

/// Where a profile is written.
struct ProfilePlace {
    std::filesystem::path folder;  ///< TensorBoard's --logdir
    std::int64_t zero = 0;         ///< of the profile: nanoseconds since 1970, by the first rank's clock

    /// <folder>/plugins/profile/<date of zero>, which is a run for TensorBoard.
    std::filesystem::path run() const;
};

/// The files of a profile, as far as this rank wrote them.
struct ProfileFiles {
    std::filesystem::path for_viewers;  ///< with all ranks in one; only on the first rank
    std::string error{};                ///< of the first rank that has one; the same on all ranks
};

/// Each rank writes <machine>.xplane.pb, for TensorBoard's plugin, and <machine>.trace.json.gz, for Perfetto
/// and for older plugins. With several ranks the names end in "-rank3", and the first one also writes
/// all_ranks.json.gz. Collective, on the host; nothing is thrown because of a file.
ProfileFiles write_profile(const RankProfile& profile, const ProfilePlace& place, Communicator& everyone);

}  // namespace drover
