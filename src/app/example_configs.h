#pragma once

#include <string>

#include "model/config.h"

namespace drover {

/// The model that `--model` means: a config.json, a folder that holds one, or the name of one of
/// examples/configs without its ".json". Those are looked for in ../share/drover/configs from the
/// program, where they are installed, and in configs beside it, where a build has them. UsageError for a name
/// that is neither, naming those that are known.
ModelConfig named_config(const std::string& name);

}  // namespace drover
