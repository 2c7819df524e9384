#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/model_folder.h"
#include "io/strided_tensor.h"

namespace drover {

struct PickleTensor;

/// The tensors of a checkpoint that is converted.
class TensorSource {
  public:
    struct Item {
        std::string name;
        DType dtype;
        std::vector<std::int64_t> shape;

        /// As a matrix whose columns are the innermost dimension; a vector is one row.
        std::int64_t rows() const;
        std::int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
    };

    virtual ~TensorSource() = default;

    /// Names need not be unique: every rank of a sharded checkpoint has its own.
    const std::vector<Item>& items() const { return items_; }
    /// The elements of an item; valid until forget().
    virtual StridedTensor view(std::size_t item) const = 0;
    /// Gives back the memory that views took.
    virtual void forget() const = 0;
    /// Everything that is read, to recognise the same input.
    virtual std::vector<std::filesystem::path> files() const = 0;

  protected:
    /// Returns its index. Error when the type is not one that can be converted.
    std::size_t add_item(std::string name, FileDType dtype, std::vector<std::int64_t> shape,
                         const std::filesystem::path& file);
    /// One that another source has.
    void add_item(Item item) { items_.push_back(std::move(item)); }

  private:
    std::vector<Item> items_;
};

/// A checkpoint with whole tensors: a model folder, or a file of safetensors or torch.save.
class FullCheckpoint : public TensorSource {
  public:
    /// The tensors are in the order of a model's modules. `key` as for TorchWeights.
    FullCheckpoint(const std::filesystem::path& folder_or_file, std::string_view key);

    StridedTensor view(std::size_t item) const override { return weights_.view(items()[item].name); }
    void forget() const override { weights_.forget(); }
    std::vector<std::filesystem::path> files() const override;

  private:
    ModelWeights weights_;
};

/// The elements of a tensor of a torch.save file.
StridedTensor strided_view(const PickleTensor& tensor);

/// The number of layer in "model.layers.3.mlp.down_proj.weight"; −1 when the name has none.
std::int64_t layer_of(std::string_view name);

/// That of the expert in "model.layers.3.block_sparse_moe.experts.7.w1.weight"; −1 when the name has none.
std::int64_t expert_of(std::string_view name);

/// Whether a tensor comes before another in a model: embedding, layers by number, norm, head.
bool comes_before(std::string_view a, std::string_view b);

/// Layers by names; Error when one between the first and the last is missing. `where` names the checkpoint.
std::int64_t count_layers(const std::vector<std::string>& names, std::string_view where);

}  // namespace drover
