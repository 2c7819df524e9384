#pragma once

#include <map>
#include <memory>

#include "convert/training_checkpoint.h"

namespace drover {

/// A checkpoint of DeepSpeed's ZeRO, stages 1 to 3 with data parallelism: the folder that `latest` lies in,
/// or global_stepN inside it. Every rank has a part of the float32 master copies and of the optimizer's
/// states, as vectors in which one weight follows the other; the model's files say which.
class ZeroCheckpoint : public TensorSource {
  public:
    static bool is_one(const std::filesystem::path& folder);
    /// Error when ranks are missing, or the vectors do not have the sizes that the weights need.
    explicit ZeroCheckpoint(const std::filesystem::path& folder);
    ~ZeroCheckpoint() override;

    /// The weights of the full model, those that were trained in float32.
    std::vector<PlannedTensor> tensors() const;
    /// Of those that were trained: "exp_avg/<weight>", "exp_avg_sq/<weight>".
    std::vector<PlannedTensor> states() const;
    /// Error when ranks do not agree.
    OptimizerFacts optimizer() const;
    /// Updates of the run, those that were skipped included.
    std::int64_t step() const { return step_; }

    StridedTensor view(std::size_t item) const override;
    void forget() const override;
    std::vector<std::filesystem::path> files() const override;

  private:
    struct Vector;
    struct Rank;

    void find_files(const std::filesystem::path& folder);
    void read_rank(const std::filesystem::path& file);
    void read_models();
    void join_groups();
    void join_partitions();
    void add_untrained();
    void append(PlannedTensor& tensor, const std::vector<Vector>& vectors, std::int64_t begin,
                std::int64_t count);
    std::size_t add_part(const Vector& vector, std::int64_t begin, std::int64_t rows, std::int64_t columns);
    void add_whole(const std::string& name, const PickleValue& value, const std::filesystem::path& file);
    std::int64_t world() const;

    std::filesystem::path folder_;
    std::map<std::int64_t, std::filesystem::path> optimizer_files_;  ///< by rank
    std::vector<std::unique_ptr<TorchFile>> opened_;
    std::vector<Rank> ranks_;
    std::vector<const TorchFile*> models_;  ///< of the first rank, or with stage 3 of all
    bool is_partitioned_ = false;           ///< stage 3: every weight is cut, and not the whole group
    std::int64_t step_ = 0;
    std::map<std::string, std::vector<PlannedTensor>> by_kind_;  ///< "" for the weights
    std::vector<StridedTensor> views_;                           ///< by item
};

}  // namespace drover
