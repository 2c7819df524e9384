#include "convert/merged_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/convert.h"
#include "core/error.h"

namespace drover {
namespace {

Shape shape_of(const TensorSource::Item& item) {
    Shape shape;
    for (const std::int64_t size : item.shape) shape.append(size);
    return shape;
}

}  // namespace

MergedCheckpoint::MergedCheckpoint(std::unique_ptr<TensorSource> base, std::vector<AdapterWeights> adapters)
    : base_(std::move(base)), adapters_(std::move(adapters)) {
    std::set<std::string> there;
    for (const Item& item : base_->items()) {
        there.insert(item.name);
        add_item({item.name, is_merged(items().size()) ? DType::f32 : item.dtype, item.shape});
    }
    for (const AdapterWeights& adapter : adapters_)
        for (const std::string& leaf : adapter.changed_leaves())
            if (!there.contains(leaf))
                throw Error(fmt::format("{} changes the weight {}, which the model does not have.",
                                        adapter.folder().string(), leaf),
                            "Check that the adapter was made for this base model.");
}

bool MergedCheckpoint::is_merged(std::size_t item) const {
    return std::ranges::any_of(
        adapters_, [&](const AdapterWeights& adapter) { return adapter.changes(base_->items()[item].name); });
}

std::size_t MergedCheckpoint::merged_count() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < items().size(); ++i) count += is_merged(i);
    return count;
}

StridedTensor MergedCheckpoint::view(std::size_t item) const {
    if (!is_merged(item)) return base_->view(item);
    last_ = item;
    const Item& of_base = base_->items()[item];
    std::vector<float>& values = merged_[item];
    if (values.empty()) {
        const StridedTensor from = base_->view(item);
        const std::int64_t rows = of_base.rows(), columns = of_base.columns();
        std::vector<std::byte> copied(static_cast<std::size_t>(rows * columns) * size_of(of_base.dtype));
        copy_block(from, 0, rows, 0, columns, copied.data(), columns);
        values.resize(static_cast<std::size_t>(rows * columns));
        convert_elements(copied.data(), of_base.dtype, values.data(), DType::f32, rows * columns);
        for (const AdapterWeights& adapter : adapters_)
            adapter.merge(of_base.name, shape_of(of_base), values);
    }
    return StridedTensor::packed(reinterpret_cast<const std::byte*>(values.data()), FileDType::F32,
                                 of_base.shape);
}

void MergedCheckpoint::forget() const {
    std::erase_if(merged_, [&](const auto& entry) { return entry.first != last_; });
    base_->forget();
}

std::vector<std::filesystem::path> MergedCheckpoint::files() const {
    std::vector<std::filesystem::path> paths = base_->files();
    for (const AdapterWeights& adapter : adapters_) {
        paths.push_back(adapter.file());
        paths.push_back(adapter.folder() / adapter_config_file);
    }
    return paths;
}

std::vector<PlannedTensor> MergedCheckpoint::tensors() const {
    std::vector<PlannedTensor> result;
    for (std::size_t i = 0; i < items().size(); ++i) {
        TensorBuilder builder(items()[i].name, base_->items()[i].dtype);
        builder.whole(i, items()[i]);
        result.push_back(builder.tensor());
    }
    return result;
}

}  // namespace drover
