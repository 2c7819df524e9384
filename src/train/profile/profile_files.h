#pragma once

#include <cstdint>
#include <filesystem>

#include "comm/communicator.h"
#include "train/profile/profile_data.h"

namespace drover {

/// Where a profile is written.
struct ProfilePlace {
    std::filesystem::path folder;   ///< TensorBoard's --logdir
    std::int64_t zero = 0;          ///< of the profile: nanoseconds since 1970, by the first rank's clock
    std::int64_t seconds_east = 0;  ///< of Greenwich, where the first rank is: its local time names the run

    /// <folder>/plugins/profile/<date of zero>, which is a run for TensorBoard.
    std::filesystem::path run() const;
};

/// Makes what can be made of a profile's folder before there is one. Returns why nothing can be written
/// there, in the system's words: of the first rank that has a reason, the same on all ranks; empty: it can.
/// Collective, on the host.
std::string prepare_profile_folder(const std::filesystem::path& folder, Communicator& everyone);

/// The files of a profile, as far as this rank wrote them.
struct ProfileFiles {
    std::filesystem::path for_viewers;  ///< with all ranks in one; only on the first rank
    std::string error{};                ///< as prepare_profile_folder()'s
};

/// Each rank writes <machine>.xplane.pb, for TensorBoard's plugin, and <machine>.trace.json.gz, for Perfetto
/// and for older plugins. With several ranks the names end in "-rank3", and the first one also writes
/// all_ranks.json.gz. Collective, on the host; nothing is thrown because of a file.
ProfileFiles write_profile(const RankProfile& profile, const ProfilePlace& place, Communicator& everyone);

}  // namespace drover
