#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "run/training_run.h"

namespace drover::v1 {

/// A model's weights after a Trainer has trained it. They are the engine's own while the Trainer lives, and
/// afterwards a copy on the host if the model is still in use.
class TrainedWeights {
  public:
    /// The weights of a prepared run.
    static std::shared_ptr<TrainedWeights> of(const TrainingRun& run);
    /// `config` is the trained model's; any of `ends` ends a text. Engine, backend and mesh must live until
    /// keep_copy() or let_go().
    TrainedWeights(const TrainEngine& engine, Backend& backend, const Mesh& mesh, ModelConfig config,
                   std::vector<std::int32_t> ends);

    const ModelConfig& config() const { return config_; }
    const std::vector<std::int32_t>& ends() const { return ends_; }
    /// Whether no process has all of them; whole_leaf() is then collective.
    bool are_spread() const { return spread_ && engine_ != nullptr; }
    /// Error if they were lost with their Trainer.
    void check_there() const;
    /// A leaf by its published name, in fp32.
    std::vector<float> whole_leaf(const std::string& name) const;

    /// Called before the run is destroyed. If the model is still in use, its trained weights are copied to
    /// the host, provided there is room for them beside the engine.
    void leave_engine(const TrainingRun& run, bool is_used);

  private:
    /// The size of a copy, which has the dtype in which the weights would be saved.
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

/// Lets a run read a model that was trained before, from the Trainer that holds it or the copy it left; empty
/// if `trained` is null. Collective: Error if its weights are gone, or their shape has changed.
TrainingRun::ReadWeight weights_in_memory(std::shared_ptr<const TrainedWeights> trained,
                                          const TrainingRun& run);

}  // namespace drover::v1
