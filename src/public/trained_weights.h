#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "run/training_run.h"

namespace drover::v1 {

/// A model's weights after a Trainer has trained it. They are the engine's own while the Trainer lives, and
/// afterwards a copy on the host if the model is still in use: of every process its part, if they are spread.
class TrainedWeights {
  public:
    /// The weights of a prepared run.
    static std::shared_ptr<TrainedWeights> of(const TrainingRun& run);
    /// Config and generation config are the trained model's, `adapters` what was trained if not all of it.
    /// Engine, backend and mesh must live until keep_copy() or let_go().
    TrainedWeights(const TrainEngine& engine, Backend& backend, const Mesh& mesh, ModelConfig config,
                   Json generation, Adapters adapters = {});

    const ModelConfig& config() const { return config_; }
    const Json& generation() const { return generation_; }
    /// In which they would be saved.
    DType dtype() const { return dtype_; }
    /// Whether no process has all of them; whole_leaf() is then collective.
    bool are_spread() const { return spread_; }
    /// Error if they were lost with their Trainer.
    void check_there() const;
    /// A leaf by its published name, in fp32, with what an adapter changes of it.
    std::vector<float> whole_leaf(const std::string& name) const;

    /// Called before the run is destroyed. If the model is still in use, its trained weights are copied to
    /// the host, provided there is room for them beside the engine.
    void leave_engine(const TrainingRun& run, bool is_used);

  private:
    /// A process's part of a leaf.
    struct Kept {
        LeafSpec spec;
        OwnedLeaf place;
        std::vector<std::byte> bytes;  ///< of dtype_; none if another process keeps this part
    };

    /// Whether this process reads a part of the leaf for all.
    bool contributes(const OwnedLeaf& leaf) const { return !spread_ || (leaf.counted && leaf.row_count > 0); }
    /// The size of a copy, which has the dtype in which the weights would be saved.
    std::size_t copy_bytes() const;
    void keep_copy();
    void let_go();
    /// A leaf as it is kept: an adapter's is apart.
    std::vector<float> kept_leaf(const std::string& name) const;

    const TrainEngine* engine_;
    Backend* backend_;
    const Mesh* mesh_;
    ModelConfig config_;
    Json generation_;
    Adapters adapters_;
    bool spread_;
    DType dtype_;
    std::map<std::string, Kept, std::less<>> kept_;
};

/// Lets a run read a model that was trained before, from the Trainer that holds it or the copy it left; empty
/// if `trained` is null. Collective: Error if its weights are gone, or their shape has changed.
TrainingRun::ReadWeight weights_in_memory(std::shared_ptr<const TrainedWeights> trained,
                                          const TrainingRun& run);

}  // namespace drover::v1
