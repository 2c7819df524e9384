#include "io/torch_weights.h"

#include <fmt/format.h>

#include <mutex>

#include "io/safetensors_header.h"

namespace drover {
namespace {

using safetensors_detail::quoted_name;

constexpr std::string_view state_dict_remedy =
    "Save the model's state dict: torch.save(model.state_dict(), FILE).";

/// The dict of tensors.
PickleValue find_state_dict(const PickleValue& root, std::string_view key, const std::string& where) {
    if (root.kind() != PickleValue::Kind::dict)
        throw Error(fmt::format("{} holds {} instead of a dict of tensors.", where, name_of(root.kind())),
                    state_dict_remedy);
    return !key.empty() && root.contains(key) ? find_state_dict(root[key], {}, where) : root;
}

}  // namespace

struct TorchWeights::Copies {
    std::mutex mutex;
    std::map<std::string, std::vector<std::byte>, std::less<>> by_name;
};

TorchWeights::TorchWeights(const std::filesystem::path& path, std::string_view key)
    : path_(path), file_(path), pickle_(file_.bytes(), path.string()), copies_(std::make_unique<Copies>()) {
    const PickleValue dict = find_state_dict(pickle_.root(), key, path.string());
    for (std::size_t i = 0; i < dict.size(); ++i) {
        if (dict.key(i).kind() != PickleValue::Kind::text ||
            dict.value(i).kind() != PickleValue::Kind::tensor)
            throw Error(fmt::format("{} is not a dict of tensors: its entry {} is {}.", path.string(),
                                    dict.key(i).kind() == PickleValue::Kind::text
                                        ? quoted_name(dict.key(i).text())
                                        : fmt::format("{}", dict.key(i).integer()),
                                    name_of(dict.value(i).kind())),
                        state_dict_remedy);
        const PickleTensor& tensor = dict.value(i).tensor();
        SafetensorsEntry entry{
            .name = std::string(dict.key(i).text()),
            .dtype = tensor.dtype,
            .shape = tensor.shape,
            .begin = static_cast<std::uint64_t>(tensor.elements.data() - file_.bytes().data())};
        entry.end = entry.begin + static_cast<std::uint64_t>(tensor.numel()) *
                                      static_cast<std::uint64_t>(bits_of(tensor.dtype) / 8);
        strided_.erase(entry.name);
        if (!tensor.packed()) strided_.emplace(entry.name, tensor);
        const auto [place, is_new] = index_.emplace(entry.name, header_.entries.size());
        if (is_new)
            header_.entries.push_back(std::move(entry));
        else  // as in Python, the later entry counts
            header_.entries[place->second] = std::move(entry);
    }
}

TorchWeights::~TorchWeights() = default;
TorchWeights::TorchWeights(TorchWeights&&) noexcept = default;
TorchWeights& TorchWeights::operator=(TorchWeights&&) noexcept = default;

const SafetensorsEntry* TorchWeights::find(std::string_view name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &header_.entries[found->second];
}

StridedTensor TorchWeights::view(const SafetensorsEntry& entry) const {
    const auto found = strided_.find(entry.name);
    if (found == strided_.end())
        return StridedTensor::packed(file_.data() + entry.begin, entry.dtype, entry.shape);
    const PickleTensor& tensor = found->second;
    return {.data = reinterpret_cast<const std::byte*>(tensor.elements.data()),
            .dtype = tensor.dtype,
            .shape = tensor.shape,
            .strides = tensor.strides};
}

Tensor TorchWeights::tensor(const SafetensorsEntry& entry) const {
    if (is_packed(entry.name)) return tensor_of_entry(entry, file_.data() + entry.begin, path_);
    const std::scoped_lock lock(copies_->mutex);
    const auto [place, is_new] = copies_->by_name.emplace(entry.name, 0);
    if (is_new) {
        const StridedTensor source = view(entry);
        place->second.resize(entry.end - entry.begin);
        copy_block(source, 0, source.rows(), 0, source.columns(), place->second.data(), source.columns());
    }
    return tensor_of_entry(entry, place->second.data(), path_);
}

}  // namespace drover
