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

MergedCheckpoint::MergedCheckpoint(std::unique_ptr<TensorSource> base, std::vector<AdapterWeights> adapters,
                                   bool separates_head)
    : base_(std::move(base)), adapters_(std::move(adapters)) {
    std::set<std::string> there;
    const auto add = [&](Item item) {
        there.insert(item.name);
        if (changes(item.name)) item.dtype = DType::f32;
        add_item(std::move(item));
    };
    for (const Item& item : base_->items()) {
        if (item.name == embedding_leaf) embedding_ = items().size();
        add(item);
    }
    if (separates_head && !there.contains(std::string(head_leaf)) && embedding_ != SIZE_MAX) {
        new_head_ = items().size();
        Item head = base_->items()[embedding_];
        head.name = head_leaf;
        add(std::move(head));
    }
    for (const AdapterWeights& adapter : adapters_)
        for (const std::string& leaf : adapter.changed_leaves())
            if (!there.contains(leaf))
                throw Error(fmt::format("{} changes the weight {}, which the model does not have.",
                                        adapter.folder().string(), leaf),
                            "Check that the adapter was made for this base model.");
}

bool MergedCheckpoint::changes(std::string_view name) const {
    return std::ranges::any_of(adapters_,
                               [&](const AdapterWeights& adapter) { return adapter.changes(name); });
}

std::size_t MergedCheckpoint::merged_count() const {
    std::size_t count = 0;
    for (const Item& item : items()) count += changes(item.name);
    return count;
}

StridedTensor MergedCheckpoint::view(std::size_t item) const {
    const std::string& name = items()[item].name;
    if (!changes(name)) return base_->view(of_base(item));
    last_ = item;
    const Item& before = base_->items()[of_base(item)];
    std::vector<float>& values = merged_[item];
    if (values.empty()) {
        const StridedTensor from = base_->view(of_base(item));
        const std::int64_t rows = before.rows(), columns = before.columns();
        std::vector<std::byte> copied(static_cast<std::size_t>(rows * columns) * size_of(before.dtype));
        copy_block(from, 0, rows, 0, columns, copied.data(), columns);
        values.resize(static_cast<std::size_t>(rows * columns));
        convert_elements(copied.data(), before.dtype, values.data(), DType::f32, rows * columns);
        for (const AdapterWeights& adapter : adapters_) adapter.merge(name, shape_of(before), values);
    }
    return StridedTensor::packed(reinterpret_cast<const std::byte*>(values.data()), FileDType::F32,
                                 before.shape);
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
        TensorBuilder builder(items()[i].name, base_->items()[of_base(i)].dtype);
        builder.whole(i, items()[i]);
        result.push_back(builder.tensor());
    }
    return result;
}

}  // namespace drover
