#pragma once

#include <vector>

#include "args/arguments.h"

namespace drover {

struct NamedDataset;

/// The datasets that --dataset_name names, separated by commas, each with its part of --dataset_config_name
/// and --text_column. A file or folder whose own name has commas is one dataset. Empty without
/// --dataset_name. UsageError if the lists do not match.
std::vector<NamedDataset> named_datasets(const Arguments& arguments);

/// --dataset_weights; empty if it is not given. UsageError unless there is one for each of several datasets.
std::vector<double> dataset_weights(const Arguments& arguments, std::size_t datasets);

}  // namespace drover
