#include "train/engine/train_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "backend/scope.h"
#include "core/convert.h"
#include "core/host_spans.h"
#include "model/fp8.h"
#include "model/params.h"
#include "train/engine/new_weights.h"
#include "train/engine/weight_upload.h"
#include "train/engine/weights_wait.h"

namespace drover {
namespace {

void check_options(const TrainEngineOptions& options, Device device) {
    // The ids of this many tokens would already fill terabytes of memory, but their products with a model's
    // sizes do not overflow.
    constexpr std::int64_t most_tokens = std::int64_t{1} << 40;
    if (options.model.rows > most_tokens / std::max<std::int64_t>(options.model.row_length, 1))
        throw Error(fmt::format("A micro-batch of {} rows with {} tokens each does not fit on any device.",
                                options.model.rows, options.model.row_length),
                    "Use a smaller --per_device_train_batch_size or --block_size.");
    const Precision& precision = options.model.precision;
    for (const DType dtype :
         {precision.parameters, precision.residual, precision.gradients, precision.moments})
        if (dtype == DType::f16 && device == Device::cpu)
            throw UsageError(
                "Training in float16 was requested, but this device has no float16 matrix products.",
                "Use --bf16, which needs no loss scaling, or train in float32.");
    if (!(options.model.label_smoothing >= 0 && options.model.label_smoothing <= 1))
        throw UsageError(fmt::format("--label_smoothing_factor is {}.", options.model.label_smoothing),
                         "It must be from 0 to 1.");
    if (!(options.model.neftune_alpha >= 0) || !std::isfinite(options.model.neftune_alpha))
        throw UsageError(fmt::format("--neftune_noise_alpha is {}.", options.model.neftune_alpha),
                         "It must be 0 (no noise) or more.");
}

/// transformers' LabelSmoother computes the loss from the logits alone, so the experts' balance loss is not
/// part of it.
ModelConfig trained_config(ModelConfig config, const TrainEngineOptions& options, Device device) {
    check_options(options, device);
    if (options.model.label_smoothing > 0) config.moe.balance_loss = false;
    return config;
}

/// Adapters are trained as PEFT trains them, whatever the precision of the model's own weights: fp32, with
/// fp32 gradients and moments.
TrainEngineOptions with_adapter_precision(TrainEngineOptions options) {
    Precision& precision = options.model.precision;
    if (options.model.adapters.any() && !options.evaluation_only) {
        precision.gradients = precision.moments = DType::f32;
        precision.master = precision.parameters != DType::f32;
    }
    return options;
}

Stage planned_stage(const ModelConfig& config, const TrainEngineOptions& options, const ParamSpec& model,
                    const Mesh& mesh, const PipelinePlan& plan) {
    const std::vector<ModelChunk> stages =
        cut_into_stages(config, plan.ranks() * plan.chunks(), options.pipeline.cuts);
    Stage stage = make_stage(config, model, stages, plan.ranks(), mesh.place().pp);
    for (std::size_t i = 0; i < stage.chunks.size(); ++i)
        stage.chunks[i].slots = plan.slots(static_cast<int>(i));
    return stage;
}

/// An engine that only evaluates has room for one micro-batch in each chunk.
PipelineSettings planned_pipeline(const TrainEngineOptions& options) {
    PipelineSettings settings = options.pipeline;
    if (options.evaluation_only) {
        settings.schedule = PipelineScheduleKind::one_forward_one_backward;
        settings.micro_batches = 1;
    }
    return settings;
}

CausalLmOptions planned_model(const TrainEngineOptions& all, const PipelinePlan& plan, bool gathers_weights) {
    CausalLmOptions options = all.model;
    options.one_micro_batch = !all.evaluation_only && plan.ranks() == 1 && plan.most_trained() == 1;
    if (gathers_weights) options.keeps_frozen_fp8 = false;  // copies would keep what is not kept itself
    options.weight_gradients_wait = plan.weights_wait();
    options.batches = plan.batches();
    return options;
}

}  // namespace

bool takes_means_of_batches(const TrainEngineOptions& options) {
    using LossDenominator = HfCompat::LossDenominator;
    return options.compat.loss_denominator == LossDenominator::mean_of_micro_batches ||
           (options.compat.loss_denominator == LossDenominator::all_labels &&
            options.model.label_smoothing > 0);
}

TrainEngine::TrainEngine(const ModelConfig& config, const TrainEngineOptions& options, Backend& backend,
                         const Mesh& mesh)
    : options_(with_adapter_precision(options)),
      config_(trained_config(config, options, backend.device())),
      backend_(backend),
      stream_(backend.main_stream()),
      mesh_(mesh),
      parallel_(mesh.tp(), options.sequence_parallel),
      model_spec_(make_param_spec(config_, options.compat, options.model.adapters)),
      pipeline_(planned_pipeline(options), mesh.shape().pp, mesh.place().pp,
                why_weights_cannot_wait(options, mesh.data().size()).empty()),
      stage_(planned_stage(config_, options, model_spec_, mesh, pipeline_)),
      store_(make_param_store(
          stage_.spec, options.sharding, mesh, parallel_.splits_tokens(), options_.model.precision.parameters,
          options.evaluation_only ? std::nullopt : std::optional(options_.model.precision.gradients),
          backend)),
      optimizer_(make_optimizer(options.optimizer, options_.model.precision, mesh)),
      model_(config_,
             planned_model(options_, pipeline_, options.sharding == Sharding::zero3 && !mesh.data().idle()),
             stage_, backend, *store_, parallel_, mesh.replicas()),
      executor_(model_, pipeline_, backend, mesh),
      readback_(backend),
      host_scalars_(StepScalar::count, 0.0f),
      parameter_count_(model_spec_.parameter_count()) {
    check_tensor_parallel(config_, mesh.tp().size());
    if (options.model.fp8 != Fp8Recipe::none) check_fp8(config_, mesh.tp().size());
    require(mesh.shape().cp == 1, "context parallelism has no engine yet");
    Arena measuring = Arena::measuring(backend.device()), state = Arena::measuring(backend.device());
    plan(measuring, options.offload_optimizer ? state : measuring);
    memory_plan_ = measuring.plan();
    host_memory_plan_ = state.plan();
    if (options.loss_scaling) loss_scaler_.emplace(*options.loss_scaling);
}

TrainEngine::~TrainEngine() = default;

void TrainEngine::plan(Arena& arena, Arena& state) {
    store_->plan(arena);
    if (!options_.evaluation_only) {
        optimizer_->plan(state, arena, *store_);
        gradient_norm_.plan(arena, *store_, model_spec_);
    }
    scalars_ = arena.make(MemoryUse::scratch, DType::f32, {StepScalar::count});
    const std::int64_t sums =
        options_.model.counts_predictions ? std::int64_t{StepReadback::StepSum::count} : 1;
    step_sums_ = arena.make(MemoryUse::scratch, DType::f64, {sums});
    loss_sum_ = step_sums_.rows(StepReadback::StepSum::loss, 1);
    executor_.plan(arena, options_.model.precision.residual,
                   model_.held_tokens(options_.model.rows * options_.model.row_length));
    model_.plan(arena);
}

void TrainEngine::allocate() {
    const auto make = [&](MemoryBlock block, std::size_t bytes) {
        return std::make_unique<Arena>(std::move(block), bytes, backend_.device());
    };
    arena_ = make(backend_.allocate(memory_plan_.total), memory_plan_.total);
    if (options_.offload_optimizer)
        state_arena_ = make(backend_.allocate_shared(host_memory_plan_.total), host_memory_plan_.total);
    plan(*arena_, options_.offload_optimizer ? *state_arena_ : *arena_);
    require(arena_->plan().total == memory_plan_.total &&
                (!state_arena_ || state_arena_->plan().total == host_memory_plan_.total),
            "the allocation differs from its plan");
    model_.initialize(stream_);
}

// ---------------------------------------------------------------------------------------------------------
// step

/// The divisor of the whole step's loss, over all micro-batches and ranks; 0 when it is decided per
/// micro-batch.
std::int64_t TrainEngine::step_count(std::span<const Batch> micro_batches) {
    if (takes_means_of_batches(options_)) return 0;
    const bool all_labels = options_.compat.loss_denominator == HfCompat::LossDenominator::all_labels;
    std::int64_t count = 0;
    for (const Batch& micro : micro_batches) count += all_labels ? micro.label_count() : micro.target_count();
    return sum_over_replicas(count);
}

std::int64_t TrainEngine::sum_over_replicas(std::int64_t count) {
    mesh_.replicas_on_host().all_reduce({}, Tensor::of(&count, {1}), Reduction::sum);
    return count;
}

double TrainEngine::loss_scale(const Batch& batch, std::span<const Batch> micro_batches,
                               std::int64_t step_count) {
    std::int64_t divisor = step_count;
    if (takes_means_of_batches(options_)) {
        // 4.57's LabelSmoother takes the mean of each batch, and the sum of these over micro-batches and
        // replicas is differentiated; earlier versions used their mean.
        const bool averaged =
            options_.compat.loss_denominator == HfCompat::LossDenominator::mean_of_micro_batches;
        divisor = options_.shared_batches ? sum_over_replicas(batch.target_count()) : batch.target_count();
        if (averaged) divisor *= static_cast<std::int64_t>(micro_batches.size());
        if (averaged && !options_.shared_batches) divisor *= mesh_.replicas().size();
    }
    return divisor == 0 ? 0.0 : 1.0 / static_cast<double>(divisor);
}

/// transformers 5.x adds the experts' balance loss once per micro-batch; earlier it was averaged like the
/// rest of the loss.
double TrainEngine::balance_scale(std::size_t micro_batches) const {
    const bool averaged =
        options_.compat.loss_denominator == HfCompat::LossDenominator::mean_of_micro_batches;
    return averaged ? 1.0 / static_cast<double>(micro_batches) : 1.0;
}

/// The replicas' tokens of a micro-batch are numbered consecutively in rank order, the way the Trainer deals
/// out rows. So a token has the same number, and the same noise, for any number of replicas.
std::optional<TokenNoise> TrainEngine::noise_of(const Batch& batch, std::size_t micro_batch) {
    if (!has_noise()) return std::nullopt;
    Communicator& replicas = mesh_.replicas_on_host();
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(replicas.size()), 0);
    tokens[static_cast<std::size_t>(replicas.rank())] = batch.tokens();
    replicas.all_reduce({}, Tensor::of(tokens.data(), {replicas.size()}), Reduction::sum);
    return TokenNoise{
        .seed = options_.noise_seed,
        .micro_batch = micro_batch,
        .first_token = std::accumulate(tokens.begin(), tokens.begin() + replicas.rank(), std::int64_t{0}),
        .scalars = scalars_};
}

void TrainEngine::upload_scalars() {
    const Scope scope(backend_, stream_, "upload");
    backend_.copy(stream_, Tensor::of(host_scalars_.data(), scalars_.shape()), scalars_);
}

/// A micro-batch of the same shape repeats the same operations if the host takes no part in them;
/// collectives, the experts' token counts, sequences within rows, the number of target rows and noise involve
/// the host. Recording pays off if the device finishes so quickly that it might wait for the host: above this
/// many tokens times parameters a GPU takes a tenth of a second, in which time the host gets far ahead.
bool TrainEngine::is_recorded(const DeviceBatch& micro) const {
    constexpr double most_work = 8e12;
    const double work = static_cast<double>(micro.tokens()) * static_cast<double>(parameter_count_);
    return mesh_.everyone().idle() && options_.sharding == Sharding::replicated && !config_.has_experts() &&
           !micro.sequences.begin && !micro.target_rows && !micro.noise && work <= most_work;
}

/// Adds a micro-batch's loss, and that of its experts, to the step's.
void TrainEngine::add_loss(const Batch& batch, double scale, const Tensor& balance_loss, double balance_scale,
                           bool first) {
    const Scope scope(backend_, stream_, "loss");
    backend_.run(stream_, Sum{.x = model_.loss().rows(0, batch.tokens()),
                              .out = loss_sum_,
                              .accumulate = !first,
                              .scale = scale});
    // The balance loss already covers all replicas.
    if (balance_loss)
        backend_.run(stream_, Sum{.x = balance_loss,
                                  .out = loss_sum_,
                                  .accumulate = true,
                                  .scale = balance_scale / mesh_.replicas().size()});
}

/// One over the number of targets of each micro-batch, over all replicas.
std::vector<double> TrainEngine::prediction_scales(std::span<const Batch> micro_batches) {
    std::vector<double> targets;
    for (const Batch& micro : micro_batches) targets.push_back(static_cast<double>(micro.target_count()));
    const Tensor counts = Tensor::of(targets.data(), {static_cast<std::int64_t>(targets.size())});
    mesh_.replicas_on_host().all_reduce({}, counts, Reduction::sum);
    for (double& count : targets) count = count == 0 ? 0.0 : 1.0 / count;
    return targets;
}

/// Adds what a micro-batch's predictions were like to the step's sums.
void TrainEngine::add_predictions(const Batch& batch, double scale, bool first) {
    using StepSum = StepReadback::StepSum;
    const Scope scope(backend_, stream_, "loss");
    for (const auto& [sum, of] :
         {std::pair(StepSum::entropy, model_.entropy()), std::pair(StepSum::accuracy, model_.correct())})
        backend_.run(stream_, Sum{.x = of.rows(0, batch.tokens()),
                                  .out = step_sums_.rows(sum, 1),
                                  .accumulate = !first,
                                  .scale = scale});
}

/// The first stage has the gradients of a tied embedding's rows, the last one those of the projection.
void TrainEngine::add_up_tied_gradients() {
    if (!config_.tie_word_embeddings || mesh_.pp_ends().size() == 1) return;
    const std::string& name = model_spec_.units[UnitIndex::embedding].storages[0].leaves[0].name;
    for (const OwnedLeaf& leaf : store_->owned())
        if (leaf.spec->name == name && leaf.gradient && leaf.gradient.numel() > 0)
            mesh_.pp_ends().all_reduce(stream_, leaf.gradient, Reduction::sum);
}

/// Enqueues everything up to the gradient norm and the step's loss, over all ranks, without waiting for the
/// device.
void TrainEngine::enqueue_gradients(std::span<const Batch> micro_batches) {
    require(!options_.evaluation_only, "a step of an engine that only evaluates");
    // What the hosts must agree on comes first: the ranks of a pipeline are at different micro-batches.
    const std::int64_t count = step_count(micro_batches);
    std::vector<double> scales;
    std::vector<std::optional<TokenNoise>> noise;
    for (std::size_t i = 0; i < micro_batches.size(); ++i) {
        scales.push_back(loss_scale(micro_batches[i], micro_batches, count));
        noise.push_back(noise_of(micro_batches[i], i));
    }
    const auto of = [](const auto& all, int micro_batch) -> const auto& {
        return all[static_cast<std::size_t>(micro_batch)];
    };
    const std::vector<double> predicted =
        options_.model.counts_predictions ? prediction_scales(micro_batches) : std::vector<double>{};
    const double balance_scale = this->balance_scale(micro_batches.size());
    host_scalars_[StepScalar::step] = static_cast<float>(updates_done_ + 1);
    // A whole micro-batch at a time uploads them with its loss scale, before its forward.
    if (pipeline_.ranks() > 1 || executor_.is_observed()) upload_scalars();
    if (!stage_.head_chunk()) {
        const Scope scope(backend_, stream_, "loss");
        backend_.run(stream_, Fill{step_sums_, 0});
    }
    executor_.train(stream_, {.micro_batches = static_cast<int>(micro_batches.size()),
                              .tokens = [&](int i) { return of(micro_batches, i).tokens(); },
                              .upload =
                                  [&](int i) {
                                      const HostSpan span("upload", i);
                                      const Scope scope(backend_, stream_, "upload", i);
                                      DeviceBatch micro = model_.batch_buffers().upload(
                                          backend_, stream_, of(micro_batches, i), config_.vocab_size);
                                      micro.noise = of(noise, i);
                                      return micro;
                                  },
                              .before_head =
                                  [&](int i) {
                                      host_scalars_[StepScalar::loss_scale] =
                                          static_cast<float>(of(scales, i) * gradient_scale());
                                      upload_scalars();
                                  },
                              .after_head =
                                  [&](int i) {
                                      add_loss(of(micro_batches, i), of(scales, i), model_.balance_loss(),
                                               balance_scale, i == 0);
                                      if (!predicted.empty())
                                          add_predictions(of(micro_batches, i), of(predicted, i), i == 0);
                                  },
                              .loss_scale = scalars_.rows(StepScalar::loss_scale, 1),
                              .balance_scale = balance_scale * gradient_scale(),
                              .is_recorded = [&](const DeviceBatch& micro) { return is_recorded(micro); }});
    {
        const Scope scope(backend_, stream_, "gradients");
        store_->finish_gradients(stream_);
        add_up_tied_gradients();
    }
    const Scope scope(backend_, stream_, "gradient norm");
    mesh_.replicas().all_reduce(stream_, step_sums_, Reduction::sum);
    mesh_.pp().all_reduce(stream_, step_sums_, Reduction::sum);
    gradient_norm_.run(backend_, stream_, mesh_.everyone(),
                       {.scalars = scalars_,
                        .max_norm = static_cast<float>(options_.max_gradient_norm),
                        .gradient_scale = static_cast<float>(gradient_scale()),
                        .guarded = true,
                        .loss = loss_sum_});
    readback_.begin(stream_, scalars_, step_sums_);
}

/// Waits for the results of enqueue_gradients(), but for nothing enqueued after them.
UpdateResult TrainEngine::read_gradients() {
    const HostSpan span("wait for the device");
    readback_.wait();
    mesh_.everyone().check_unbroken();
    using StepSum = StepReadback::StepSum;
    UpdateResult result{.loss = readback_.sum(StepSum::loss),
                        .gradient_norm = readback_.scalar(StepScalar::gradient_norm)};
    if (options_.model.counts_predictions) {
        result.entropy_sum = readback_.sum(StepSum::entropy);
        result.accuracy_sum = readback_.sum(StepSum::accuracy);
    }
    return result;
}

UpdateResult TrainEngine::accumulate_gradients(std::span<const Batch> micro_batches) {
    enqueue_gradients(micro_batches);
    return read_gradients();
}

void TrainEngine::update_weights() {
    const Scope scope(backend_, stream_, "optimizer");
    optimizer_->update(backend_, stream_, scalars_);
    store_->weights_changed(ParamStore::Written::trained);
}

UpdateResult TrainEngine::step(std::span<const Batch> micro_batches, double learning_rate) {
    const HostSpan span("update");
    host_scalars_[StepScalar::learning_rate] = static_cast<float>(learning_rate);
    optimizer_->set_scalars(host_scalars_, updates_done_ + 1);
    enqueue_gradients(micro_batches);
    // The device itself skips the update when a number is not finite, so it has work while the host reads
    // loss and norm.
    update_weights();
    UpdateResult result = read_gradients();
    // Loss and norm are those of all ranks, so every rank decides alike.
    const bool loss_finite = std::isfinite(result.loss),
               gradients_finite = std::isfinite(result.gradient_norm);
    if (!loss_finite || (!gradients_finite && !loss_scaler_)) {
        result.non_finite = find_non_finite(micro_batches);
        // Its forwards have used memory of the gradients, which the update still needs.
        if (!options_.skip_non_finite && model_.uses_memory_of_gradients()) enqueue_gradients(micro_batches);
    }
    if (loss_scaler_) loss_scaler_->update(gradients_finite);
    if (!loss_finite || !gradients_finite) {  // the device has left everything as it was
        if (options_.skip_non_finite || (loss_scaler_ && !gradients_finite)) {
            result.updated = false;
            return result;
        }
        backend_.run(stream_, Fill{.x = scalars_.rows(StepScalar::skips, 1), .value = 0});
        update_weights();
    }
    ++updates_done_;
    return result;
}

/// For each leaf, the sum of squares held in gradient_norm_.
std::vector<double> TrainEngine::leaf_sums() const {
    std::vector<double> sums(static_cast<std::size_t>(gradient_norm_.sums().size(0)));
    backend_.copy(stream_, gradient_norm_.sums(), Tensor::of(sums.data(), gradient_norm_.sums().shape()));
    backend_.synchronize(stream_);
    mesh_.everyone().check_unbroken();
    return sums;
}

/// The first place in the forward pass of a micro-batch where a number is not finite; empty when all logits
/// are finite. The same on every rank.
std::string TrainEngine::find_non_finite(const Batch& batch, std::optional<TokenNoise> noise) {
    const int blocks = static_cast<int>(config_.num_hidden_layers), logits = blocks + 1, nothing = blocks + 2;
    std::int64_t first = nothing;
    const auto look = [&](int layer, const Tensor& x) {
        if (layer >= first) return;
        double sum = 0;
        const Tensor only[] = {x};
        backend_.run(stream_, SumOfSquares{.tensors = only, .sums = loss_sum_});
        backend_.copy(stream_, loss_sum_, Tensor::of(&sum, {1}));
        backend_.synchronize(stream_);
        mesh_.everyone().check_unbroken();
        if (!std::isfinite(sum)) first = layer;
    };
    executor_.evaluate(
        stream_, {.micro_batches = 1,
                  .tokens = [&](int) { return batch.tokens(); },
                  .upload =
                      [&](int) {
                          DeviceBatch micro =
                              model_.batch_buffers().upload(backend_, stream_, batch, config_.vocab_size);
                          micro.noise = noise;
                          return micro;
                      },
                  .after_head = [&](int) { look(logits, model_.loss().rows(0, batch.tokens())); },
                  .watch = look});
    mesh_.everyone_on_host().all_reduce({}, Tensor::of(&first, {1}), Reduction::min);
    return first < 0         ? "the embeddings (model.embed_tokens)"
           : first < blocks  ? fmt::format("the output of layer {} (model.layers.{})", first, first)
           : first == blocks ? "the final norm (model.norm)"
           : first == logits ? "the logits (lm_head)"
                             : "";
}

/// See UpdateResult::non_finite.
std::string TrainEngine::find_non_finite(std::span<const Batch> micro_batches) {
    const std::vector<double> gradients = leaf_sums();
    gradient_norm_.sum_weights(backend_, stream_, mesh_.everyone());
    const std::vector<double> weights = leaf_sums();

    std::vector<std::string_view> names;
    model_spec_.for_each_leaf([&](const LeafSpec& leaf) { names.push_back(leaf.name); });
    const auto about_leaf = [&](std::string_view what, std::size_t index) {
        return fmt::format("{} {}", what, names[index]);
    };
    for (std::size_t i = 0; i < weights.size(); ++i)
        if (!std::isfinite(weights[i])) return about_leaf("the weight", i);
    for (std::size_t i = 0; i < micro_batches.size(); ++i) {
        const std::string where = find_non_finite(micro_batches[i], noise_of(micro_batches[i], i));
        if (!where.empty()) return where;
    }
    // Backward runs from the last leaf to the first.
    for (std::size_t i = gradients.size(); i-- > 0;)
        if (!std::isfinite(gradients[i])) return about_leaf("the gradient of", i);
    // All are finite, but their norm is too large for fp32.
    const auto largest = std::max_element(gradients.begin(), gradients.end()) - gradients.begin();
    return about_leaf("the norm of the gradients, of which the largest is that of",
                      static_cast<std::size_t>(largest));
}

/// Adds what the last evaluated micro-batch gave.
void TrainEngine::add_evaluation(const Batch& batch, std::array<double, evaluated_sums>& sums) {
    const std::vector<std::int32_t> targets = batch.targets();
    std::vector<float> loss(targets.size()), entropy;
    if (const Tensor of_tokens = model_.entropy()) {
        entropy.resize(targets.size());
        backend_.copy(stream_, of_tokens.rows(0, batch.tokens()),
                      Tensor::of(entropy.data(), {batch.tokens()}));
    }
    std::vector<std::int32_t> argmax(targets.size());
    const Scope scope(backend_, stream_, "loss");
    backend_.copy(stream_, model_.loss().rows(0, batch.tokens()), Tensor::of(loss.data(), {batch.tokens()}));
    backend_.copy(stream_, model_.argmax().rows(0, batch.tokens()),
                  Tensor::of(argmax.data(), {batch.tokens()}));
    backend_.synchronize(stream_);
    for (std::size_t i = 0; i < loss.size(); ++i) {
        if (targets[i] == no_label) continue;
        sums[loss_of_targets] += static_cast<double>(loss[i]);
        sums[correct_targets] += argmax[i] == targets[i];
        if (!entropy.empty()) sums[entropy_of_targets] += static_cast<double>(entropy[i]);
    }
}

EvaluationResult TrainEngine::evaluate(const Batch& batch) {
    std::vector<Batch> pieces;
    // A rank without rows still takes part: the others wait for it where weights are gathered.
    std::int64_t row = 0;
    do {
        const std::int64_t count = std::min(options_.model.rows, batch.rows - row);
        pieces.push_back(batch.some_rows(row, count));
        row += count;
    } while (row < batch.rows);

    const HostSpan whole("evaluate");
    std::array<double, evaluated_sums> found{};  // of the rank with the head
    model_.clear_routing_sums(stream_);
    const auto at_once = static_cast<std::size_t>(pipeline_.most_evaluated());
    for (std::size_t begin = 0; begin < pieces.size(); begin += at_once) {
        const auto group = std::span(pieces).subspan(begin, std::min(at_once, pieces.size() - begin));
        const auto piece = [&](int i) -> const Batch& { return group[static_cast<std::size_t>(i)]; };
        executor_.evaluate(stream_, {.micro_batches = static_cast<int>(group.size()),
                                     .tokens = [&](int i) { return piece(i).tokens(); },
                                     .upload =
                                         [&](int i) {
                                             const HostSpan span("upload", i);
                                             const Scope scope(backend_, stream_, "upload", i);
                                             return model_.batch_buffers().upload(backend_, stream_, piece(i),
                                                                                  config_.vocab_size);
                                         },
                                     .after_head = [&](int i) { add_evaluation(piece(i), found); }});
    }
    mesh_.pp_on_host().all_reduce({}, Tensor::of(found.data(), {evaluated_sums}), Reduction::sum);
    if (model_.has_balance_loss()) {
        mesh_.pp().all_reduce(stream_, model_.routing_sums(), Reduction::sum);
        model_.balance_experts(stream_, 0);
    }

    const bool all_labels = options_.compat.loss_denominator == HfCompat::LossDenominator::all_labels &&
                            options_.model.label_smoothing == 0;
    EvaluationResult result{.loss_sum = found[loss_of_targets],
                            .targets = batch.target_count(),
                            .correct = static_cast<std::int64_t>(found[correct_targets]),
                            .entropy = found[entropy_of_targets]};
    const std::int64_t counted = all_labels ? batch.label_count() : result.targets;
    // The count, and the number of replicas that contribute to it.
    std::array<std::int64_t, 2> sums{result.targets > 0 ? counted : 0, result.targets > 0 ? 1 : 0};
    mesh_.replicas_on_host().all_reduce({}, Tensor::of(sums.data(), {2}), Reduction::sum);
    if (sums[1] > 0) result.denominator = static_cast<double>(sums[0]) / static_cast<double>(sums[1]);
    if (model_.balance_loss()) {
        backend_.copy(stream_, model_.balance_loss(), Tensor::of(&result.balance_loss, {1}));
        backend_.synchronize(stream_);
    }
    mesh_.everyone().check_unbroken();
    return result;
}

}  // namespace drover
