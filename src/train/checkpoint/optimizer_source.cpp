#include "train/checkpoint/optimizer_source.h"

#include <fmt/format.h>

#include "core/error.h"
#include "train/checkpoint/checkpoint_tensors.h"

namespace drover {
namespace {

std::filesystem::path existing_file(const std::filesystem::path& checkpoint) {
    const std::filesystem::path path = checkpoint / optimizer_file;
    if (!std::filesystem::exists(path))
        throw Error(fmt::format("The checkpoint {} holds no state of the optimizer ({}).",
                                checkpoint.string(), optimizer_file),
                    "It was saved with --save_only_model: start a new run from its weights with "
                    "--model_name_or_path.");
    return path;
}

}  // namespace

SafetensorsOptimizerSource::SafetensorsOptimizerSource(const std::filesystem::path& checkpoint)
    : file_(existing_file(checkpoint)) {}

Tensor SafetensorsOptimizerSource::find(const std::string& kind, const std::string& leaf) const {
    const std::string name = kind + "/" + leaf;
    return file_.find(name) == nullptr ? Tensor() : file_.tensor(name);
}

}  // namespace drover
