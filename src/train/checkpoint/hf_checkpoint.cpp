#include "train/checkpoint/hf_checkpoint.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/text_file.h"
#include "io/checkpoint_manifest.h"
#include "io/model_folder.h"
#include "model/adapters.h"
#include "model/config.h"
#include "model/params.h"
#include "train/checkpoint/checkpoint_tensors.h"
#include "train/state/trainer_state.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr const char* optimizer_pickle = "optimizer.pt";
constexpr const char* state_file = "trainer_state.json";

}  // namespace

bool is_hf_checkpoint(const fs::path& folder) {
    return fs::exists(folder / optimizer_pickle) && fs::exists(folder / state_file) &&
           !fs::exists(folder / CheckpointManifest::file_name);
}

std::optional<std::string> find_hf_damage(const fs::path& folder) {
    try {
        TrainerState::parse(read_text_file(folder / state_file), (folder / state_file).string());
        TorchFile(folder / optimizer_pickle).verify();
        const bool has_adapters = fs::exists(folder / "adapter_config.json");
        const ModelWeights weights(has_adapters ? folder / adapter_file : folder);
    } catch (const Error& error) {
        std::string reason = error.cause();
        if (reason.ends_with('.')) reason.pop_back();
        return reason;
    }
    return std::nullopt;
}

HfOptimizerSource::HfOptimizerSource(const fs::path& checkpoint, const ModelConfig& config,
                                     const HfCompat& compat, const Adapters& adapters)
    : state_(checkpoint / optimizer_pickle) {
    std::map<std::string, Shape> shapes;
    make_param_spec(config, compat, adapters).for_each_leaf([&](const LeafSpec& leaf) {
        shapes[leaf.name] = leaf.shape;
    });
    const std::vector<NumberedParameter> parameters = optimizer_order(config, adapters, compat);
    if (parameters.size() != state_.parameters().size())
        throw Error(fmt::format("{} has {} parameters, and {} has {}.", text(), state_.parameters().size(),
                                adapters.any() ? "what this run trains" : "this model", parameters.size()),
                    "Resume with the model that the checkpoint was saved with.");
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::vector<std::string>& leaves = parameters[i].leaves;
        // A fused parameter has one matrix per expert, from one leaf or two.
        const std::size_t matrices = leaves.size() == 1 ? 1 : static_cast<std::size_t>(config.moe.experts);
        const std::size_t leaves_per_matrix = leaves.size() / matrices;
        std::int64_t rows = 0;
        for (std::size_t j = 0; j < leaves.size(); ++j) {
            const Shape& shape = shapes.at(leaves[j]);
            const std::int64_t columns = shape.numel() / shape[0];
            places_[leaves[j]] = {.parameter = i,
                                  .shape = shape,
                                  .first_row = rows,
                                  .first_column = static_cast<std::int64_t>(j / leaves_per_matrix) * columns};
            rows += shape[0];
        }
    }
}

Tensor HfOptimizerSource::find(const std::string& kind, const std::string& leaf) const {
    const Place& place = places_.at(leaf);
    const auto& tensors = state_.parameters()[place.parameter].tensors;
    const auto found = tensors.find(kind);
    if (found == tensors.end()) return {};
    const Tensor& whole = found->second;
    const std::int64_t columns = place.shape.numel() / place.shape[0];
    const bool of_rows = kind.ends_with("_row"), of_columns = kind.ends_with("_col");
    const Shape shape = of_rows ? Shape{place.shape[0]} : of_columns ? Shape{columns} : place.shape;
    const std::int64_t begin = of_rows      ? place.first_row
                               : of_columns ? place.first_column
                                            : place.first_row * columns;
    if (begin + shape.numel() > whole.numel())
        throw Error(fmt::format("{}: {} of {} has {} elements, which are too few.", text(), kind, leaf,
                                whole.numel()),
                    "Resume with the model that the checkpoint was saved with.");
    return Tensor(
        static_cast<std::byte*>(whole.raw()) + static_cast<std::size_t>(begin) * size_of(whole.dtype()),
        whole.dtype(), shape);
}

std::int64_t HfOptimizerSource::updates() const {
    return state_.parameters().empty() ? 0 : state_.parameters().front().step;
}

}  // namespace drover
