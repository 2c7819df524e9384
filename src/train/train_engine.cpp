#include "train/train_engine.h"

#include <map>
#include <numeric>

#include "core/convert.h"
#include "model/init.h"
#include "model/params.h"

namespace drover {

TrainEngine::TrainEngine(const ModelConfig& config, const TrainEngineOptions& options, Backend& backend,
                         const Mesh& mesh)
    : config_(config),
      options_(options),
      backend_(backend),
      stream_(backend.main_stream()),
      mesh_(mesh),
      parallel_(mesh.tp(), options.sequence_parallel),
      store_(make_param_store(make_param_spec(config_, options.compat), options.sharding, mesh, parallel_.splits_tokens(),
                              options.model.precision.parameters, options.model.precision.gradients, backend)),
      optimizer_(make_optimizer(options.optimizer.value_or(OptimizerSettings{.adamw = options.adamw}),
                                options.model.precision, mesh)),
      model_(config_, options.model, backend, *store_, parallel_, mesh.replicas()),
      host_scalars_(StepScalar::count, 0.0f) {
    check_tensor_parallel(config_, mesh.tp().size());
    require(mesh.shape().pp == 1 && mesh.shape().cp == 1, "pipeline and context parallelism have no engine yet");
    Arena measuring = Arena::measuring(backend.device());
    plan(measuring);
    memory_plan_ = measuring.plan();
}

TrainEngine::~TrainEngine() = default;

void TrainEngine::plan(Arena& arena) {
    store_->plan(arena);
    optimizer_->plan(arena, *store_);
    gradient_norm_.plan(arena, *store_);
    scalars_ = arena.make(MemoryUse::scratch, DType::f32, {StepScalar::count});
    loss_sum_ = arena.make(MemoryUse::scratch, DType::f64, {1});
    count_ = arena.make(MemoryUse::scratch, DType::i64, {1});
    if (config_.moe.jitter > 0) replica_tokens_ = arena.make(MemoryUse::scratch, DType::i64, {mesh_.replicas().size()});
    model_.plan(arena);
}

void TrainEngine::allocate() {
    arena_ = std::make_unique<Arena>(backend_.allocate(memory_plan_.total), memory_plan_.total, backend_.device());
    plan(*arena_);
    require(arena_->plan().total == memory_plan_.total, "the allocation differs from its plan");
    model_.initialize(stream_);
}

// ------------------------------------------------------------------------------------------------------ weights

void TrainEngine::write_leaf(std::size_t index, std::span<const float> values) {
    const OwnedLeaf& leaf = store_->owned()[index];
    std::vector<std::byte> converted(leaf.param.bytes());
    convert_elements(values.data(), DType::f32, converted.data(), leaf.param.dtype(), leaf.param.numel());
    backend_.copy(stream_, Tensor(converted.data(), leaf.param.dtype(), leaf.param.shape()), leaf.param);
    if (const Tensor master = optimizer_->master(index))
        backend_.copy(stream_, Tensor::of(values.data(), master.shape()), master);
    backend_.synchronize(stream_);
}

void TrainEngine::initialize_weights(std::uint64_t seed) {
    const HfInit init(config_, store_->spec(), seed, options_.compat);
    std::vector<float> values;
    for (std::size_t i = 0; i < store_->owned().size(); ++i) {
        const OwnedLeaf& leaf = store_->owned()[i];
        values.resize(static_cast<std::size_t>(leaf.param.numel()));
        init.fill(leaf, values);
        write_leaf(i, values);
    }
    store_->weights_changed();
}

LoadReport TrainEngine::load_weights(const std::filesystem::path& path, std::uint64_t seed) {
    const ModelWeights weights(path);
    std::vector<ExpectedTensor> expected;
    for (const OwnedLeaf& leaf : store_->owned()) expected.push_back({leaf.spec->name, leaf.spec->shape});
    LoadReport report = match_names(expected, weights, {.tied_head = config_.tie_word_embeddings});

    std::unique_ptr<HfInit> init;  // made only when something is missing
    std::vector<float> values;
    for (std::size_t i = 0; i < store_->owned().size(); ++i) {
        const OwnedLeaf& leaf = store_->owned()[i];
        values.resize(static_cast<std::size_t>(leaf.param.numel()));
        const auto found = report.found.find(leaf.spec->name);
        if (found == report.found.end()) {
            if (!init) init = std::make_unique<HfInit>(config_, store_->spec(), seed, options_.compat);
            init->fill(leaf, values);
        } else if (leaf.spec->shape.rank() == 1) {
            read_rows(weights.find(found->second), leaf.row_begin, leaf.row_count,
                      Tensor::of(values.data(), {leaf.row_count}));
        } else {
            read_block(weights.find(found->second), leaf.row_begin, leaf.row_count, leaf.column_begin,
                       leaf.column_count, Tensor::of(values.data(), {leaf.row_count, leaf.column_count}));
        }
        write_leaf(i, values);
    }
    store_->weights_changed();
    return report;
}

void TrainEngine::save_weights(const std::filesystem::path& folder) const {
    std::map<std::string_view, const OwnedLeaf*> leaves;
    for (const OwnedLeaf& leaf : store_->owned()) leaves[leaf.spec->name] = &leaf;

    std::vector<std::vector<std::byte>> host_copies;  // of tensors that are on another device
    std::vector<NamedTensor> tensors;
    for (const std::string& name : names_in_module_order(config_)) {
        Tensor tensor = leaves.at(name)->param;
        if (tensor.device() != Device::cpu) {
            auto& copy = host_copies.emplace_back(tensor.bytes());
            const Tensor on_host(copy.data(), tensor.dtype(), tensor.shape());
            backend_.copy(stream_, tensor, on_host);
            tensor = on_host;
        }
        tensors.push_back({name, tensor});
    }
    backend_.synchronize(stream_);
    save_model_folder(folder, config_.saved_text(options_.model.precision.parameters), tensors);
}

// --------------------------------------------------------------------------------------------------------- step

/// What the whole step's loss is divided by, over all micro-batches and ranks; 0 when that is decided per micro-batch.
std::int64_t TrainEngine::step_count(std::span<const TokenBatch> micro_batches) {
    using LossDenominator = HfCompat::LossDenominator;
    if (options_.compat.loss_denominator == LossDenominator::mean_of_micro_batches) return 0;
    const bool all_labels = options_.compat.loss_denominator == LossDenominator::all_labels;
    std::int64_t count = 0;
    for (const TokenBatch& micro : micro_batches) count += all_labels ? micro.label_count : micro.target_count();
    if (mesh_.replicas().size() > 1) {
        backend_.copy(stream_, Tensor::of(&count, {1}), count_);
        mesh_.replicas().all_reduce(stream_, count_, Reduction::sum);
        backend_.copy(stream_, count_, Tensor::of(&count, {1}));
        backend_.synchronize(stream_);
    }
    return count;
}

double TrainEngine::loss_scale(const TokenBatch& batch, std::span<const TokenBatch> micro_batches,
                               std::int64_t step_count) const {
    if (options_.compat.loss_denominator == HfCompat::LossDenominator::mean_of_micro_batches)
        step_count = batch.target_count() * static_cast<std::int64_t>(micro_batches.size()) * mesh_.replicas().size();
    return step_count == 0 ? 0.0 : 1.0 / static_cast<double>(step_count);
}

/// transformers 5.x adds the experts' balance loss once per micro-batch; earlier it was averaged like the rest of the loss.
double TrainEngine::balance_scale(std::size_t micro_batches) const {
    const bool averaged = options_.compat.loss_denominator == HfCompat::LossDenominator::mean_of_micro_batches;
    return averaged ? 1.0 / static_cast<double>(micro_batches) : 1.0;
}

/// The replicas' tokens of a micro-batch follow each other in the order of their ranks, as the Trainer deals out rows; so
/// a token has the same number, and the same noise, however many replicas there are.
std::optional<TokenNoise> TrainEngine::noise_of(const TokenBatch& batch, std::size_t micro_batch) {
    if (config_.moe.jitter == 0) return std::nullopt;
    Communicator& replicas = mesh_.replicas();
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(replicas.size()), 0);
    tokens[static_cast<std::size_t>(replicas.rank())] = batch.tokens();
    const Tensor on_host = Tensor::of(tokens.data(), replica_tokens_.shape());
    backend_.copy(stream_, on_host, replica_tokens_);
    replicas.all_reduce(stream_, replica_tokens_, Reduction::sum);
    backend_.copy(stream_, replica_tokens_, on_host);
    backend_.synchronize(stream_);
    return TokenNoise{.seed = options_.noise_seed,
                      .micro_batch = micro_batch,
                      .first_token = std::accumulate(tokens.begin(), tokens.begin() + replicas.rank(), std::int64_t{0}),
                      .scalars = scalars_};
}

void TrainEngine::upload_scalars() {
    backend_.copy(stream_, Tensor::of(host_scalars_.data(), scalars_.shape()), scalars_);
}

StepResult TrainEngine::accumulate_gradients(std::span<const TokenBatch> micro_batches) {
    const std::int64_t count = step_count(micro_batches);
    double loss = 0;
    store_->begin_step(static_cast<int>(micro_batches.size()));
    host_scalars_[StepScalar::step] = static_cast<float>(updates_done_ + 1);
    for (std::size_t i = 0; i < micro_batches.size(); ++i) {
        const TokenBatch& batch = micro_batches[i];
        const double scale = loss_scale(batch, micro_batches, count);
        host_scalars_[StepScalar::loss_scale] = static_cast<float>(scale);
        upload_scalars();
        MicroBatch micro = model_.batch_buffers().upload(backend_, stream_, batch, config_.vocab_size);
        micro.noise = noise_of(batch, i);
        const double balance_scale = this->balance_scale(micro_batches.size());
        model_.forward_backward(stream_, micro, scalars_.rows(StepScalar::loss_scale, 1), balance_scale);

        double loss_sum = 0, balance_loss = 0;
        backend_.run(stream_, Sum{.x = model_.loss().rows(0, batch.tokens()), .out = loss_sum_});
        backend_.copy(stream_, loss_sum_, Tensor::of(&loss_sum, {1}));
        if (model_.balance_loss()) backend_.copy(stream_, model_.balance_loss(), Tensor::of(&balance_loss, {1}));
        backend_.synchronize(stream_);
        // The balance loss is that of all replicas already.
        loss += loss_sum * scale + balance_loss * balance_scale / mesh_.replicas().size();
    }
    store_->finish_gradients(stream_);
    gradient_norm_.run(backend_, stream_, mesh_.everyone(), scalars_, static_cast<float>(options_.max_gradient_norm));
    backend_.copy(stream_, scalars_, Tensor::of(host_scalars_.data(), scalars_.shape()));
    backend_.copy(stream_, Tensor::of(&loss, {1}), loss_sum_);
    mesh_.replicas().all_reduce(stream_, loss_sum_, Reduction::sum);
    backend_.copy(stream_, loss_sum_, Tensor::of(&loss, {1}));
    backend_.synchronize(stream_);
    return {.loss = loss, .gradient_norm = host_scalars_[StepScalar::gradient_norm]};
}

StepResult TrainEngine::step(std::span<const TokenBatch> micro_batches, double learning_rate) {
    host_scalars_[StepScalar::learning_rate] = static_cast<float>(learning_rate);
    optimizer_->set_scalars(host_scalars_, updates_done_ + 1);
    const StepResult result = accumulate_gradients(micro_batches);
    optimizer_->update(backend_, stream_, scalars_);
    store_->weights_changed();
    ++updates_done_;
    return result;
}

EvaluationResult TrainEngine::evaluate(const TokenBatch& batch) {
    const MicroBatch micro = model_.batch_buffers().upload(backend_, stream_, batch, config_.vocab_size);
    model_.evaluate(stream_, micro);
    std::vector<float> loss(static_cast<std::size_t>(batch.tokens()));
    std::vector<std::int32_t> argmax(loss.size());
    backend_.copy(stream_, model_.loss().rows(0, batch.tokens()), Tensor::of(loss.data(), {batch.tokens()}));
    backend_.copy(stream_, model_.argmax().rows(0, batch.tokens()), Tensor::of(argmax.data(), {batch.tokens()}));
    backend_.synchronize(stream_);

    EvaluationResult result;
    if (model_.balance_loss()) {
        backend_.copy(stream_, model_.balance_loss(), Tensor::of(&result.balance_loss, {1}));
        backend_.synchronize(stream_);
    }
    for (std::size_t i = 0; i < loss.size(); ++i) {
        if (batch.targets[i] == ignored_target) continue;
        result.loss_sum += loss[i];
        ++result.targets;
        result.correct += argmax[i] == batch.targets[i];
    }
    return result;
}

}  // namespace drover
