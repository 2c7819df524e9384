#include "convert/dcp_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "io/safetensors_header.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using safetensors_detail::quoted_name;
using safetensors_detail::shape_text;

constexpr std::string_view records = "torch.distributed.checkpoint.metadata.";
constexpr std::string_view remedy_of_damage =
    "Save the checkpoint again, or check that all of its files are there.";

bool is_a(const PickleValue& value, std::string_view record) {
    return value.kind() == PickleValue::Kind::object &&
           value.object_name() == fmt::format("{}{}", records, record);
}

std::vector<std::int64_t> sizes_in(const PickleValue& tuple) {
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < tuple.size(); ++i) sizes.push_back(tuple.at(i).integer());
    return sizes;
}

std::int64_t product(const std::vector<std::int64_t>& sizes) {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes)
        if (size < 0 || __builtin_mul_overflow(count, size, &count)) return -1;
    return count;
}

/// What wrappers put into names.
std::string without_wrappers(std::string name) {
    for (const std::string_view wrapper :
         {"_fsdp_wrapped_module.", "_orig_mod.", "_checkpoint_wrapped_module."})
        for (auto at = name.find(wrapper); at != std::string::npos; at = name.find(wrapper))
            name.erase(at, wrapper.size());
    return name;
}

/// "optimizer.state.<weight>.<kind>"
struct StateName {
    std::string kind, weight;

    /// Nothing for other names.
    static std::optional<StateName> parse(std::string_view name) {
        const std::string plain = without_wrappers(std::string(name));
        for (const std::string_view prefix : {"optimizer.state.", "optim.state."}) {
            const auto dot = plain.rfind('.');
            if (plain.starts_with(prefix) && dot != std::string::npos && dot > prefix.size())
                return StateName{plain.substr(dot + 1), plain.substr(prefix.size(), dot - prefix.size())};
        }
        return std::nullopt;
    }
};

bool is_name_in_model(std::string_view name) {
    return name.starts_with("model.layers.") || name.starts_with("layers.") || name.starts_with("lm_head.") ||
           name.starts_with("model.embed_tokens.");
}

}  // namespace

/// Where a chunk is.
struct DcpCheckpoint::Chunk {
    std::string file;
    std::uint64_t offset = 0, bytes = 0;
};

struct DcpCheckpoint::Entry {
    std::string name;  ///< in the model
    FileDType dtype;
    std::vector<std::int64_t> shape;
    struct Part {
        std::size_t item;
        std::vector<std::int64_t> offsets;
    };
    std::vector<Part> parts;
};

DcpCheckpoint::~DcpCheckpoint() = default;

bool DcpCheckpoint::is_one(const fs::path& folder) {
    return fs::exists(folder / metadata_file);
}

DcpCheckpoint::DcpCheckpoint(const fs::path& folder, std::string_view key, bool optimizer) : folder_(folder) {
    const fs::path path = folder / metadata_file;
    const MappedFile file(path);
    const PlainPickle pickle(file.bytes(), path.string());
    if (!is_a(pickle.root(), "Metadata"))
        throw Error(fmt::format("{} is not the metadata of a checkpoint.", path.string()), remedy_of_damage);
    const PickleValue metadata = pickle.root().state();
    const PickleValue tensors = metadata["state_dict_metadata"];
    if (!key.empty())
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const std::string name = without_wrappers(std::string(tensors.key(i).text()));
            const std::string prefix = fmt::format("{}.", key);
            if (name.starts_with(prefix) && is_name_in_model(std::string_view(name).substr(prefix.size())) &&
                !is_name_in_model(name))
                prefix_ = prefix;
        }
    read_metadata(metadata, optimizer);
    if (entries_.empty() && states_.empty())
        throw Error(fmt::format("{} has no tensors of a model.", folder.string()),
                    "Give the entry of the saved dict that has them with --model_key.");
}

std::string DcpCheckpoint::name_in_model(std::string_view name) const {
    std::string plain = without_wrappers(std::string(name));
    if (!prefix_.empty()) return plain.starts_with(prefix_) ? plain.substr(prefix_.size()) : "";
    return plain.starts_with("optim") ? "" : plain;
}

void DcpCheckpoint::read_metadata(const PickleValue& metadata, bool optimizer) {
    const PickleValue storage = metadata["storage_data"];
    for (std::size_t i = 0; i < storage.size(); ++i) {
        if (!is_a(storage.key(i), "MetadataIndex")) continue;
        const PickleValue index = storage.key(i).state(), info = storage.value(i).state();
        if (!index.contains("offset") || index["offset"].kind() == PickleValue::Kind::none)
            continue;  // not of a tensor
        const std::string name(index["fqn"].text()), file(info["relative_path"].text());
        if (!is_plain_file_name(file))
            throw Error(fmt::format("{} puts {} into {}, which is not a file name inside the folder.",
                                    folder_.string(), quoted_name(name), quoted_name(file)),
                        "Do not use this checkpoint unless you trust its author.");
        if (info.contains("transform_descriptors") &&
            info["transform_descriptors"].kind() != PickleValue::Kind::none)
            throw Error(fmt::format("{}: {} is compressed or transformed, which is not read.",
                                    folder_.string(), quoted_name(name)),
                        "Save the checkpoint without extensions.");
        const std::int64_t offset = info["offset"].integer(), bytes = info["length"].integer();
        if (offset < 0 || bytes < 0)
            throw Error(fmt::format("{}: {} has no place in its file.", folder_.string(), quoted_name(name)),
                        remedy_of_damage);
        places_[{name, sizes_in(index["offset"])}] = {file, static_cast<std::uint64_t>(offset),
                                                      static_cast<std::uint64_t>(bytes)};
    }
    const PickleValue tensors = metadata["state_dict_metadata"];
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (!is_a(tensors.value(i), "TensorStorageMetadata")) continue;
        const std::string name(tensors.key(i).text());
        if (const std::string published = name_in_model(name); !published.empty())
            add_tensor(name, published, tensors.value(i).state(), entries_);
        else if (const auto state = StateName::parse(name); optimizer && state)
            add_tensor(name, state->weight, tensors.value(i).state(), states_[state->kind]);
    }
    places_.clear();
}

void DcpCheckpoint::add_tensor(const std::string& name, const std::string& published,
                               const PickleValue& description, std::vector<Entry>& entries) {
    const PickleValue properties = description["properties"].state();
    const PickleValue type =
        properties.kind() == PickleValue::Kind::dict ? properties["dtype"] : properties.at(0);
    const std::optional<FileDType> dtype = type.dtype();
    const auto damaged = [&](std::string_view what) {
        return Error(fmt::format("{}: the tensor {} {}.", folder_.string(), quoted_name(name), what),
                     remedy_of_damage);
    };
    if (!dtype) throw damaged("has an element type that is not known");
    Entry entry{.name = published, .dtype = *dtype, .shape = sizes_in(description["size"]), .parts = {}};
    const PickleValue chunks = description["chunks"];
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        const PickleValue chunk = chunks.at(i).state();
        std::vector<std::int64_t> offsets = sizes_in(chunk["offsets"]), sizes = sizes_in(chunk["sizes"]);
        if (offsets.size() != entry.shape.size() || sizes.size() != entry.shape.size() || product(sizes) < 0)
            throw damaged("has a chunk of another number of dimensions");
        for (std::size_t d = 0; d < sizes.size(); ++d)
            if (offsets[d] < 0 || offsets[d] > entry.shape[d] || sizes[d] > entry.shape[d] - offsets[d])
                throw damaged("has a chunk outside it");
        // Rows of more than two dimensions follow each other only if they are whole.
        for (std::size_t d = 1; sizes.size() > 2 && d < sizes.size(); ++d)
            if (sizes[d] != entry.shape[d])
                throw Error(fmt::format("{}: the tensor {} of shape {} is cut along another than its first "
                                        "dimension, which is not read.",
                                        folder_.string(), quoted_name(name), shape_text(entry.shape)),
                            "Save a full state dict in place of a sharded one.");
        elements += product(sizes);
        const auto place = places_.find({name, offsets});
        if (place == places_.end())
            throw damaged(fmt::format("has a chunk at {} without a place", shape_text(offsets)));
        auto file = data_files_.find(place->second.file);
        if (file == data_files_.end())
            file = data_files_.emplace(place->second.file, MappedFile(folder_ / place->second.file)).first;
        const std::uint64_t size = file->second.bytes().size();
        if (place->second.offset > size || place->second.bytes > size - place->second.offset)
            throw damaged(fmt::format("has a chunk beyond the end of {}", place->second.file));
        const std::size_t item = add_item(name, *dtype, sizes, folder_ / place->second.file);
        chunks_.push_back(place->second);
        entry.parts.push_back({item, std::move(offsets)});
    }
    if (elements != product(entry.shape)) throw damaged("is not made up by its chunks");
    entries.push_back(std::move(entry));
}

std::vector<PlannedTensor> DcpCheckpoint::tensors() const {
    if (entries_.empty())
        throw Error(fmt::format("{} has no tensors of a model.", folder_.string()),
                    "Name the folder with the model, not the one with the optimizer.");
    return joined(entries_);
}

std::vector<PlannedTensor> DcpCheckpoint::states() const {
    std::vector<PlannedTensor> all;
    for (const auto& [kind, entries] : states_) {
        if (kind == "step") continue;
        for (PlannedTensor& tensor : named_states(kind, joined(entries))) all.push_back(std::move(tensor));
    }
    return all;
}

OptimizerFacts DcpCheckpoint::optimizer() const {
    CommonStep step(folder_.string());
    if (const auto found = states_.find("step"); found != states_.end())
        for (const Entry& entry : found->second) {
            if (entry.parts.empty()) continue;
            const std::size_t item = entry.parts.front().item;
            view(item);
            step.add(open_.at(item)->root().number(), entry.name);
        }
    forget();
    return {.updates = step.value()};
}

std::vector<PlannedTensor> DcpCheckpoint::joined(const std::vector<Entry>& entries) const {
    std::vector<PlannedTensor> joined;
    for (const Entry& entry : entries) {
        PlannedTensor tensor{entry.name, *engine_dtype_of(entry.dtype), entry.shape, {}};
        for (const Entry::Part& part : entry.parts) {
            const Item& item = items()[part.item];
            Block block{.item = part.item, .row_count = item.rows(), .column_count = item.columns()};
            if (!part.offsets.empty()) block.to_column = part.offsets.back();
            if (part.offsets.size() > 1) {
                std::int64_t rows = 1;  // of the matrix for each of the outermost dimension
                for (std::size_t d = 1; d + 1 < entry.shape.size(); ++d) rows *= entry.shape[d];
                block.to_row = part.offsets[0] * rows;
            }
            if (block.row_count * block.column_count > 0) tensor.blocks.push_back(block);
        }
        joined.push_back(std::move(tensor));
    }
    std::stable_sort(joined.begin(), joined.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
        return comes_before(a.name, b.name);
    });
    return joined;
}

StridedTensor DcpCheckpoint::view(std::size_t item) const {
    const Chunk& chunk = chunks_[item];
    std::unique_ptr<TorchPickle>& opened = open_[item];
    if (!opened)
        opened = std::make_unique<TorchPickle>(
            data_files_.at(chunk.file).bytes().substr(chunk.offset, chunk.bytes),
            (folder_ / chunk.file).string());
    const PickleTensor& tensor = opened->root().tensor();
    if (tensor.shape != items()[item].shape || engine_dtype_of(tensor.dtype) != items()[item].dtype)
        throw Error(fmt::format("{}: a chunk of {} has the shape {}, and the metadata says {}.",
                                (folder_ / chunk.file).string(), quoted_name(items()[item].name),
                                shape_text(tensor.shape), shape_text(items()[item].shape)),
                    remedy_of_damage);
    return strided_view(tensor);
}

void DcpCheckpoint::verify(std::size_t item) const {
    const std::byte* const elements = view(item).data;
    const MappedFile& file = data_files_.at(chunks_[item].file);
    open_.at(item)->verify_storage_of(elements, [&] { file.forget(); });
}

void DcpCheckpoint::forget() const {
    open_.clear();
    for (const auto& [name, file] : data_files_) file.forget();
}

std::vector<fs::path> DcpCheckpoint::files() const {
    std::vector<fs::path> paths{folder_ / metadata_file};
    for (const auto& [name, file] : data_files_) paths.push_back(folder_ / name);
    return paths;
}

}  // namespace drover
