#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/json.h"
#include "core/partial_file.h"
#include "io/safetensors.h"
#include "io/safetensors_header.h"

namespace drover {
namespace {

/// Compact JSON as the reference library writes it: characters beyond ASCII as they are.
std::string json_text(const Json& value, std::string_view name) {
    try {
        return value.dump();
    } catch (const nlohmann::json::exception&) {
        throw Error(fmt::format("The tensor or metadata name {} or its text is not UTF-8.",
                                safetensors_detail::quoted_name(name)),
                    "Safetensors files can hold only UTF-8 names.");
    }
}

}  // namespace

SafetensorsLayout::SafetensorsLayout(std::vector<Item> items, std::map<std::string, std::string> metadata) {
    if (metadata.empty()) metadata.emplace("format", "pt");
    std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
        const FileDType type_a = file_dtype_of(a.dtype), type_b = file_dtype_of(b.dtype);
        return std::tie(type_b, a.name) < std::tie(type_a, b.name);
    });

    std::string json = "{\"__metadata__\":{";
    std::string_view separator;
    for (const auto& [key, value] : metadata) {
        json += fmt::format("{}{}:{}", separator, json_text(key, key), json_text(value, key));
        separator = ",";
    }
    json += '}';
    std::uint64_t data_size = 0;
    for (const Item& item : items) {
        if (item.name == "__metadata__")
            throw Error("The tensor name \"__metadata__\" is reserved in safetensors files.",
                        "Choose another name.");
        if (!offsets_.emplace(item.name, data_size).second)
            throw Error(fmt::format("The tensor name {} is given twice for one safetensors file.",
                                    safetensors_detail::quoted_name(item.name)),
                        "Give every tensor its own name.");
        std::uint64_t bytes = size_of(item.dtype);
        for (const std::int64_t size : item.shape) bytes *= static_cast<std::uint64_t>(size);
        const Json entry{{"dtype", name_of(file_dtype_of(item.dtype))},
                         {"shape", item.shape},
                         {"data_offsets", {data_size, data_size + bytes}}};
        json += fmt::format(",{}:{}", json_text(item.name, item.name), entry.dump());
        data_size += bytes;
    }
    json += '}';
    json.append((8 - json.size() % 8) % 8, ' ');
    if (json.size() > SafetensorsHeader::max_json_bytes)
        throw Error(fmt::format("A safetensors header of {} bytes is larger than the format allows ({}).",
                                json.size(), SafetensorsHeader::max_json_bytes),
                    "Cut the tensors into several files.");

    const std::uint64_t json_bytes = json.size();
    header_bytes_.assign(reinterpret_cast<const char*>(&json_bytes), sizeof json_bytes);
    header_bytes_ += json;
    for (auto& [name, offset] : offsets_) offset += header_bytes_.size();
    file_size_ = header_bytes_.size() + data_size;
}

std::uint64_t SafetensorsLayout::offset_of(std::string_view name) const {
    const auto found = offsets_.find(name);
    require(found != offsets_.end(), "a tensor that is not in the safetensors layout");
    return found->second;
}

void write_safetensors(const std::filesystem::path& path, const std::map<std::string, Tensor>& tensors,
                       std::map<std::string, std::string> metadata) {
    std::vector<SafetensorsLayout::Item> items;
    for (const auto& [name, tensor] : tensors) {
        require(tensor.packed() && tensor.device() == Device::cpu, "only packed CPU tensors can be written");
        items.push_back({name, tensor.dtype(), {tensor.shape().begin(), tensor.shape().end()}});
    }
    const SafetensorsLayout layout(std::move(items), std::move(metadata));
    PartialFile file(path, layout.file_size());
    file.write(0, layout.header_bytes().data(), layout.header_bytes().size());
    for (const auto& [name, tensor] : tensors)
        file.write(layout.offset_of(name), tensor.raw(), tensor.bytes());
    file.finish();
    file.commit();
    sync_folder(path.parent_path());
}

}  // namespace drover
