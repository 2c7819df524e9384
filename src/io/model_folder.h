#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "io/weight_file.h"

namespace drover {

/// Whether this is a name directly in a folder, so that a list of files cannot make us read anything else.
bool is_plain_file_name(std::string_view name);
/// The same of a name that may be in a folder of that folder: "additional_chat_templates/tool_use.jinja".
bool is_plain_path(std::string_view path);

inline constexpr std::string_view single_weights_file = "model.safetensors";
inline constexpr std::string_view weights_index_file = "model.safetensors.index.json";
/// The same as torch.save writes them; used where there are no safetensors.
inline constexpr std::string_view single_pickle_file = "pytorch_model.bin";
inline constexpr std::string_view pickle_index_file = "pytorch_model.bin.index.json";

/// The weights of a Hugging Face model folder (model.safetensors, or model.safetensors.index.json and its
/// shards; else the same of pytorch_model.bin), or of a single file, by tensor name. Files are mapped:
/// opening reads only their headers. Experts that are stored fused appear under their published names
/// (fused_experts.h).
class ModelWeights {
  public:
    /// Error when there are no weights, a shard is missing, a tensor is in two shards or not in the shard
    /// that the index names, or the index names a file outside the folder. `key` as for TorchWeights.
    explicit ModelWeights(const std::filesystem::path& folder_or_file, std::string_view key = {});

    const std::filesystem::path& path() const { return path_; }
    const std::vector<WeightFile>& files() const { return files_; }

    /// The header's entry for a tensor; null when there is no such tensor.
    const SafetensorsEntry* entry(std::string_view name) const;
    /// The tensor as SafetensorsFile::tensor gives it; absent when there is no such tensor. Valid as long as
    /// this. A tensor of a pickle that is not packed is copied.
    Tensor find(std::string_view name) const;
    /// The elements of an existing tensor where they are.
    StridedTensor view(std::string_view name) const;
    /// Error when its file has a checksum of the tensor's elements that is wrong.
    void verify(std::string_view name) const;
    /// Lets the memory of elements that were read be used for something else; they are read again when
    /// needed.
    void forget() const;
    /// All names, sorted.
    std::vector<std::string> names() const;

  private:
    void open();
    void open_shards(const std::filesystem::path& index_path);
    void add_file(const std::filesystem::path& file);

    std::filesystem::path path_;
    std::vector<WeightFile> files_;
    std::string key_;
    struct Place {
        std::size_t file;  ///< index into files_
        SafetensorsEntry entry;
    };
    std::map<std::string, Place, std::less<>> entries_;  ///< by name
};

/// A tensor that a model wants to load.
struct ExpectedTensor {
    std::string name;
    Shape shape;
};

/// Differences in names between a model and a folder that are normal.
struct NameRules {
    /// lm_head.weight is the embedding: it need not be in the folder, and is not used when it is.
    bool tied_head = false;
    /// lm_head.weight starts as the folder's embedding; one that is in the folder is not used.
    bool head_from_embedding = false;
    /// Load what fits; tensors of another shape are reported and count as missing.
    bool ignore_mismatched_sizes = false;
};

/// How the tensors of a folder match those of a model.
struct LoadReport {
    struct Mismatch {
        std::string name;
        std::string folder_shape;
        std::string model_shape;
    };
    std::map<std::string, std::string> found;  ///< the model's name → the folder's name
    std::vector<std::string> missing;          ///< wanted, not in the folder
    std::vector<std::string> unexpected;       ///< in the folder, not wanted
    std::vector<Mismatch> mismatched;          ///< in both, with different shapes
    std::vector<std::string> ignored;          ///< in the folder, and unused by design

    /// A sentence for each kind that the user should know about; empty when there is none.
    std::string text() const;
};

/// Finds the tensors of a model in a folder. A folder without any "model." name was saved from the model
/// without its head; its names are taken as if they had that prefix. Error when shapes differ (listing every
/// one, unless the rules allow it) or when a tensor's elements are not floating-point numbers.
LoadReport match_names(const std::vector<ExpectedTensor>& expected, const ModelWeights& weights,
                       const NameRules& rules = {});

/// Copies rows [row_begin, row_begin + row_count) of the outermost dimension of `source` (any rank but 0)
/// into `destination`, converting between floating types (round to nearest even). `destination` is on the
/// CPU, has the same number of elements, and is packed or a matrix with a row stride. Parallel. The source
/// need not be aligned.
void read_rows(const Tensor& source, std::int64_t row_begin, std::int64_t row_count,
               const Tensor& destination);

/// The same for a block of a matrix: also only columns [column_begin, column_begin + column_count).
void read_block(const Tensor& source /*[R,C]*/, std::int64_t row_begin, std::int64_t row_count,
                std::int64_t column_begin, std::int64_t column_count,
                const Tensor& destination /*[row_count,column_count]*/);

/// A tensor to save, under its published name.
struct NamedTensor {
    std::string name;
    Tensor tensor;
};

struct SaveModelOptions {
    /// A file is closed before it would exceed this; a larger tensor gets a file of its own.
    std::uint64_t max_shard_bytes = 5'000'000'000;
    /// Text of generation_config.json; not written when empty.
    std::string generation_config_json = {};
};

/// Which tensors go into which file, and in which order the files are numbered: as Hugging Face does it.
struct ShardPlan {
    std::vector<std::string> file_names;
    std::vector<std::size_t> file_of;  ///< for each tensor, an index into file_names
};
ShardPlan plan_shards(const std::vector<std::uint64_t>& tensor_bytes, std::uint64_t max_shard_bytes);

/// Removes weight files of earlier saves from `folder` that are not among `saved`. Files that decide how a
/// folder is read (the single file, the index) are removed before the shards, so that the folder never loads
/// as something that was never saved.
void remove_stale_weights(const std::filesystem::path& folder, const std::set<std::string>& saved);

/// The name under which a model is staged (StagedFolder) before its files are moved into `folder`.
std::filesystem::path staging_of_model(const std::filesystem::path& folder);

/// Saves packed CPU tensors, given in module order, as a Hugging Face folder (created if missing): weights,
/// the index when there are several files, config.json (unless the text is empty) and generation_config.json.
/// All files are written whole beside their places, flushed and read back before the first is moved there, so
/// a full disk leaves an earlier save as it was; each move is atomic. Weight files of an earlier save that
/// are no longer part of it are then removed.
void save_model_folder(const std::filesystem::path& folder, std::string_view config_json,
                       const std::vector<NamedTensor>& tensors, const SaveModelOptions& options = {});

}  // namespace drover
