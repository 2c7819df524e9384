#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convert/tensor_source.h"
#include "io/gguf_header.h"
#include "io/torch_archive.h"

namespace drover {

/// Part of a tensor of the source, seen as a matrix, and where it goes in one that is written.
struct Block {
    static constexpr std::size_t zeros = SIZE_MAX;  ///< in place of an item: elements that no source has

    std::size_t item = 0;
    std::int64_t row_begin = 0, row_count = 0, column_begin = 0, column_count = 0;  ///< in the source
    std::int64_t row_step = 1;  ///< between rows that are taken
    bool transposed = false;    ///< its columns become rows
    std::int64_t to_row = 0, to_column = 0;

    std::int64_t rows_written() const { return transposed ? column_count : row_count; }
    std::int64_t columns_written() const { return transposed ? row_count : column_count; }
};

/// A tensor to write; its blocks fill it.
struct PlannedTensor {
    std::string name;
    DType dtype;
    std::vector<std::int64_t> shape;
    std::vector<Block> blocks;
    bool is_q8_0 = false;  ///< written in GGUF's Q8_0; `dtype` is then float32

    TensorSource::Item as_item() const { return {name, dtype, shape}; }
    std::uint64_t bytes() const;  ///< in the file
};

/// A file to write. Where everything goes is known.
struct PlannedFile {
    std::string path;  ///< below the output folder
    std::uint64_t size = 0;
    std::vector<PlannedTensor> tensors;
    std::vector<std::uint64_t> offsets;   ///< of the tensors
    std::string header;                   ///< of a safetensors or GGUF file
    std::optional<TorchArchive> archive;  ///< of a file of torch.save
};

struct ConversionPlan {
    std::vector<PlannedFile> files;
    std::map<std::string, std::string> texts;  ///< small files by name, which may have a folder
    /// The folder, below the output folder, that gets all of these and is a checkpoint of ours: then its
    /// drover_state.json, with `run_state` and the digests of the others, is written last.
    std::string checkpoint{};
    std::string run_state{};  ///< JSON

    std::uint64_t bytes() const;
    /// Adds the file of a rank, or with `xser` the files.
    void add_rank(const std::string& path, std::vector<PlannedTensor> tensors, bool xser);
};

/// Gives floating tensors another type, if there is one.
void set_floating_dtype(std::vector<PlannedTensor>& tensors, std::optional<DType> dtype);

/// A safetensors file.
PlannedFile safetensors_file(std::string path, std::vector<PlannedTensor> tensors);
/// A GGUF file. `tensors` are those of the header from the one with index `first` on.
PlannedFile gguf_file(std::string path, const GgufHeader& header, std::size_t first,
                      std::vector<PlannedTensor> tensors);
/// A dict of tensors in a file of torch.save.
PlannedFile torch_file(std::string path, std::vector<PlannedTensor> tensors);
/// The same as torch_xla saves it: a dict of references, a file per tensor, and one with their types and
/// shapes.
std::vector<PlannedFile> xser_files(const std::string& path, std::vector<PlannedTensor> tensors);
/// A file with any value, whose pickle has the tensors in this order; with `xser` it refers to them by
/// number, and each has a file of its own.
std::vector<PlannedFile> nested_files(const std::string& path, const PickleWriter& pickle,
                                      std::vector<PlannedTensor> tensors, bool xser);

/// Makes a tensor of parts that follow each other along one dimension.
class TensorBuilder {
  public:
    TensorBuilder(std::string name, DType dtype) : tensor_{std::move(name), dtype, {}, {}} {}
    /// Of blocks that are placed already.
    explicit TensorBuilder(PlannedTensor tensor) : tensor_(std::move(tensor)) {}

    /// Elements [begin, begin + count) of the outermost dimension of a vector or matrix, behind what is
    /// there.
    void append_rows(std::size_t item, const TensorSource::Item& from, std::int64_t begin,
                     std::int64_t count);
    /// The same of the innermost dimension of a matrix.
    void append_columns(std::size_t item, const TensorSource::Item& from, std::int64_t begin,
                        std::int64_t count);
    /// A block of a matrix, behind what is there along the rows.
    void append_block(std::size_t item, std::int64_t row_begin, std::int64_t row_count,
                      std::int64_t column_begin, std::int64_t column_count);
    /// Zeros, behind what is there: rows of the width of `like` (or elements, if it is a vector), or columns.
    void append_zero_rows(const TensorSource::Item& like, std::int64_t count);
    void append_zero_columns(const TensorSource::Item& like, std::int64_t count);
    /// Every second row of a matrix from `row_begin` on, behind what is there.
    void append_every_second_row(std::size_t item, const TensorSource::Item& from, std::int64_t row_begin,
                                 std::int64_t row_count);
    /// A tensor of any shape as it is.
    void whole(std::size_t item, const TensorSource::Item& from);

    const PlannedTensor& tensor() const { return tensor_; }

  private:
    PlannedTensor tensor_;
};

}  // namespace drover
