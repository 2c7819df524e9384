#pragma once

#include <map>
#include <memory>

#include "convert/training_checkpoint.h"
#include "core/mapped_file.h"

namespace drover {

/// A folder of torch.distributed.checkpoint, as FSDP's sharded_state_dict is saved: .metadata says which
/// chunk of which tensor is where in the .distcp files.
class DcpCheckpoint : public TensorSource {
  public:
    static constexpr std::string_view metadata_file = ".metadata";

    static bool is_one(const std::filesystem::path& folder);
    /// Of the tensors, those of the model: all names that begin with `key` and a dot, without these, if there
    /// are any that are then names of a model; otherwise all names but those of an optimizer. With
    /// `optimizer` also the states of one: "optimizer.state.<weight>.exp_avg", or "optim." in its place.
    /// Error when chunks are missing, or do not make their tensors.
    DcpCheckpoint(const std::filesystem::path& folder, std::string_view key, bool optimizer = false);
    ~DcpCheckpoint() override;

    /// The tensors of the full model, under the names of the model. Error when there are none.
    std::vector<PlannedTensor> tensors() const;
    /// "exp_avg/<weight>", "exp_avg_sq/<weight>"; empty if there are none.
    std::vector<PlannedTensor> states() const;
    /// Error when parameters do not agree, or there is no optimizer.
    OptimizerFacts optimizer() const;

    StridedTensor view(std::size_t item) const override;
    void forget() const override;
    std::vector<std::filesystem::path> files() const override;

  private:
    struct Chunk;
    struct Entry;
    void read_metadata(const PickleValue& metadata, bool optimizer);
    void add_tensor(const std::string& name, const std::string& published, const PickleValue& description,
                    std::vector<Entry>& entries);
    std::vector<PlannedTensor> joined(const std::vector<Entry>& entries) const;
    std::string name_in_model(std::string_view name) const;

    std::filesystem::path folder_;
    std::string prefix_;
    std::vector<Entry> entries_;  ///< of the model
    std::map<std::string, std::vector<Entry>>
        states_;                 ///< of the optimizer, by kind, under the model's names
    std::vector<Chunk> chunks_;  ///< by item
    std::map<std::string, MappedFile> data_files_;
    mutable std::map<std::size_t, std::unique_ptr<TorchPickle>> open_;  ///< chunks in use, by item
    std::map<std::pair<std::string, std::vector<std::int64_t>>, Chunk>
        places_;  ///< while the metadata is read
};

}  // namespace drover
