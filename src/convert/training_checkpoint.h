#pragma once

#include <memory>
#include <optional>

#include "convert/conversion_plan.h"
#include "io/torch_pickle.h"

/// Checkpoints in the middle of another program's run: a model together with the state of its optimizer.
namespace drover {

struct ModelConfig;

/// The optimizer's state in a checkpoint of ours.
inline constexpr const char* optimizer_states_file = "optimizer.safetensors";

/// What an optimizer keeps apart from tensors.
struct OptimizerFacts {
    std::int64_t updates = 0;  ///< of its parameters ("step")
    std::string settings{};    ///< for people: "lr 0.01, betas 0.9 and 0.999"; empty: unknown
};

/// The full model and the state of its optimizer as blocks of one source's tensors, whatever mesh wrote them.
struct TrainingCheckpoint {
    std::unique_ptr<TensorSource> source;
    std::vector<PlannedTensor> weights;  ///< under the model's names; the master copies, where it keeps some
    std::vector<PlannedTensor> states;   ///< "exp_avg/<weight>", "exp_avg_sq/<weight>", …
    OptimizerFacts optimizer;
    /// Of the run, updates that were skipped included; absent: it is not said.
    std::optional<std::int64_t> step{};
};

/// The weights and optimizer.safetensors of a checkpoint of ours. Error when a weight or a state that a model
/// with this config has is missing, or has another shape. `where` names the other checkpoint.
ConversionPlan plan_resumable(const TrainingCheckpoint& checkpoint, const ModelConfig& config,
                              std::uint64_t max_shard_bytes, const std::string& where);

/// Tensors of transformers 5.x that hold all experts of a layer, as the experts' own under their published
/// names.
std::vector<PlannedTensor> with_published_experts(std::vector<PlannedTensor> tensors);

/// The tensors of a kind of state, under the names that optimizer.safetensors has: "<kind>/<weight>".
std::vector<PlannedTensor> named_states(std::string_view kind, std::vector<PlannedTensor> tensors);

/// Collects the steps of an optimizer's parameters, which must be one number.
class CommonStep {
  public:
    /// `where` names the checkpoint.
    explicit CommonStep(std::string where) : where_(std::move(where)) {}

    /// Error when it is no count, or another than before.
    void add(double step, std::string_view parameter);
    /// Error when none was added.
    std::int64_t value() const;

  private:
    std::string where_, first_;
    std::int64_t step_ = -1;
};

/// The settings of a list of param_groups, for people; those of the first group that has them.
std::string settings_of_groups(const PickleValue& groups);

/// Several sources as one: the items of the second come behind those of the first.
class JoinedSource : public TensorSource {
  public:
    /// Adds a source; the tensors that it has move behind by the returned number of items.
    std::size_t add(std::unique_ptr<TensorSource> source);

    StridedTensor view(std::size_t item) const override;
    void verify(std::size_t item) const override;
    void forget() const override;
    std::vector<std::filesystem::path> files() const override;

  private:
    std::vector<std::unique_ptr<TensorSource>> sources_;
    std::vector<std::pair<std::size_t, std::size_t>> places_;  ///< source and its item, by item
};

/// The blocks' items moved behind by `items`.
std::vector<PlannedTensor> moved_behind(std::vector<PlannedTensor> tensors, std::size_t items);

}  // namespace drover
