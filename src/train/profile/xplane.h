#pragma once

#include <cstdint>
#include <string>

#include "train/profile/profile_data.h"

namespace drover {

/// A rank's profile as TensorBoard's profile plugin (XProf) reads it: a serialized XSpace message of
/// xplane.proto. `zero` is the profile's zero in nanoseconds since 1970.
///
/// A GPU's lanes are the plane "/device:GPU:0", everything else is "/host:CPU". The names that decide which
/// tools show an event are those of TensorFlow's tracers: on a GPU an operation has its scopes in the stat
/// "tf_op", on the CPU in its name.
std::string xplane_bytes(const RankProfile& profile, std::int64_t zero);

}  // namespace drover
