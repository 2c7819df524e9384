#pragma once

#include "io/model_folder.h"
#include "io/staged_folder.h"

namespace drover {

/// The planned safetensors files of a folder, which follow from names, dtypes and shapes alone, and this
/// rank's parts of them.
class TensorFiles {
  public:
    using Item = SafetensorsLayout::Item;

    struct File {
        std::string name;
        SafetensorsLayout layout;
    };
    /// Bytes of this rank: `source` is packed, on any device, and goes to `place`.
    struct Part {
        std::string file;
        RowsInFile place;
        Tensor source;
    };

    /// A model's weights in module order: model.safetensors, or shards and their index.
    void add_weights(const std::vector<Item>& items, std::uint64_t max_shard_bytes);
    void add_file(const std::string& name, std::vector<Item> items);

    /// This rank has all of an added tensor.
    void add_part(const std::string& tensor, const Tensor& source);
    /// It has a block of rows and columns of one that has `whole_columns` columns.
    void add_part(const std::string& tensor, const Tensor& source, std::int64_t row_begin,
                  std::int64_t row_count, std::int64_t column_begin, std::int64_t column_count,
                  std::int64_t whole_columns);

    const std::vector<File>& files() const { return files_; }
    /// Small files by name: the index.
    const std::map<std::string, std::string>& texts() const { return texts_; }
    const std::vector<Part>& parts() const { return parts_; }
    /// Of this rank's parts.
    std::uint64_t part_bytes() const;
    /// Of all files, of all writers.
    std::uint64_t file_bytes() const;

  private:
    std::vector<File> files_;
    std::map<std::string, std::string> texts_;
    std::map<std::string, std::size_t, std::less<>> file_of_;  ///< tensor → index into files_
    std::vector<Part> parts_;
};

/// The index of weights that are in several files, as Python's json.dumps(indent=2, sort_keys=True) writes
/// it.
std::string weights_index_text(const std::vector<TensorFiles::Item>& items, const ShardPlan& plan);

/// Makes the files in a staging folder that was created, with their headers and the texts.
void create_files(StagedFolder& folder, const TensorFiles& files);

}  // namespace drover
