#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "peft/adapter_weights.h"

namespace drover {

/// The model that an adapter's configuration names: a local folder (as it is, or beside the adapter), or the
/// snapshot of a Hub repository in the cache. Error when it names none, or it is not there.
std::filesystem::path find_base_of_adapter(const std::filesystem::path& adapter);

/// An adapter that a user names, "PATH" or "NAME=PATH".
struct NamedAdapter {
    std::string name;  ///< that of its folder unless given
    std::filesystem::path folder;

    /// Error when there is no such folder. `what` is the flag.
    static NamedAdapter find(const std::string& text, std::string_view what);
};

/// A model to run: a folder with weights, and adapters to merge into them.
struct AdaptedModel {
    std::filesystem::path weights;
    /// Where a tokenizer is looked for first: a run with adapters saves it beside them.
    std::filesystem::path tokenizer;
    std::vector<NamedAdapter> adapters;  ///< one is used at a time
};

/// Finds what `model` names: a folder with weights, or an adapter, whose base model is then found. `adapters`
/// are others to choose from. `what` and `adapter_what` are the flags.
AdaptedModel find_adapted_model(const std::string& model, std::string_view what,
                                const std::vector<std::string>& adapters, std::string_view adapter_what);

/// The one that `name` chooses. Error when there is none of that name, or several and no name; nullptr when
/// there are none.
const NamedAdapter* choose_adapter(const AdaptedModel& model, const std::string& name, std::string_view what);

/// Its weights; none for nullptr. Lines for the user go to the log.
std::vector<AdapterWeights> open_adapter(const NamedAdapter* adapter, const ModelConfig& model);

}  // namespace drover
