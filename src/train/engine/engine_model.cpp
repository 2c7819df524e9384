#include "train/engine/engine_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/checkpoint_manifest.h"
#include "model/params.h"
#include "train/checkpoint/hf_checkpoint.h"
#include "train/engine/train_engine.h"
#include "train/state/agreed_error.h"

namespace drover {
namespace {

/// A copy of the batch without labels in its filler rows.
Batch with_filler_masked(const Batch& batch) {
    Batch masked = batch;
    std::fill(masked.labels.end() - batch.filler_rows * batch.row_length, masked.labels.end(), no_label);
    return masked;
}

/// Combines the results of a batch's parts. A part's loss is divided by the mean number of targets over the
/// parts that have any, so the mean of those parts' losses is the batch's loss.
BatchEvaluation one_batch(const std::vector<BatchEvaluation>& parts) {
    BatchEvaluation whole;
    const auto with_targets =
        std::count_if(parts.begin(), parts.end(), [](const BatchEvaluation& part) { return part.loss; });
    for (const BatchEvaluation& part : parts) {
        if (part.loss) whole.loss = whole.loss.value_or(0) + *part.loss / static_cast<double>(with_targets);
        whole.rows += part.rows;
        whole.targets += part.targets;
        whole.correct += part.correct;
        whole.entropy += part.entropy;
    }
    return whole;
}

}  // namespace

ParameterCounts count_parameters(const ModelConfig& config) {
    const std::int64_t embedding = config.vocab_size * config.hidden_size;
    // A head that begins as the embedding is not counted twice, as in PEFT.
    const std::int64_t copied = config.head_from_embedding ? embedding : 0;
    const std::int64_t total = make_param_spec(config).parameter_count() - copied;
    const std::int64_t active = active_parameter_count(config);
    return {.total = total,
            .active = active - copied,
            .without_embeddings = total - embedding,
            .multiplied = config.tie_word_embeddings ? active : active - embedding};
}

EngineModel::EngineModel(TrainEngine& engine, const ModelConfig& config, Backend& backend, const Mesh& mesh,
                         AfterSave after_save, CheckpointOptions checkpoints)
    : engine_(engine),
      config_(config),
      mesh_(mesh),
      after_save_(std::move(after_save)),
      checkpoints_(checkpoints),
      parameters_(count_parameters(config)),
      writer_(backend, mesh, checkpoints.buffer_bytes) {
    if (!engine.has_adapters()) return;
    parameters_.trained = 0;
    engine.model_spec().for_each_leaf([&](const LeafSpec& leaf) {
        if (leaf.trained) *parameters_.trained += leaf.shape.numel();
    });
}

UpdateResult EngineModel::update(std::span<const Batch> micro_batches, double learning_rate) {
    return engine_.step(micro_batches, learning_rate);
}

std::vector<BatchEvaluation> EngineModel::evaluate(const Batch& batch) {
    const EvaluationResult whole = engine_.evaluate(batch);
    BatchEvaluation own{.rows = batch.rows - batch.filler_rows,
                        .targets = whole.targets,
                        .correct = whole.correct,
                        .entropy = whole.entropy};
    // The filler rows of a shared batch have no targets in any case.
    if (!batch.part_of && anyone_has_filler(batch)) {
        const EvaluationResult counted = engine_.evaluate(with_filler_masked(batch));
        own.targets = counted.targets;
        own.correct = counted.correct;
        own.entropy = counted.entropy;
    }

    const std::vector<double> numbers =
        gather({whole.targets > 0 ? 1.0 : 0.0, whole.batch_loss(), static_cast<double>(own.rows),
                static_cast<double>(own.targets), static_cast<double>(own.correct), own.entropy});
    std::vector<BatchEvaluation> all;
    for (std::size_t i = 0; i < numbers.size(); i += 6)
        all.push_back({.loss = numbers[i] > 0 ? std::optional(numbers[i + 1]) : std::nullopt,
                       .rows = static_cast<std::int64_t>(numbers[i + 2]),
                       .targets = static_cast<std::int64_t>(numbers[i + 3]),
                       .correct = static_cast<std::int64_t>(numbers[i + 4]),
                       .entropy = numbers[i + 5]});
    return batch.part_of ? std::vector{one_batch(all)} : all;
}

/// If any replica's batch has filler rows, all replicas evaluate once more; otherwise the engine's
/// collectives would not match up.
bool EngineModel::anyone_has_filler(const Batch& batch) {
    const std::vector<double> filler = gather({static_cast<double>(batch.filler_rows)});
    return std::any_of(filler.begin(), filler.end(), [](double count) { return count > 0; });
}

/// The numbers of all replicas, in replica order.
std::vector<double> EngineModel::gather(std::vector<double> own) {
    Communicator& replicas = mesh_.replicas_on_host();
    if (replicas.size() == 1) return own;
    const auto count = static_cast<std::int64_t>(own.size());
    std::vector<double> all(own.size() * static_cast<std::size_t>(replicas.size()));
    const Tensor whole = Tensor::of(all.data(), {count * replicas.size()});
    replicas.all_gather({}, Tensor::of(own.data(), {count}), whole);
    return all;
}

void EngineModel::save(const std::filesystem::path& folder) {
    writer_.poll(true);  // a checkpoint that was being written when a run ended with an error
    writer_.begin({.folder = folder,
                   .place = CheckpointJob::Place::existing_folder,
                   .tensors = engine_.saved_tensors(false, checkpoints_.max_shard_bytes),
                   .texts = engine_.saved_config_texts(),
                   .more_files = after_save_});
    if (const auto outcome = writer_.poll(true); !outcome->error.empty()) throw AgreedError(outcome->error);
}

void EngineModel::save_checkpoint(const CheckpointRequest& request) {
    auto texts = engine_.saved_config_texts();
    texts["trainer_state.json"] = request.trainer_state;
    std::function<void(const std::filesystem::path&)> rewrite;
    if (checkpoints_.rewrite)
        rewrite = [this, loop = request.loop, counters = engine_.counters()](
                      const std::filesystem::path& folder) { checkpoints_.rewrite(folder, loop, counters); };
    writer_.begin(
        {.folder = request.folder,
         .tensors = engine_.saved_tensors(checkpoints_.with_optimizer, checkpoints_.max_shard_bytes),
         .texts = std::move(texts),
         .more_files = after_save_,
         .state = {{"loop", request.loop.json()},
                   {"engine", engine_.counters().json()},
                   {"run", checkpoints_.facts.json()}},
         .rewrite = std::move(rewrite)});
}

void EngineModel::load(const std::filesystem::path& folder) {
    engine_.load_trained_weights(folder);
}

std::optional<LoopState> EngineModel::resume(const std::filesystem::path& folder) {
    if (is_hf_checkpoint(folder)) {
        const HfOptimizerSource optimizer(folder, config_, engine_.compat(), engine_.adapters());
        engine_.load_trained_weights(folder);
        engine_.load_optimizer(optimizer);
        engine_.set_counters({.updates = optimizer.updates(), .scaler = std::nullopt});
        return std::nullopt;
    }
    const RunState state = RunState::parse(CheckpointManifest::read(folder).state,
                                           (folder / CheckpointManifest::file_name).string());
    const SafetensorsOptimizerSource optimizer(folder);
    engine_.load_trained_weights(folder);
    engine_.load_optimizer(optimizer);
    engine_.set_counters(state.engine);
    return state.loop;
}

}  // namespace drover
