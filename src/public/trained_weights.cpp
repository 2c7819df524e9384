#include "public/trained_weights.h"

#include <algorithm>

#include "core/convert.h"
#include "core/error.h"
#include "core/machine_memory.h"
#include "run/merged_leaf.h"
#include "run/program_processes.h"
#include "train/engine/train_engine.h"
#include "train/engine/whole_weights.h"

namespace drover::v1 {

TrainedWeights::TrainedWeights(const TrainEngine& engine, Backend& backend, const Mesh& mesh,
                               ModelConfig config, Json generation, Adapters adapters)
    : engine_(&engine),
      backend_(&backend),
      mesh_(&mesh),
      config_(std::move(config)),
      generation_(std::move(generation)),
      adapters_(std::move(adapters)),
      spread_(!holds_whole_weights(engine)),
      dtype_(engine.saved_dtype()) {
    // Any resize of the vocabulary is done, and a head that began as the embedding is a weight of its own.
    config_.rows_before_resize = 0;
    config_.head_from_embedding = false;
}

void TrainedWeights::check_there() const {
    if (engine_ != nullptr || !kept_.empty()) return;
    throw Error("The model's trained weights went with the Trainer that had them.",
                "Keep the Trainer as long as the model is used, or save them with its save_model() and load "
                "that folder with from_pretrained().");
}

std::vector<float> TrainedWeights::whole_leaf(const std::string& name) const {
    check_there();
    return merged_leaf(name, adapters_, [this](const std::string& leaf) { return kept_leaf(leaf); });
}

std::vector<float> TrainedWeights::kept_leaf(const std::string& name) const {
    if (engine_ != nullptr) return read_whole_leaf(*engine_, name, *backend_, *mesh_);
    const Kept& kept = kept_.at(name);
    std::vector<float> part(kept.bytes.size() / size_of(dtype_));
    convert_elements(kept.bytes.data(), dtype_, part.data(), DType::f32,
                     static_cast<std::int64_t>(part.size()));
    if (!spread_) return part;
    // As in read_whole_leaf(), every element comes from exactly one process.
    std::vector<float> whole(static_cast<std::size_t>(kept.spec.shape.numel()), 0.0f);
    if (!part.empty()) place_owned_part(kept.place, part, whole);
    program_processes({}).group.sum(whole);
    return whole;
}

std::size_t TrainedWeights::copy_bytes() const {
    std::size_t elements = 0;
    for (const OwnedLeaf& leaf : engine_->store().owned())
        if (contributes(leaf)) elements += static_cast<std::size_t>(leaf.param.numel());
    return elements * size_of(dtype_);
}

void TrainedWeights::keep_copy() {
    // Every process knows all leaves, also those of which it has no part.
    engine_->model_spec().for_each_leaf([&](const LeafSpec& leaf) { kept_[leaf.name].spec = leaf; });
    for (std::size_t index = 0; index < engine_->store().owned().size(); ++index) {
        const OwnedLeaf& leaf = engine_->store().owned()[index];
        Kept& kept = kept_.at(leaf.spec->name);
        kept.place = {.spec = &kept.spec,
                      .row_begin = leaf.row_begin,
                      .row_count = leaf.row_count,
                      .column_begin = leaf.column_begin,
                      .column_count = leaf.column_count};
        if (!contributes(leaf)) continue;
        const std::vector<float> values = read_owned_part(*engine_, index, *backend_);
        kept.bytes.resize(values.size() * size_of(dtype_));
        convert_elements(values.data(), DType::f32, kept.bytes.data(), dtype_,
                         static_cast<std::int64_t>(values.size()));
    }
    engine_ = nullptr;
}

void TrainedWeights::let_go() {
    engine_ = nullptr;
    kept_.clear();
}

std::shared_ptr<TrainedWeights> TrainedWeights::of(const TrainingRun& run) {
    return std::make_shared<TrainedWeights>(run.engine(), run.backend(), run.mesh(), run.model().config,
                                            run.model().generation,
                                            run.adapters() ? run.adapters()->adapters : Adapters{});
}

void TrainedWeights::leave_engine(const TrainingRun& run, bool is_used) {
    const TrainEngine& engine = run.engine();
    const std::size_t on_host = engine.host_memory_plan().total +
                                (run.backend().device() == Device::cpu ? engine.memory_plan().total : 0);
    const std::size_t share = usable_memory() / static_cast<std::size_t>(run.processes().machine.ranks);
    try {
        if (is_used && on_host + copy_bytes() <= share) return keep_copy();
    } catch (const std::exception&) {
        // A later use reports that they are gone.
    }
    let_go();
}

TrainingRun::ReadWeight weights_in_memory(std::shared_ptr<const TrainedWeights> trained,
                                          const TrainingRun& run) {
    if (!trained) return {};
    run.processes().group.together([&] {
        trained->check_there();
        const ModelConfig& config = run.model().config;
        const std::int64_t rows =
            config.rows_before_resize > 0 ? config.rows_before_resize : config.vocab_size;
        if (rows != trained->config().vocab_size)
            throw Error("Another Trainer has enlarged the model's vocabulary in the meantime.",
                        "Make this Trainer after the other has trained.");
    });
    return [trained](const LeafSpec& leaf) { return trained->whole_leaf(leaf.name); };
}

}  // namespace drover::v1
