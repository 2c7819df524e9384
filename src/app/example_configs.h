#pragma once

#include <string>

namespace drover {

struct ModelConfig;

/// The model named by `--model`: a config.json, a folder that contains one, or the name of a file in
/// examples/configs without its ".json". These are looked for in ../share/drover/configs relative to the
/// program (installed) and in configs next to it (in a build). UsageError for any other name, listing the
/// known ones.
ModelConfig named_config(const std::string& name);

}  // namespace drover
