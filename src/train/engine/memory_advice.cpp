#include "train/engine/memory_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "core/number_text.h"
#include "train/engine/pipeline_memory.h"
#include "train/engine/train_engine.h"

namespace drover {
namespace {

/// Plans a run repeatedly with different options.
class Planner {
  public:
    Planner(const ModelConfig& config, Backend& backend, const Mesh& mesh, const MemoryLimits& available,
            std::int64_t sharing)
        : config_(config), backend_(backend), mesh_(mesh), available_(available), sharing_(sharing) {}

    bool fits(const TrainEngineOptions& options) const {
        // Some plans are too large to be counted.
        std::vector<RankMemory> planned;
        try {
            planned = plan_pipeline_memory(config_, options, backend_, mesh_);
        } catch (const Error&) {
            return false;
        }
        return std::all_of(planned.begin(), planned.end(), [&](const RankMemory& rank) {
            return rank.device.total <= available_.device_bytes && rank.host.total <= available_.host_bytes;
        });
    }
    /// Of the pipeline rank that needs the most.
    MemoryPlan plan(const TrainEngineOptions& options) const {
        const std::vector<RankMemory> planned = plan_pipeline_memory(config_, options, backend_, mesh_);
        return planned[static_cast<std::size_t>(largest_rank(planned))].device;
    }

    /// The cheapest recompute policy beyond the current one that fits; empty when none does.
    std::string recompute(TrainEngineOptions options) const {
        const bool everywhere = options.model.recompute.blocks >= config_.num_hidden_layers;
        for (int kind = static_cast<int>(options.model.recompute.kind) + (everywhere ? 1 : 0);
             kind <= static_cast<int>(Recompute::full); ++kind) {
            options.model.recompute = {static_cast<Recompute>(kind)};
            if (fits(options))
                return fmt::format("--recompute {}{}", recompute_names[static_cast<std::size_t>(kind)],
                                   everywhere ? "" : " without --recompute_blocks");
        }
        return {};
    }

    /// The largest number of rows below that of the options that fits. Fewer rows never need more memory, so
    /// a few plans find it.
    std::int64_t fewer_rows(TrainEngineOptions options) const {
        std::int64_t fitting = 0, beyond = options.model.rows;
        while (beyond - fitting > 1) {
            options.model.rows = fitting + (beyond - fitting) / 2;
            (fits(options) ? fitting : beyond) = options.model.rows;
        }
        return fitting;
    }

    /// A pipeline's room no longer grows from three per rank on.
    TrainEngineOptions with_more_micro_batches(TrainEngineOptions options) const {
        options.pipeline.micro_batches = std::max(options.pipeline.micro_batches, 3 * mesh_.shape().pp);
        return options;
    }

    /// The largest smaller micro-batch that fits, keeping the number of rows per update.
    std::string smaller_batch(TrainEngineOptions options, std::int64_t accumulation_steps) const {
        const std::int64_t rows = options.model.rows;
        options = with_more_micro_batches(options);
        std::int64_t fitting = fewer_rows(options);
        while (fitting > 0 && rows % fitting != 0) --fitting;
        std::int64_t steps = 0;
        if (fitting == 0 || __builtin_mul_overflow(accumulation_steps, rows / fitting, &steps)) return {};
        return fmt::format("--per_device_train_batch_size {} --gradient_accumulation_steps {}",
                           fitting * sharing_, steps);
    }

    std::string shorter_moments(TrainEngineOptions options) const {
        if (options.model.precision.moments != DType::f32) return {};
        options.model.precision.moments = DType::bf16;
        return fits(options) ? "--moments_dtype bfloat16" : "";
    }

    /// A CPU has only one memory. The word "offload" works with any kind of --fsdp; runs that shard by other
    /// flags cannot use it.
    std::string offload(TrainEngineOptions options) const {
        const bool sharded_otherwise =
            options.sharding != Sharding::replicated && mesh_.everyone().size() > 1;
        if (backend_.device() == Device::cpu || options.offload_optimizer || sharded_otherwise) return {};
        options.offload_optimizer = true;
        options.sharding = Sharding::zero3;
        return fits(options) ? "--fsdp \"full_shard offload\" (with --deepspeed: offload_optimizer)" : "";
    }

  private:
    const ModelConfig& config_;
    Backend& backend_;
    const Mesh& mesh_;
    MemoryLimits available_;
    std::int64_t sharing_;  // replicas sharing a batch
};

}  // namespace

std::int64_t largest_fitting_rows(const ModelConfig& config, const TrainEngineOptions& options,
                                  Backend& backend, const Mesh& mesh, const MemoryLimits& available) {
    const Planner planner(config, backend, mesh, available, 1);
    return planner.fits(options) ? options.model.rows : planner.fewer_rows(options);
}

std::string memory_advice(const ModelConfig& config, const TrainEngineOptions& options,
                          std::int64_t accumulation_steps, Backend& backend, const Mesh& mesh,
                          const MemoryLimits& available, std::int64_t sharing) {
    const Planner planner(config, backend, mesh, available, sharing);
    std::vector<std::string> changes;
    for (std::string change : {planner.recompute(options), planner.shorter_moments(options),
                               planner.smaller_batch(options, accumulation_steps), planner.offload(options)})
        if (!change.empty()) changes.push_back(std::move(change));
    if (!changes.empty()) return fmt::format("One of these makes it fit: {}.", fmt::join(changes, "; or "));

    TrainEngineOptions smallest = options.model.rows > 1 ? planner.with_more_micro_batches(options) : options;
    smallest.model.recompute = {Recompute::full};
    smallest.model.rows = 1;
    if (planner.fits(smallest)) {
        const std::string batch = planner.smaller_batch(
            [&] {
                TrainEngineOptions recomputing = options;
                recomputing.model.recompute = {Recompute::full};
                return recomputing;
            }(),
            accumulation_steps);
        return fmt::format(
            "Use --recompute full{} and {}.",
            options.model.recompute.blocks < config.num_hidden_layers ? " without --recompute_blocks" : "",
            batch);
    }
    const MemoryPlan plan = planner.plan(smallest);
    const std::size_t states = plan[MemoryUse::parameters] + plan[MemoryUse::gradients] +
                               plan[MemoryUse::gradients_after_activations] + plan[MemoryUse::moments] +
                               plan[MemoryUse::master];
    const std::size_t others = plan.total - states;
    const std::size_t bytes = available.device_bytes;
    if (others < bytes)
        return fmt::format(
            "Even one row with --recompute full needs {}: shard it over {} devices or more (--fsdp "
            "full_shard), or train a "
            "smaller model; --dtype bfloat16 and --optim adafactor also need less.",
            bytes_text(plan.total), (states + bytes - others - 1) / (bytes - others));
    return fmt::format(
        "Even one row with --recompute full needs {}: use a smaller --block_size or a smaller model.",
        bytes_text(plan.total));
}

}  // namespace drover
