#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "run/training_run.h"

namespace drover::v1 {

/// A model's weights as a Trainer has left them. They are the engine's own while the Trainer lives, and a
/// copy on the host afterwards, if somebody still has the model.
class TrainedWeights {
  public:
    /// Those of a run that is prepared.
    static std::shared_ptr<TrainedWeights> of(const TrainingRun& run);
    /// `config` is the trained model's; a text ends with any of `ends`. Engine, backend and mesh live until
    /// keep_copy() or let_go().
    TrainedWeights(const TrainEngine& engine, Backend& backend, const Mesh& mesh, ModelConfig config,
                   std::vector<std::int32_t> ends);

    const ModelConfig& config() const { return config_; }
    const std::vector<std::int32_t>& ends() const { return ends_; }
    /// No process has all of them: whole_leaf() is a collective then.
    bool are_spread() const { return spread_ && engine_ != nullptr; }
    /// Error when they went with their Trainer.
    void check_there() const;
    /// A leaf by its published name, in fp32.
    std::vector<float> whole_leaf(const std::string& name) const;

    /// The run is about to go. Whoever still has the model keeps its trained weights, as a copy on the host,
    /// where there is room for it beside the engine.
    void leave_engine(const TrainingRun& run, bool is_used);

  private:
    /// Of a copy, which has the dtype in which they would be saved.
    std::size_t copy_bytes() const;
    void keep_copy();
    void let_go();

    const TrainEngine* engine_;
    Backend* backend_;
    const Mesh* mesh_;
    ModelConfig config_;
    std::vector<std::int32_t> ends_;
    bool spread_;
    DType dtype_;
    std::map<std::string, std::size_t, std::less<>> index_of_;         // into the engine's owned leaves
    std::map<std::string, std::vector<std::byte>, std::less<>> kept_;  // of dtype_
};

/// How a run reads a model that was trained before, from the Trainer that has it or the copy that it left;
/// empty where `trained` is null. Collective: Error when its weights are gone, or have another shape by now.
TrainingRun::ReadWeight weights_in_memory(std::shared_ptr<const TrainedWeights> trained,
                                          const TrainingRun& run);

}  // namespace drover::v1
