#include "run/nxd_checkpoint.h"

#include <fmt/format.h>

#include "convert/conversion_writer.h"
#include "convert/model_plan.h"
#include "convert/nxd_training.h"
#include "convert/open_training_checkpoint.h"
#include "convert/shard_weights.h"
#include "core/error.h"
#include "model/params.h"

namespace drover {
namespace {

TrainingCheckpoint open_step(const std::filesystem::path& folder, const ModelConfig& config) {
    const ShardedCheckpoint shards(folder, std::nullopt, std::nullopt, std::nullopt, "model");
    std::optional<TrainingCheckpoint> checkpoint = open_training_checkpoint(
        folder,
        {.model_key = "model", .nxd = {.kv_multiplier = kv_multiplier_of(shards, config), .config = config}});
    if (!checkpoint)
        throw Error(
            fmt::format("{} has no state of an optimizer.", folder.string()),
            "Start from its weights alone: --loading_step -1 --pretrained_weight_dir and that folder.");
    return std::move(*checkpoint);
}

NxdSettings cut_of(const NxdExport& exported, const ModelConfig& config) {
    return {.sizes = {.tensor = exported.mesh.tp, .pipeline = exported.mesh.pp},
            .virtual_pipeline = exported.chunks,
            .qkv_linear = exported.layout.qkv_linear,
            .fuse_qkv = exported.layout.fuse_qkv,
            .kv_multiplier = exported.layout.qkv_linear ? exported.key_value_copies : 1,
            .xser = exported.layout.xser,
            .config = config};
}

}  // namespace

NxdCheckpoint::NxdCheckpoint(const std::filesystem::path& folder, const ModelConfig& config)
    : folder_(folder),
      checkpoint_(open_step(folder, config)),
      weights_(*checkpoint_.source, std::move(checkpoint_.weights), folder.string()),
      states_(*checkpoint_.source, std::move(checkpoint_.states), folder.string()) {}

Tensor NxdCheckpoint::find(const std::string& kind, const std::string& leaf) const {
    const PlannedTensor* const planned = states_.find(fmt::format("{}/{}", kind, leaf));
    if (planned == nullptr) return {};
    state_ = states_.read(*planned);
    Shape shape;
    for (const std::int64_t size : planned->shape) shape.append(size);
    return Tensor::of(state_.data(), shape);
}

void check_nxd_export(const ModelConfig& config, const NxdExport& exported) {
    std::vector<PlannedTensor> model;
    make_param_spec(config).for_each_leaf([&](const LeafSpec& leaf) {
        TensorBuilder whole(leaf.name, DType::f32);
        whole.whole(model.size(), {leaf.name, DType::f32, {leaf.shape.begin(), leaf.shape.end()}});
        model.push_back(whole.tensor());
    });
    plan_shards_of_model(model, cut_of(exported, config));
}

void rewrite_as_nxd(const std::filesystem::path& folder, const ModelConfig& config, const NxdExport& exported,
                    const LoopState& loop, const EngineState& engine) {
    const std::filesystem::path states_file = folder / optimizer_states_file;
    TrainingCheckpoint checkpoint{
        .source = nullptr, .weights = {}, .states = {}, .optimizer = {.updates = engine.updates}};
    auto both = std::make_unique<JoinedSource>();
    auto model = std::make_unique<FullCheckpoint>(folder, "");
    checkpoint.weights = whole_model(*model, std::nullopt);
    both->add(std::move(model));
    auto states = std::make_unique<FullCheckpoint>(states_file, "");
    checkpoint.states = whole_model(*states, std::nullopt);
    const std::vector<std::filesystem::path> own = [&] {
        std::vector<std::filesystem::path> files = both->files();
        files.push_back(states_file);
        files.push_back(folder / weights_index_file);
        return files;
    }();
    checkpoint.states = moved_behind(std::move(checkpoint.states), both->add(std::move(states)));
    checkpoint.source = std::move(both);

    NxdRun run{.step = loop.step,
               .epoch = loop.epoch,
               .batch = loop.samples / exported.batch,
               .learning_rate = exported.learning_rate,
               .beta1 = exported.adamw.beta1,
               .beta2 = exported.adamw.beta2,
               .eps = exported.adamw.eps,
               .weight_decay = exported.adamw.weight_decay,
               .data_ranks = exported.shards_optimizer ? exported.mesh.dcn * exported.mesh.data : 0};
    run.rounded = exported.rounded;
    for (const auto& [name, value] : exported.values.items())
        run.flags[name] = value.is_string() ? value.get<std::string>() : value.dump();
    write_conversion(plan_nxd_training(checkpoint, cut_of(exported, config), run), *checkpoint.source,
                     folder);
    checkpoint.source.reset();
    for (const std::filesystem::path& file : own) std::filesystem::remove(file);
}

}  // namespace drover
