// How an engine gets its weights and its optimizer's state, and what of them it saves.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/convert.h"
#include "io/safetensors.h"
#include "model/adapters.h"
#include "model/init.h"
#include "model/params.h"
#include "train/engine/new_weights.h"
#include "train/engine/train_engine.h"
#include "train/engine/weight_upload.h"
#include "train/engine/whole_weights.h"

namespace drover {
namespace {

/// The owned part of a whole leaf on the host, as fp32.
void read_owned(const Tensor& whole, const OwnedLeaf& leaf, std::vector<float>& values) {
    if (leaf.spec->shape.rank() == 1)
        read_rows(whole, leaf.row_begin, leaf.row_count, Tensor::of(values.data(), {leaf.row_count}));
    else
        read_block(whole, leaf.row_begin, leaf.row_count, leaf.column_begin, leaf.column_count,
                   Tensor::of(values.data(), {leaf.row_count, leaf.column_count}));
}

}  // namespace

Tensor TrainEngine::master_of(std::size_t index) const {
    return options_.evaluation_only ? Tensor() : optimizer_->master(index);
}

void TrainEngine::write_leaf(WeightUpload& upload, std::size_t index, std::span<const float> values) {
    upload.write(values, store_->owned()[index].param);
    if (const Tensor master = master_of(index)) upload.write(values, master);
}

WeightSample TrainEngine::sample_weights(std::int64_t most) const {
    const std::span<const OwnedLeaf> owned = store_->owned();
    const auto is_matrix = [](const OwnedLeaf& leaf) {
        return leaf.spec->shape.rank() == 2 && leaf.param.numel() > 0;
    };
    // The middle leaf is in a block: embeddings have rows that are never trained.
    auto leaf =
        std::find_if(owned.begin() + static_cast<std::ptrdiff_t>(owned.size() / 2), owned.end(), is_matrix);
    if (leaf == owned.end()) leaf = std::find_if(owned.begin(), owned.end(), is_matrix);
    if (leaf == owned.end()) return {};
    const std::int64_t count = std::min(most, leaf->param.numel());
    const Tensor part = leaf->param.view({leaf->param.numel(), 1}).rows(0, count);
    std::vector<std::byte> bytes(part.bytes());
    const Tensor host(bytes.data(), part.dtype(), part.shape());
    backend_.copy(stream_, part, host);
    backend_.synchronize(stream_);
    WeightSample sample{.leaf = leaf->spec->name,
                        .values = std::vector<float>(static_cast<std::size_t>(count))};
    read_rows(host, 0, count, Tensor::of(sample.values.data(), {count, 1}));
    return sample;
}

void TrainEngine::initialize_weights(std::uint64_t seed) {
    const NewWeights init(config_, options_.compat, seed, options_.init);
    const GrownLeaves grown = grow_vocabulary(config_, init.generator_after(),
                                              [&](const LeafSpec& leaf) { return init.whole(leaf.name); });
    std::vector<float> values;
    WeightUpload upload(backend_, stream_);
    for (std::size_t i = 0; i < store_->owned().size(); ++i) {
        const OwnedLeaf& leaf = store_->owned()[i];
        if (leaf.spec->is_adapter()) continue;
        values.resize(static_cast<std::size_t>(leaf.param.numel()));
        if (!grown.fill(leaf, values)) init.fill(leaf, values);
        write_leaf(upload, i, values);
    }
    all_weights_changed();
}

void TrainEngine::all_weights_changed() {
    store_->weights_changed(ParamStore::Written::all);
    model_.frozen_weights_changed();
}

LoadReport TrainEngine::load_weights(const std::filesystem::path& path, std::uint64_t seed) {
    return load_weights_of(config_, path, seed);
}

void TrainEngine::initialize_adapters(std::uint64_t seed) {
    const AdapterInit init(options_.model.adapters, model_spec_, seed);
    std::vector<float> values;
    WeightUpload upload(backend_, stream_);
    for (std::size_t i = 0; i < store_->owned().size(); ++i) {
        const OwnedLeaf& leaf = store_->owned()[i];
        if (!leaf.spec->is_adapter()) continue;
        values.resize(static_cast<std::size_t>(leaf.param.numel()));
        init.fill(leaf, values);
        write_leaf(upload, i, values);
    }
    if (options_.model.adapters.magnitudes) initialize_magnitudes();
    store_->weights_changed(ParamStore::Written::trained);
}

/// The lengths of the weights' rows. Weights that are spread over ranks are read one after the other, by all.
void TrainEngine::initialize_magnitudes() {
    std::map<std::string_view, std::size_t> here;
    for (std::size_t i = 0; i < store_->owned().size(); ++i) here.emplace(store_->owned()[i].spec->name, i);
    WeightUpload upload(backend_, stream_);
    model_spec_.for_each_leaf([&](const LeafSpec& spec) {
        if (!spec.is_adapter() || spec.shape.rank() != 1) return;
        const std::vector<float> weight = read_whole_leaf(*this, spec.adapted, backend_, mesh_);
        const auto found = here.find(spec.name);
        if (found == here.end()) return;
        const OwnedLeaf& leaf = store_->owned()[found->second];
        const std::size_t columns = weight.size() / static_cast<std::size_t>(spec.shape[0]);
        std::vector<float> lengths;
        for (std::int64_t row = leaf.row_begin; row < leaf.row_begin + leaf.row_count; ++row) {
            double squares = 0;
            for (std::size_t i = 0; i < columns; ++i) {
                const auto value = static_cast<double>(weight[static_cast<std::size_t>(row) * columns + i]);
                squares += value * value;
            }
            lengths.push_back(static_cast<float>(std::sqrt(squares)));
        }
        write_leaf(upload, found->second, lengths);
    });
}

void TrainEngine::load_adapters(const std::function<Tensor(const LeafSpec&)>& whole_leaf) {
    std::vector<float> values;
    WeightUpload upload(backend_, stream_);
    for (std::size_t i = 0; i < store_->owned().size(); ++i) {
        const OwnedLeaf& leaf = store_->owned()[i];
        if (!leaf.spec->trained) continue;
        const Tensor whole = whole_leaf(*leaf.spec);
        if (!whole || whole.shape() != leaf.spec->shape)
            throw Error(fmt::format("The adapter has {} for {}, where this run has the shape {}.",
                                    whole ? "the shape " + whole.shape().text() : "nothing", leaf.spec->name,
                                    leaf.spec->shape.text()),
                        "Use the settings that the adapter was trained with.");
        values.resize(static_cast<std::size_t>(leaf.param.numel()));
        read_owned(whole, leaf, values);
        write_leaf(upload, i, values);
    }
    store_->weights_changed(ParamStore::Written::trained);
}

void TrainEngine::load_adapters(const std::filesystem::path& file) {
    const SafetensorsFile stored(file);
    load_adapters([&](const LeafSpec& leaf) {
        const std::string name = std::string(adapter_prefix) + leaf.name;
        const SafetensorsEntry* entry = stored.find(name);
        if (entry == nullptr) entry = stored.find(name + ".weight");  // PEFT's lengths of DoRA
        return entry == nullptr ? Tensor() : stored.tensor(*entry);
    });
}

void TrainEngine::load_trained_weights(const std::filesystem::path& checkpoint) {
    if (options_.model.adapters.any()) return load_adapters(checkpoint / adapter_file);
    ModelConfig grown = config_;
    grown.rows_before_resize = 0;
    const LoadReport report = load_weights_of(grown, checkpoint, 0);
    if (!report.missing.empty())
        throw Error(fmt::format("The checkpoint {} lacks {} tensors of this model, the first of which is {}.",
                                checkpoint.string(), report.missing.size(), report.missing.front()),
                    "Resume from another checkpoint, or train again.");
}

/// `config` says whether the folder's vocabulary is still to be resized.
LoadReport TrainEngine::load_weights_of(const ModelConfig& config, const std::filesystem::path& path,
                                        std::uint64_t seed) {
    const ModelWeights weights(path);
    std::vector<ExpectedTensor> expected;
    make_param_spec(before_resize(config), options_.compat).for_each_leaf([&](const LeafSpec& leaf) {
        expected.push_back({leaf.name, leaf.shape});
    });
    LoadReport report = match_names(
        expected, weights,
        {.tied_head = config.tie_word_embeddings, .head_from_embedding = config.head_from_embedding});

    std::unique_ptr<NewWeights> made;  // only when something is missing
    const auto init = [&]() -> const NewWeights& {
        if (!made) made = std::make_unique<NewWeights>(config, options_.compat, seed, options_.init);
        return *made;
    };
    const GrownLeaves grown = grow_vocabulary(config, TorchRng(seed), [&](const LeafSpec& leaf) {
        const auto found = report.found.find(leaf.name);
        if (found == report.found.end()) return init().whole(leaf.name);
        std::vector<float> rows(static_cast<std::size_t>(leaf.shape.numel()));
        read_rows(weights.find(found->second), 0, leaf.shape[0], Tensor::of(rows.data(), leaf.shape));
        return rows;
    });
    std::vector<float> values;
    WeightUpload upload(backend_, stream_);
    for (std::size_t i = 0; i < store_->owned().size(); ++i) {
        const OwnedLeaf& leaf = store_->owned()[i];
        if (leaf.spec->is_adapter()) continue;
        values.resize(static_cast<std::size_t>(leaf.param.numel()));
        const auto found = report.found.find(leaf.spec->name);
        if (grown.fill(leaf, values)) {
            // All of it is there.
        } else if (found == report.found.end()) {
            init().fill(leaf, values);
        } else {
            read_owned(weights.find(found->second), leaf, values);
        }
        write_leaf(upload, i, values);
    }
    all_weights_changed();
    return report;
}

void TrainEngine::take_weights(const std::function<std::vector<float>(const LeafSpec&)>& whole_leaf,
                               std::uint64_t seed) {
    const GrownLeaves grown = grow_vocabulary(config_, TorchRng(seed), whole_leaf);
    std::map<std::string_view, std::size_t> here;
    for (std::size_t i = 0; i < store_->owned().size(); ++i) here.emplace(store_->owned()[i].spec->name, i);
    std::vector<float> values;
    WeightUpload upload(backend_, stream_);
    // All leaves on every rank: reading one may need all ranks.
    model_spec_.for_each_leaf([&](const LeafSpec& spec) {
        if (spec.is_adapter()) return;
        std::vector<float> whole = whole_leaf(spec);
        const auto found = here.find(spec.name);
        if (found == here.end()) return;
        const OwnedLeaf& leaf = store_->owned()[found->second];
        values.resize(static_cast<std::size_t>(leaf.param.numel()));
        if (!grown.fill(leaf, values))
            read_block(Tensor::of(whole.data(),
                                  {leaf.spec->shape[0], leaf.spec->shape.numel() / leaf.spec->shape[0]}),
                       leaf.row_begin, leaf.row_count, leaf.column_begin, leaf.column_count,
                       Tensor::of(values.data(), {leaf.row_count, leaf.column_count}));
        write_leaf(upload, found->second, values);
    });
    all_weights_changed();
}

std::map<std::string, std::string> TrainEngine::saved_config_texts() const {
    if (options_.model.adapters.any()) return {};
    return {{"config.json", config_.saved_text(saved_dtype())}};
}

TensorFiles TrainEngine::saved_tensors(bool with_optimizer, std::uint64_t max_shard_bytes) const {
    const MeshPlace& place = mesh_.place();
    const SavedTensors saved{
        .config = config_,
        .model = model_spec_,
        .store = *store_,
        .optimizer = *optimizer_,
        .dtype = saved_dtype(),
        .is_first_of_stage = place.dcn == 0 && place.data == 0 && place.cp == 0 && place.tp == 0};
    TensorFiles files;
    if (options_.model.adapters.any())
        add_adapter_tensors(files, saved);
    else
        add_model_tensors(files, saved, max_shard_bytes);
    if (with_optimizer) add_optimizer_tensors(files, saved, optimizer_items());
    return files;
}

/// A pipeline rank plans the optimizer of the whole model once more, without memory, to know the file that
/// all ranks write.
std::vector<TensorFiles::Item> TrainEngine::optimizer_items() const {
    if (pipeline_.ranks() == 1) return saved_items(optimizer_->state());
    const auto store =
        make_param_store(model_spec_, options_.sharding, mesh_, parallel_.splits_tokens(),
                         options_.model.precision.parameters, options_.model.precision.gradients, backend_);
    const auto optimizer = make_optimizer(options_.optimizer, options_.model.precision, mesh_);
    Arena measuring = Arena::measuring(backend_.device());
    store->plan(measuring);
    optimizer->plan(measuring, measuring, *store);
    return saved_items(optimizer->state());
}

void TrainEngine::load_optimizer(const OptimizerSource& source) {
    std::vector<std::byte> converted;
    for (const OptimizerState& state : optimizer_->state()) {
        if (is_master(state)) continue;
        const OwnedLeaf& leaf = *state.leaf;
        const std::string kind = state.name.substr(0, state.name.find('/'));
        const Tensor whole = source.find(kind, leaf.spec->name);
        if (!whole || whole.shape() != global_shape(state))
            throw Error(fmt::format("{} holds {} of {}, where this run's optimizer has {}.", source.text(),
                                    whole ? fmt::format("a {} of the shape {}", kind, whole.shape().text())
                                          : fmt::format("no {}", kind),
                                    leaf.spec->name, global_shape(state).text()),
                        "Resume with the model and the --optim that the checkpoint was saved with.");
        converted.resize(state.tensor.bytes());
        const Tensor part(converted.data(), state.tensor.dtype(), state.tensor.shape());
        if (state.covers != OptimizerState::Covers::owned_elements)
            read_rows(whole, 0, whole.size(0), part);
        else if (whole.rank() == 1)
            read_rows(whole, leaf.row_begin, leaf.row_count, part);
        else
            read_block(whole, leaf.row_begin, leaf.row_count, leaf.column_begin, leaf.column_count,
                       part.view({leaf.row_count, leaf.column_count}));
        backend_.copy(stream_, part, state.tensor);
        backend_.synchronize(stream_);
    }
}

EngineState TrainEngine::counters() const {
    EngineState state{.updates = updates_done_, .scaler = std::nullopt};
    if (loss_scaler_) state.scaler = EngineState::Scaler{loss_scaler_->scale(), loss_scaler_->good_steps()};
    return state;
}

void TrainEngine::set_counters(const EngineState& state) {
    updates_done_ = state.updates;
    if (loss_scaler_ && state.scaler) loss_scaler_->restore(state.scaler->scale, state.scaler->good_steps);
}

}  // namespace drover
