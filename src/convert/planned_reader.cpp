#include "convert/planned_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "core/convert.h"
#include "core/error.h"

namespace drover {
namespace {

std::int64_t elements_of(const PlannedTensor& tensor) {
    return std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

PlannedReader::PlannedReader(const TensorSource& source, std::vector<PlannedTensor> tensors,
                             std::string where)
    : source_(source), where_(std::move(where)) {
    for (PlannedTensor& tensor : tensors) {
        std::string name = tensor.name;
        tensors_.emplace(std::move(name), std::move(tensor));
    }
}

const PlannedTensor* PlannedReader::find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
}

std::vector<float> PlannedReader::read(const std::string& name, std::int64_t elements) const {
    const PlannedTensor* const tensor = find(name);
    if (tensor == nullptr)
        throw Error(fmt::format("{} has no weight {}.", where_, name),
                    "Check that the config is that of the weights.");
    if (const std::int64_t count = elements_of(*tensor); count != elements)
        throw Error(fmt::format("{} of {} has {} elements, and by the config it has {}.", name, where_, count,
                                elements),
                    "Check that the config is that of the weights.");
    return read(*tensor);
}

std::vector<float> PlannedReader::read(const PlannedTensor& tensor) const {
    const std::int64_t columns = tensor.as_item().columns();
    std::vector<float> whole(static_cast<std::size_t>(elements_of(tensor))), converted;
    std::vector<std::byte> copied;
    for (const Block& block : tensor.blocks) {
        StridedTensor source = source_.view(block.item);
        std::int64_t first = block.row_begin;
        if (block.row_step > 1) source = source.rows_apart(std::exchange(first, 0), block.row_step);
        const DType dtype = source_.items()[block.item].dtype;
        const std::int64_t rows = block.rows_written(), width = block.columns_written();
        copied.resize(static_cast<std::size_t>(rows * width) * size_of(dtype));
        converted.resize(static_cast<std::size_t>(rows * width));
        (block.transposed ? copy_block_transposed : copy_block)(
            source, first, block.row_count, block.column_begin, block.column_count, copied.data(), width);
        convert_elements(copied.data(), dtype, converted.data(), DType::f32, rows * width);
        for (std::int64_t row = 0; row < rows; ++row)
            std::copy_n(converted.begin() + row * width, width,
                        whole.begin() + (block.to_row + row) * columns + block.to_column);
    }
    source_.forget();
    return whole;
}

}  // namespace drover
