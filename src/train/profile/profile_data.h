#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "parallel/mesh.h"

namespace drover {

/// A stretch of time in a lane of a profile, in seconds since the profile's zero on the first rank's clock.
struct ProfileSpan {
    enum class Kind : std::uint8_t { host, scope, operation, copy, collective };

    std::string name;
    Kind kind = Kind::host;
    double begin = 0, end = 0;
    int parent = -1;   ///< the scope around it: an earlier span of the lane; −1: none
    double flops = 0;  ///< of an operation
    double bytes = 0;  ///< read and written by an operation or copy; sent by this rank in a collective
    std::string arithmetic{};  ///< of the flops
    int calls = 1;             ///< collectives that ran together

    double seconds() const { return end - begin; }
};

/// Spans of one thread or stream. None overlaps another one that is not around it; sorted by begin, the one
/// around first.
struct ProfileLane {
    std::string name;
    bool on_device = false;  ///< of a GPU; otherwise of the host
    std::vector<ProfileSpan> spans;
};

/// A step that was traced.
struct ProfileStep {
    std::int64_t number = 0;  ///< from 1
    double begin = 0, end = 0;
};

/// What one rank did. The lanes: the operations on the main stream and on others, each with the scopes around
/// them; collectives by axis; the host's threads.
struct RankProfile {
    int rank = 0;
    MeshPlace place;
    Device device = Device::cpu;
    std::string machine;
    double clock_error = 0;          ///< how far its times may be from the first rank's clock, in seconds
    std::vector<ProfileStep> steps;  ///< one after the other
    std::vector<ProfileLane> lanes;
};

/// Spans in the order of a lane; those that would overlap another go to further lanes: "… (2)".
std::vector<ProfileLane> separate_overlaps(ProfileLane lane);

/// "forward 0/Model/DecoderLayer 3/MLP", the scopes around a span; empty: there are none.
std::string scopes_of(const ProfileLane& lane, const ProfileSpan& span);

/// The number of the step, from 0, in which a span begins; −1: between steps.
std::int64_t step_of(const RankProfile& profile, const ProfileSpan& span);

/// "forward", of "forward 0".
std::string_view without_number(std::string_view name);

}  // namespace drover
