#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend/scope.h"
#include "model/causal_lm.h"
#include "parallel/mesh.h"
#include "train/engine/action_log.h"
#include "train/engine/pipeline_plan.h"

namespace drover {

/// What the engine contributes to a step, micro-batch by micro-batch.
struct StepWork {
    int micro_batches = 0;
    std::function<std::int64_t(int micro_batch)> tokens;
    /// Uploads one; called once for each, in order.
    std::function<DeviceBatch(int micro_batch)> upload;
    /// Called before the head computes the loss of one, and afterwards, when the model's loss() is there.
    /// Only on ranks with the head.
    std::function<void(int micro_batch)> before_head = [](int) {};
    std::function<void(int micro_batch)> after_head;
    Tensor loss_scale{};  ///< [1] f32 on the device, as before_head() has set it
    double balance_scale = 0;
    /// Whether the operations of a micro-batch may be recorded and replayed.
    std::function<bool(const DeviceBatch& batch)> is_recorded = [](const DeviceBatch&) { return false; };
    CausalLm::Watch watch{};
};

/// Computes the micro-batches of a step on one rank in the order of a schedule, and moves what the pipeline's
/// ranks send each other. Without a pipeline the schedule is forward and backward by turns.
class StepExecutor {
  public:
    /// All references must outlive the executor.
    StepExecutor(CausalLm& model, PipelinePlan& plan, Backend& backend, const Mesh& mesh);

    /// Takes the buffers of messages from the arena, for micro-batches of at most `held` tokens on this rank.
    void plan(Arena& arena, DType residual, std::int64_t held);

    /// Adds the gradients of all micro-batches to the store.
    void train(Stream stream, const StepWork& work);
    /// Forward only.
    void evaluate(Stream stream, const StepWork& work);

    const Recorder& recorder() const { return *recorder_; }
    /// Computations are logged there from now on, and not recorded; null: no longer.
    void observe(ActionLog* log) { log_ = log; }
    bool is_observed() const { return log_ != nullptr; }

  private:
    /// A stage and a micro-batch.
    using Key = std::pair<int, int>;

    /// A message: a residual stream or its gradient, and with experts the numbers of the balance loss.
    struct Message {
        Tensor residual;  ///< [held,H]
        Tensor balance;  ///< [(k + 1)·E] f64 with activations, [E] f32 with gradients; absent without experts
        std::vector<Pending> pending{};
    };
    /// Messages of one kind.
    struct Messages {
        std::vector<Message> outgoing;
        std::size_t next_outgoing = 0;
        std::vector<Message> incoming;
        std::vector<std::size_t> free;      // of `incoming`
        std::map<Key, std::size_t> unread;  // which of `incoming`
    };

    void run(Stream stream, const StepWork& work, const std::vector<PipelineAction>& actions, bool trains);
    /// The computation begins here: for the log and for profiles.
    void begin(Stream stream, const PipelineAction& action, std::optional<Scope>& scope, bool trains = true);
    void forward(Stream stream, const StepWork& work, const PipelineAction& action, bool trains);
    void backward(Stream stream, const StepWork& work, const PipelineAction& action);
    void forward_and_backward(Stream stream, const StepWork& work, const PipelineAction& forward,
                              const PipelineAction& backward);
    void gather_for_next(Stream stream, const std::vector<PipelineAction>& actions, std::size_t index);
    void send(Stream stream, const StepWork& work, const PipelineAction& action);
    void receive(Stream stream, const StepWork& work, const PipelineAction& action);

    void plan_messages(Arena& arena, Messages& messages, int incoming, const Shape& residual, DType dtype,
                       DType balance_dtype, std::int64_t balance);
    /// The tensors of a message that this micro-batch fills.
    Message part_of(const Message& message, const StepWork& work, int micro_batch) const;
    Message& read(Stream stream, Messages& messages, const PipelineAction& action);
    void free(Messages& messages, const PipelineAction& action);

    const DeviceBatch& batch(int micro_batch) const {
        return batches_[static_cast<std::size_t>(micro_batch)];
    }
    ChunkRun run_of(const PipelineAction& action) const;
    bool is_last_stage(int stage) const { return stage == plan_.ranks() * plan_.chunks() - 1; }

    CausalLm& model_;
    PipelinePlan& plan_;
    Backend& backend_;
    const Mesh& mesh_;
    std::unique_ptr<Recorder> recorder_;
    ActionLog* log_ = nullptr;
    Messages activations_, gradients_;
    std::vector<DeviceBatch> batches_;  // of the running step
};

}  // namespace drover
