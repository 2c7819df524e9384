#pragma once

#include <filesystem>

#include "model/config.h"

namespace drover {

/// The numbers of layers, heads and experts, the hidden size and the width of the feed-forward (0 if it is
/// not there) of a configuration of NxD Training. Everything else is a default. Error, naming the file and
/// the key, when one of them else is not a positive number.
ModelConfig config_of_nxdt_yaml(const std::filesystem::path& file);

}  // namespace drover
