#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/adapters.h"

namespace drover {

/// A leaf of a model in training, by its published name, with its adapter merged into it if it has one.
/// `read` returns leaves, also those of adapters, by name, in fp32.
std::vector<float> merged_leaf(const std::string& name, const Adapters& adapters,
                               const std::function<std::vector<float>(const std::string&)>& read);

}  // namespace drover
