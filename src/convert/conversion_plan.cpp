#include "convert/conversion_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"

namespace drover {
namespace {

/// The tensors' blocks lie inside them, and have as many elements. Two blocks that overlap would leave a
/// hole.
void check_filled(const PlannedTensor& tensor) {
    const TensorSource::Item item = tensor.as_item();
    std::int64_t filled = 0;
    for (const Block& block : tensor.blocks) {
        require(block.to_row >= 0 && block.to_column >= 0 &&
                    block.to_row + block.rows_written() <= item.rows() &&
                    block.to_column + block.columns_written() <= item.columns(),
                "a block of a conversion is outside its tensor");
        filled += block.row_count * block.column_count;
    }
    require(filled == item.rows() * item.columns(), "the blocks of a conversion do not fill a tensor");
}

std::string stem_of(const std::string& path) {
    return std::filesystem::path(path).stem().string();
}

PlannedFile archived(std::string path, const PickleWriter& pickle, std::vector<PlannedTensor> tensors) {
    PlannedFile file{.path = std::move(path), .tensors = std::move(tensors)};
    file.archive.emplace(stem_of(file.path), pickle);
    file.size = file.archive->file_size();
    for (std::size_t i = 0; i < file.tensors.size(); ++i) {
        check_filled(file.tensors[i]);
        file.offsets.push_back(file.archive->storage_offset(i));
    }
    return file;
}

}  // namespace

std::uint64_t PlannedTensor::bytes() const {
    std::uint64_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::uint64_t>(size);
    return is_q8_0 ? bytes_of(GgmlType::q8_0, count) : count * size_of(dtype);
}

std::uint64_t ConversionPlan::bytes() const {
    std::uint64_t count = 0;
    for (const PlannedFile& file : files)
        for (const PlannedTensor& tensor : file.tensors) count += tensor.bytes();
    return count;
}

void set_floating_dtype(std::vector<PlannedTensor>& tensors, std::optional<DType> dtype) {
    for (PlannedTensor& tensor : tensors)
        if (dtype && is_floating(tensor.dtype)) tensor.dtype = *dtype;
}

void ConversionPlan::add_rank(const std::string& path, std::vector<PlannedTensor> tensors, bool xser) {
    if (!xser) {
        files.push_back(torch_file(path, std::move(tensors)));
        return;
    }
    for (PlannedFile& file : xser_files(path, std::move(tensors))) files.push_back(std::move(file));
}

PlannedFile safetensors_file(std::string path, std::vector<PlannedTensor> tensors) {
    std::vector<SafetensorsLayout::Item> items;
    for (const PlannedTensor& tensor : tensors) items.push_back({tensor.name, tensor.dtype, tensor.shape});
    const SafetensorsLayout layout(std::move(items));
    PlannedFile file{.path = std::move(path),
                     .size = layout.file_size(),
                     .tensors = std::move(tensors),
                     .header = layout.header_bytes()};
    for (const PlannedTensor& tensor : file.tensors) {
        check_filled(tensor);
        file.offsets.push_back(layout.offset_of(tensor.name));
    }
    return file;
}

PlannedFile gguf_file(std::string path, const GgufHeader& header, std::size_t first,
                      std::vector<PlannedTensor> tensors) {
    PlannedFile file{.path = std::move(path),
                     .size = header.file_size(),
                     .tensors = std::move(tensors),
                     .header = header.bytes()};
    for (std::size_t i = 0; i < file.tensors.size(); ++i) {
        check_filled(file.tensors[i]);
        file.offsets.push_back(header.offset_of(first + i));
    }
    return file;
}

PlannedFile torch_file(std::string path, std::vector<PlannedTensor> tensors) {
    PickleWriter pickle;
    pickle.begin_dict();
    for (const PlannedTensor& tensor : tensors) {
        pickle.text(tensor.name);
        pickle.tensor(tensor.dtype, tensor.shape);
    }
    pickle.end_dict();
    return archived(std::move(path), pickle, std::move(tensors));
}

std::vector<PlannedFile> xser_files(const std::string& path, std::vector<PlannedTensor> tensors) {
    PickleWriter references, types;
    references.begin_dict();
    types.begin_dict();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto number = static_cast<std::int64_t>(i);
        references.text(tensors[i].name);
        references.tensor_reference(number);
        types.integer(number);
        types.begin_dict();
        types.text("dtype");
        types.dtype(tensors[i].dtype);
        types.text("shape");
        types.size(tensors[i].shape);
        types.text("expert_model_parallel");
        types.boolean(tensors[i].name.find("expert_mlps") != std::string::npos);
        types.end_dict();
    }
    references.end_dict();
    types.end_dict();
    std::vector<PlannedFile> files = nested_files(path, references, std::move(tensors), true);
    files.insert(files.begin() + 1, archived(path + ".info.pt", types, {}));
    return files;
}

std::vector<PlannedFile> nested_files(const std::string& path, const PickleWriter& pickle,
                                      std::vector<PlannedTensor> tensors, bool xser) {
    std::vector<PlannedFile> files;
    if (!xser) {
        files.push_back(archived(path, pickle, std::move(tensors)));
        return files;
    }
    files.push_back(archived(path, pickle, {}));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        PickleWriter one_tensor;
        one_tensor.tensor(tensors[i].dtype, tensors[i].shape);
        std::vector<PlannedTensor> one;
        one.push_back(std::move(tensors[i]));
        files.push_back(
            archived(fmt::format("{}.tensors/tensor_{}.pt", path, i), one_tensor, std::move(one)));
    }
    return files;
}

void TensorBuilder::append_rows(std::size_t item, const TensorSource::Item& from, std::int64_t begin,
                                std::int64_t count) {
    if (from.shape.size() > 1) return append_block(item, begin, count, 0, from.columns());
    if (tensor_.shape.empty()) tensor_.shape = {0};
    tensor_.blocks.push_back({.item = item,
                              .row_count = 1,
                              .column_begin = begin,
                              .column_count = count,
                              .to_column = tensor_.shape[0]});
    tensor_.shape[0] += count;
}

void TensorBuilder::append_columns(std::size_t item, const TensorSource::Item& from, std::int64_t begin,
                                   std::int64_t count) {
    if (tensor_.shape.empty()) tensor_.shape = {from.rows(), 0};
    tensor_.blocks.push_back({.item = item,
                              .row_count = from.rows(),
                              .column_begin = begin,
                              .column_count = count,
                              .to_column = tensor_.shape[1]});
    tensor_.shape[1] += count;
}

void TensorBuilder::append_block(std::size_t item, std::int64_t row_begin, std::int64_t row_count,
                                 std::int64_t column_begin, std::int64_t column_count) {
    if (tensor_.shape.empty()) tensor_.shape = {0, column_count};
    tensor_.blocks.push_back({.item = item,
                              .row_begin = row_begin,
                              .row_count = row_count,
                              .column_begin = column_begin,
                              .column_count = column_count,
                              .to_row = tensor_.shape[0]});
    tensor_.shape[0] += row_count;
}

void TensorBuilder::append_zero_rows(const TensorSource::Item& like, std::int64_t count) {
    if (count > 0) append_rows(Block::zeros, like, 0, count);
}

void TensorBuilder::append_zero_columns(const TensorSource::Item& like, std::int64_t count) {
    if (count > 0) append_columns(Block::zeros, like, 0, count);
}

void TensorBuilder::append_every_second_row(std::size_t item, const TensorSource::Item& from,
                                            std::int64_t row_begin, std::int64_t row_count) {
    append_block(item, row_begin, row_count, 0, from.columns());
    tensor_.blocks.back().row_step = 2;
}

void TensorBuilder::whole(std::size_t item, const TensorSource::Item& from) {
    tensor_.shape = from.shape;
    tensor_.blocks = {{.item = item, .row_count = from.rows(), .column_count = from.columns()}};
}

}  // namespace drover
