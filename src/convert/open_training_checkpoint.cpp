#include "convert/open_training_checkpoint.h"

#include "convert/dcp_checkpoint.h"
#include "convert/full_optimizer.h"
#include "convert/model_plan.h"
#include "convert/nxd_optimizer.h"
#include "convert/zero_checkpoint.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

constexpr const char* sharded_optimizer_folder = "optimizer_0";
constexpr const char* full_optimizer_file = "optimizer.bin";

template <class Optimizer>
void take_optimizer(TrainingCheckpoint& checkpoint, std::unique_ptr<TensorSource> model,
                    std::unique_ptr<Optimizer> optimizer) {
    checkpoint.optimizer = optimizer->optimizer();
    checkpoint.states = optimizer->states();
    auto both = std::make_unique<JoinedSource>();
    both->add(std::move(model));
    checkpoint.states = moved_behind(std::move(checkpoint.states), both->add(std::move(optimizer)));
    checkpoint.source = std::move(both);
}

TrainingCheckpoint open_zero(const fs::path& folder) {
    auto zero = std::make_unique<ZeroCheckpoint>(folder);
    TrainingCheckpoint checkpoint{.source = nullptr,
                                  .weights = zero->tensors(),
                                  .states = zero->states(),
                                  .optimizer = zero->optimizer(),
                                  .step = zero->step()};
    checkpoint.source = std::move(zero);
    return checkpoint;
}

TrainingCheckpoint open_sharded(const fs::path& folder, std::string_view model_key) {
    const fs::path optimizer = home_of_checkpoint(folder) / sharded_optimizer_folder;
    const bool has_own = !DcpCheckpoint::is_one(optimizer);
    auto model = std::make_unique<DcpCheckpoint>(folder, model_key, has_own);
    TrainingCheckpoint checkpoint{.source = nullptr,
                                  .weights = with_published_experts(model->tensors()),
                                  .states = {},
                                  .optimizer = {}};
    if (!has_own) {
        take_optimizer(checkpoint, std::move(model), std::make_unique<DcpCheckpoint>(optimizer, "", true));
        return checkpoint;
    }
    checkpoint.states = model->states();
    checkpoint.optimizer = model->optimizer();
    checkpoint.source = std::move(model);
    return checkpoint;
}

TrainingCheckpoint open_full(const fs::path& weights, const fs::path& optimizer, std::string_view model_key) {
    auto model = std::make_unique<FullCheckpoint>(weights, model_key);
    TrainingCheckpoint checkpoint{
        .source = nullptr, .weights = whole_model(*model, std::nullopt), .states = {}, .optimizer = {}};
    take_optimizer(checkpoint, std::move(model), std::make_unique<FullOptimizer>(optimizer));
    return checkpoint;
}

}  // namespace

fs::path home_of_checkpoint(const fs::path& weights) {
    const std::string name = weights.filename().string();
    const bool is_inside = !fs::is_directory(weights) || name.starts_with("pytorch_model_fsdp") ||
                           name.starts_with("global_step") ||
                           (name == "model" && NxdOptimizer::is_one(weights.parent_path()));
    return is_inside ? weights.parent_path() : weights;
}

std::optional<TrainingCheckpoint> open_training_checkpoint(const fs::path& folder_or_file,
                                                           const TrainingCheckpointOptions& options) {
    const fs::path home = home_of_checkpoint(folder_or_file);
    if (ZeroCheckpoint::is_one(folder_or_file)) return open_zero(folder_or_file);
    if (DcpCheckpoint::is_one(folder_or_file)) return open_sharded(folder_or_file, options.model_key);
    if (NxdOptimizer::is_one(home))
        return open_nxd_training(home, options.model_key, options.nxd, options.tensor_ranks,
                                 options.pipeline_ranks);
    if (fs::exists(home / full_optimizer_file))
        return open_full(folder_or_file, home / full_optimizer_file, options.model_key);
    return std::nullopt;
}

}  // namespace drover
