#pragma once

#include "convert/conversion_plan.h"
#include "core/json.h"
#include "io/torch_weights.h"

namespace drover {

/// A model as Meta publishes it: params.json and consolidated.00.pth, consolidated.01.pth, … with a part of
/// every matrix each.
class MetaCheckpoint : public TensorSource {
  public:
    static constexpr std::string_view params_file = "params.json";

    /// Whether a folder looks like one.
    static bool is_one(const std::filesystem::path& folder);
    /// Error when a part is missing, parts do not fit together, or params.json does not fit.
    explicit MetaCheckpoint(const std::filesystem::path& folder);

    /// The tensors of the full model under Hugging Face's names, with the rows of q and k in its order.
    std::vector<PlannedTensor> tensors() const;
    /// Its config.json. What params.json does not say (positions, the scaling factor) is that of the
    /// published model with these parameters.
    Json config() const;

    StridedTensor view(std::size_t item) const override;
    void verify(std::size_t item) const override;
    void forget() const override;
    std::vector<std::filesystem::path> files() const override;

  private:
    std::int64_t parameter(const char* key) const;
    double number(const char* key, double fallback) const;
    std::int64_t key_value_heads() const;
    void join(const std::string& name, const std::vector<std::size_t>& parts,
              std::vector<PlannedTensor>& joined) const;
    PlannedTensor join_heads(std::string name, const std::vector<std::size_t>& parts,
                             std::int64_t heads) const;

    std::filesystem::path folder_;
    Json params_;
    std::vector<TorchWeights> parts_;
    std::vector<std::size_t> part_of_;                         ///< by item
    std::map<std::string, std::vector<std::size_t>> by_name_;  ///< items, part by part
};

}  // namespace drover
