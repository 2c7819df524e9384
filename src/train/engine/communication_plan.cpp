#include "train/engine/communication_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "comm/collectives.h"
#include "core/arena.h"
#include "model/params.h"
#include "optim/statistics_groups.h"

namespace drover {
namespace {

/// Walks through an update as the store, the model and the engine do, and counts instead of sending.
class CommunicationCount {
  public:
    CommunicationCount(const ModelConfig& config, const TrainEngineOptions& options, const Mesh& mesh,
                       const ParamStore& store, Device device, std::int64_t micro_batches)
        : config_(config),
          options_(options),
          mesh_(mesh),
          store_(store),
          device_(device),
          micro_batches_(micro_batches),
          parallel_(mesh.tp(), options.sequence_parallel),
          shape_(BlockShape::make(config, options.model.moe_mode, parallel_, options.model.rows,
                                  options.model.row_length)),
          sharded_(options.sharding != Sharding::replicated && mesh.data().size() > 1),
          placement_(place_parameters(store.spec(), mesh, sharded_)) {}

    std::vector<PlannedCollective> count() {
        for (std::int64_t i = 0; i < micro_batches_; ++i) tensor_parallel_seams();
        gradients();
        if (sharded_) weights();
        small_sums();
        return std::move(planned_);
    }

  private:
    void add(const Communicator& axis, CollectiveKind kind, std::int64_t count, DType dtype,
             std::int64_t times = 1) {
        if (axis.size() == 1 || times == 0) return;
        const auto same = [&](const PlannedCollective& known) {
            return known.axis == axis.axis() && known.kind == kind;
        };
        auto found = std::find_if(planned_.begin(), planned_.end(), same);
        if (found == planned_.end())
            found = planned_.insert(planned_.end(), {.axis = axis.axis(), .kind = kind});
        found->calls += times;
        found->bytes +=
            static_cast<std::size_t>(times) * sent_bytes(kind, count, dtype, axis.size(), axis.rank());
    }

    // ---------------------------------------------------------------------------- one micro-batch over tp

    void enter(DType dtype) {
        if (parallel_.splits_tokens())
            add(mesh_.tp(), CollectiveKind::all_gather, shape_.tokens * shape_.hidden, dtype);
    }
    void leave(DType dtype) {
        add(mesh_.tp(),
            parallel_.splits_tokens() ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
            shape_.tokens * shape_.hidden, dtype);
    }

    void tensor_parallel_seams() {
        const DType compute = options_.model.precision.parameters,
                    residual = options_.model.precision.residual;
        leave(parallel_.splits_tokens() ? compute : residual);  // embedding
        for (std::int64_t block = 0; block < config_.num_hidden_layers; ++block) {
            const Recompute policy = options_.model.recompute.of_block(block);
            const bool attention_again = policy == Recompute::full,
                       mlp_again = policy == Recompute::full || policy == Recompute::selective_mlp;
            // Forward and backward have two branches each; backward needs a branch's input and its gradient.
            for (int i = 0; i < 2 + 4 + (attention_again ? 1 : 0) + (mlp_again ? 1 : 0); ++i) enter(compute);
            for (int i = 0; i < 2 + 2 + (attention_again ? 1 : 0); ++i) leave(compute);
            if (config_.has_experts())
                add(mesh_.tp(), CollectiveKind::all_reduce, shape_.tokens * shape_.slots, DType::f32);
        }
        enter(compute);  // head
        head_statistics();
        leave(compute);
        enter(residual);  // embedding's gradient
    }

    void head_statistics() {
        const std::int64_t vocabulary = part_size(config_.vocab_size, mesh_.tp().size());
        const std::int64_t chunk = HeadBuffers::chunk_rows(shape_.tokens, vocabulary, device_);
        for (std::int64_t begin = 0; begin < shape_.tokens; begin += chunk) {
            const std::int64_t rows = std::min(chunk, shape_.tokens - begin);
            add(mesh_.tp(), CollectiveKind::all_reduce, rows, DType::f32,
                options_.model.label_smoothing > 0 ? 4 : 3);
            add(mesh_.tp(), CollectiveKind::all_reduce, rows, DType::i32);
        }
    }

    // ------------------------------------------------------------------------------------ the store's part

    std::int64_t elements(const LeafPlacement& leaf) const { return leaf.rows.count * leaf.columns.count; }
    /// As it travels over the data axis: equal shards.
    std::int64_t padded_elements(const LeafPlacement& leaf) const {
        return leaf.shard_rows * mesh_.data().size() * leaf.columns.count;
    }

    void gradients() {
        const DType dtype = options_.model.precision.gradients;
        const bool every_micro_batch = sharded_ && options_.sharding != Sharding::zero1;
        const std::int64_t times = every_micro_batch ? micro_batches_ : 1;
        for (const UnitPlacement& unit : placement_)
            for (const StoragePlacement& storage : unit.storages) {
                for (const LeafPlacement& leaf : storage.leaves) {
                    if (parallel_.splits_tokens() && leaf.spec->gradient_over_held_tokens)
                        add(mesh_.tp(), CollectiveKind::all_reduce, elements(leaf), dtype, times);
                    if (leaf.has_copies)
                        add(mesh_.key_value_copies(), CollectiveKind::all_reduce, elements(leaf), dtype,
                            times);
                    if (!sharded_) continue;
                    add(mesh_.data(), CollectiveKind::reduce_scatter, padded_elements(leaf), dtype, times);
                    add(mesh_.dcn(), CollectiveKind::all_reduce, leaf.owned.count * leaf.columns.count,
                        dtype);
                }
                if (!sharded_ && storage.present())
                    add(mesh_.replicas(), CollectiveKind::all_reduce, storage.shape.numel(), dtype);
            }
    }

    /// How often each unit is gathered: ZeRO-1 and -2 once per update; ZeRO-3 whenever another block took its
    /// buffer.
    void weights() {
        const auto units = static_cast<std::int64_t>(placement_.size()), blocks = units - 2;
        if (options_.sharding != Sharding::zero3) {
            for (std::int64_t unit = 0; unit < units; ++unit) gather(unit);
            return;
        }
        gather(0);
        gather(units - 1);
        std::array<std::int64_t, 2> buffers{-1, -1};
        const auto need = [&](std::int64_t block) {
            if (std::int64_t& held = buffers[static_cast<std::size_t>(block % 2)]; held != block) {
                held = block;
                gather(1 + block);
            }
        };
        for (std::int64_t i = 0; i < micro_batches_; ++i) {
            for (std::int64_t block = 0; block < blocks; ++block) need(block);
            for (std::int64_t block = blocks - 1; block >= 0; --block) need(block);
        }
    }

    void gather(std::int64_t unit) {
        for (const StoragePlacement& storage : placement_[static_cast<std::size_t>(unit)].storages)
            for (const LeafPlacement& leaf : storage.leaves)
                add(mesh_.data(), CollectiveKind::all_gather, padded_elements(leaf),
                    options_.model.precision.parameters);
    }

    // ------------------------------------------------------------------------------------------ numbers

    void small_sums() {
        const auto sum = [&](const Communicator& axis, std::int64_t count, DType dtype,
                             std::int64_t times = 1) {
            add(axis, CollectiveKind::all_reduce, count, dtype, times);
        };
        if (!takes_means_of_batches(options_))
            sum(mesh_.replicas(), 1, DType::i64);  // targets of the step
        else if (options_.shared_batches)
            sum(mesh_.replicas(), 1, DType::i64, micro_batches_);  // targets of a batch
        if (config_.moe.jitter > 0 || options_.model.neftune_alpha > 0)
            sum(mesh_.replicas(), mesh_.replicas().size(), DType::i64, micro_batches_);
        if (config_.has_experts() && config_.moe.balance_loss && options_.model.label_smoothing == 0) {
            sum(mesh_.replicas(), config_.moe.chosen * config_.moe.experts, DType::f64, micro_batches_);
            sum(mesh_.replicas(), config_.moe.experts, DType::f64, micro_batches_);
        }
        sum(mesh_.replicas(), 1, DType::f64);                                                 // loss
        sum(mesh_.everyone(), static_cast<std::int64_t>(store_.owned().size()), DType::f64);  // gradient norm
        if (options_.optimizer.name == "adafactor") adafactor();
    }

    void adafactor() {
        const StatisticsGroups groups(store_.owned());
        std::int64_t statistics = 0;
        for (const FactoredMatrix& matrix : groups.matrices) statistics += matrix.rows + matrix.columns;
        for (const Communicator* axis : {&mesh_.replicas(), &mesh_.tp()}) {
            add(*axis, CollectiveKind::all_reduce, statistics, DType::f32);
            add(*axis, CollectiveKind::all_reduce, static_cast<std::int64_t>(groups.clip_elements.size()),
                DType::f64);
        }
    }

    const ModelConfig& config_;
    const TrainEngineOptions& options_;
    const Mesh& mesh_;
    const ParamStore& store_;
    Device device_;
    std::int64_t micro_batches_;
    TensorParallel parallel_;
    BlockShape shape_;
    bool sharded_;
    std::vector<UnitPlacement> placement_;
    std::vector<PlannedCollective> planned_;
};

}  // namespace

std::vector<PlannedCollective> plan_communication(const ModelConfig& config,
                                                  const TrainEngineOptions& options, const Mesh& mesh,
                                                  const ParamStore& store, Device device,
                                                  std::int64_t micro_batches) {
    return CommunicationCount(config, options, mesh, store, device, micro_batches).count();
}

std::string communication_table(const std::vector<PlannedCollective>& plan) {
    std::string text = fmt::format("Sent by this rank in every update:\n  {:<18}{:<16}{:>10}{:>14}\n", "axis",
                                   "collective", "calls", "bytes");
    std::size_t total = 0;
    for (const PlannedCollective& planned : plan) {
        text += fmt::format("  {:<18}{:<16}{:>10}{:>14}\n", planned.axis, name_of(planned.kind),
                            planned.calls, bytes_text(planned.bytes));
        total += planned.bytes;
    }
    return text + fmt::format("  {:<44}{:>14}", "all", bytes_text(total));
}

}  // namespace drover
