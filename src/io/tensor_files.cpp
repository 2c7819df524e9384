#include "io/tensor_files.h"

#include "core/json.h"

namespace drover {
namespace {

std::uint64_t elements_of(const TensorFiles::Item& item) {
    std::uint64_t count = 1;
    for (const std::int64_t size : item.shape) count *= static_cast<std::uint64_t>(size);
    return count;
}

}  // namespace

std::string weights_index_text(const std::vector<TensorFiles::Item>& items, const ShardPlan& plan) {
    nlohmann::json weight_map = nlohmann::json::object();  // sorts its keys
    std::uint64_t parameters = 0, bytes = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
        weight_map[items[i].name] = plan.file_names[plan.file_of[i]];
        parameters += elements_of(items[i]);
        bytes += elements_of(items[i]) * size_of(items[i].dtype);
    }
    const nlohmann::json index{{"metadata", {{"total_parameters", parameters}, {"total_size", bytes}}},
                               {"weight_map", std::move(weight_map)}};
    constexpr bool escape_beyond_ascii = true;
    return index.dump(2, ' ', escape_beyond_ascii) + "\n";
}

void TensorFiles::add_weights(const std::vector<Item>& items, std::uint64_t max_shard_bytes) {
    std::vector<std::uint64_t> tensor_bytes;
    for (const Item& item : items) tensor_bytes.push_back(elements_of(item) * size_of(item.dtype));
    const ShardPlan plan = plan_shards(tensor_bytes, max_shard_bytes);
    std::vector<std::vector<Item>> shards(plan.file_names.size());
    for (std::size_t i = 0; i < items.size(); ++i) shards[plan.file_of[i]].push_back(items[i]);
    for (std::size_t i = 0; i < shards.size(); ++i) add_file(plan.file_names[i], std::move(shards[i]));
    if (shards.size() > 1) texts_[std::string(weights_index_file)] = weights_index_text(items, plan);
}

void TensorFiles::add_file(const std::string& name, std::vector<Item> items) {
    for (const Item& item : items) file_of_[item.name] = files_.size();
    files_.push_back({name, SafetensorsLayout(std::move(items))});
}

void TensorFiles::add_part(const std::string& tensor, const Tensor& source) {
    add_part(tensor, source, 0, 1, 0, source.numel(), source.numel());
}

void TensorFiles::add_part(const std::string& tensor, const Tensor& source, std::int64_t row_begin,
                           std::int64_t row_count, std::int64_t column_begin, std::int64_t column_count,
                           std::int64_t whole_columns) {
    require(source.packed() && source.numel() == row_count * column_count,
            "a part that is not its rows and columns");
    if (source.numel() == 0) return;
    const File& file = files_[file_of_.at(tensor)];
    const std::uint64_t size = size_of(source.dtype());
    const auto bytes = [&](std::int64_t elements) { return static_cast<std::uint64_t>(elements) * size; };
    RowsInFile place{
        .offset = file.layout.offset_of(tensor) + bytes(row_begin * whole_columns + column_begin),
        .row_bytes = bytes(column_count),
        .rows = static_cast<std::uint64_t>(row_count),
        .stride = bytes(whole_columns)};
    if (column_count == whole_columns)
        place = {.offset = place.offset, .row_bytes = place.bytes(), .rows = 1, .stride = 0};
    parts_.push_back({file.name, place, source});
}

std::uint64_t TensorFiles::part_bytes() const {
    std::uint64_t bytes = 0;
    for (const Part& part : parts_) bytes += part.place.bytes();
    return bytes;
}

std::uint64_t TensorFiles::file_bytes() const {
    std::uint64_t bytes = 0;
    for (const File& file : files_) bytes += file.layout.file_size();
    return bytes;
}

void create_files(StagedFolder& folder, const TensorFiles& files) {
    const auto write_text = [&](const std::string& name, const std::string& text) {
        folder.write(name, {.row_bytes = text.size()}, reinterpret_cast<const std::byte*>(text.data()));
    };
    for (const TensorFiles::File& file : files.files()) {
        folder.create_file(file.name, file.layout.file_size());
        write_text(file.name, file.layout.header_bytes());
    }
    for (const auto& [name, text] : files.texts()) {
        folder.create_file(name, text.size());
        write_text(name, text);
    }
}

}  // namespace drover
