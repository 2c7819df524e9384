#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/model_folder.h"
#include "model/config.h"
#include "peft/target_modules.h"

namespace drover {

inline constexpr std::string_view adapter_weights_file = "adapter_model.safetensors";
inline constexpr std::string_view adapter_pickle_file = "adapter_model.bin";

/// The name of a model's or an adapter's leaf in an adapter's file.
std::string name_in_adapter_file(std::string_view leaf);

/// An adapter that was saved by PEFT or here, and the model it belongs to. Files are mapped; elements are
/// read when they are needed.
class AdapterWeights {
  public:
    /// Error when the folder has no adapter, it does not fit the model, or a tensor is missing, has another
    /// shape, belongs to nothing, or holds numbers that are not finite.
    AdapterWeights(const std::filesystem::path& folder, const ModelConfig& model,
                   const PeftWarning& warn = {});

    const std::filesystem::path& folder() const { return folder_; }
    const std::filesystem::path& file() const { return weights_->files().front().path(); }
    const ResolvedAdapter& resolved() const { return resolved_; }

    /// Whether it changes a leaf of the model.
    bool changes(std::string_view leaf) const { return changed_.contains(leaf); }
    std::vector<std::string> changed_leaves() const;
    /// Whether the embedding or the head is changed, so that they can no longer be one.
    bool changes_vocabulary() const { return changes(embedding_leaf) || changes(head_leaf); }
    /// The tensor of a leaf of the adapter (its name without PEFT's prefix), or of the model that it has
    /// whole; absent if there is none. Valid as long as this.
    Tensor find(std::string_view leaf) const;
    /// Makes of the base model's weight, packed, what the adapted model computes with: W + scale·B·A; with
    /// DoRA each row has its trained length; a module that was trained whole is replaced. In float32, every
    /// row alike for any number of threads.
    void merge(std::string_view leaf, const Shape& shape, std::span<float> weight) const;

  private:
    struct Matrix {
        std::int64_t rows = 0, columns = 0;
        std::vector<float> values;
    };
    /// Tensors that change one leaf; names in the file.
    struct Change {
        std::string replacement, a, b, magnitude;  ///< empty: none
        double scale = 1;
        /// Of fused experts: which expert of how many, and the first row of the fused B.
        std::int64_t expert = -1, experts = 0, first_row = 0;
        std::int64_t rank = 0;
        bool of_embedding = false;  ///< A and B adapt the weight's transpose
    };

    std::string where() const;
    void plan(const ModelConfig& model);
    void plan_leaf(const AdaptedWeight& weight, const Shape& shape);
    void plan_experts(const FusedExpertsAdapter& fused, const ModelConfig& model,
                      std::map<std::string, Shape>& shapes);
    void plan_replacements(const std::map<std::string, Shape>& shapes);
    void share_replacement();
    void use(const std::string& name, const std::vector<std::int64_t>& shape);
    bool has(const std::string& name) const { return weights_->entry(name) != nullptr; }
    void check_numbers(const std::string& name) const;
    Matrix read(const std::string& name) const;
    Matrix read_a(const Change& change) const;
    Matrix read_b(const Change& change, std::int64_t rows) const;

    std::filesystem::path folder_;
    PeftConfig config_;
    ResolvedAdapter resolved_;
    std::unique_ptr<ModelWeights> weights_;
    std::map<std::string, Change, std::less<>> changed_;  ///< by leaf
    std::set<std::string> used_;                          ///< names in the file
};

/// The configuration of a model with adapters merged into it: if one of them changes an embedding that is
/// also the head, or that head, these are weights of their own.
ModelConfig merged_config(ModelConfig base, std::span<const AdapterWeights> adapters);

/// A model's weights with adapters merged into them, one after the other.
class MergedWeights {
  public:
    /// `model` is the merged_config(). Error when a tensor of the model is missing. Adapters must outlive
    /// this.
    MergedWeights(const std::filesystem::path& base, const ModelConfig& model,
                  std::span<const AdapterWeights> adapters);

    /// How the base's tensors match the model's.
    const LoadReport& report() const { return report_; }
    /// The whole of a leaf of the model, in float32.
    std::vector<float> read(const std::string& leaf, const Shape& shape) const;

  private:
    ModelWeights base_;
    std::span<const AdapterWeights> adapters_;
    LoadReport report_;
};

}  // namespace drover
