#include "convert/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>

#include "core/error.h"
#include "io/safetensors_header.h"
#include "io/torch_pickle.h"

namespace drover {
namespace {

/// embed_tokens, layers, norm, lm_head.
int part_of_model(std::string_view name) {
    if (layer_of(name) >= 0) return 1;
    if (name.find("embed_tokens") != std::string_view::npos) return 0;
    return name.starts_with("lm_head") ? 3 : 2;
}

/// The order of a block's modules; those that are not named here come last.
int place_in_block(std::string_view name) {
    constexpr std::string_view modules[] = {"q_proj.",
                                            "k_proj.",
                                            "v_proj.",
                                            "qkv_proj.",
                                            "o_proj.",
                                            "q_norm.",
                                            "k_norm.",
                                            "self_attn.",
                                            "gate_proj.",
                                            "up_proj.",
                                            "gate_up_proj",
                                            "down_proj",
                                            ".gate.",
                                            "router.",
                                            ".experts.",
                                            "input_layernorm",
                                            "post_attention_layernorm"};
    int place = 0;
    for (const std::string_view module : modules) {
        if (name.find(module) != std::string_view::npos) return place;
        ++place;
    }
    return place;
}

}  // namespace

std::int64_t TensorSource::Item::rows() const {
    std::int64_t count = 1;
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) count *= shape[i];
    return count;
}

std::size_t TensorSource::add_item(std::string name, FileDType dtype, std::vector<std::int64_t> shape,
                                   const std::filesystem::path& file) {
    const std::optional<DType> known = engine_dtype_of(dtype);
    if (!known)
        throw Error(
            fmt::format("{}: the tensor {} has the element type {}, which cannot be converted.",
                        file.string(), safetensors_detail::quoted_name(name), name_of(dtype)),
            "Quantised and boolean tensors are not part of a model's weights: use the original ones.");
    items_.push_back({std::move(name), *known, std::move(shape)});
    return items_.size() - 1;
}

FullCheckpoint::FullCheckpoint(const std::filesystem::path& folder_or_file, std::string_view key)
    : weights_(folder_or_file, key) {
    std::vector<std::string> names = weights_.names();
    std::stable_sort(names.begin(), names.end(), comes_before);
    for (const std::string& name : names) {
        const SafetensorsEntry& entry = *weights_.entry(name);
        add_item(name, entry.dtype, entry.shape, folder_or_file);
    }
}

std::vector<std::filesystem::path> FullCheckpoint::files() const {
    std::vector<std::filesystem::path> paths;
    for (const WeightFile& file : weights_.files()) paths.push_back(file.path());
    return paths;
}

StridedTensor strided_view(const PickleTensor& tensor) {
    return {.data = reinterpret_cast<const std::byte*>(tensor.elements.data()),
            .dtype = tensor.dtype,
            .shape = tensor.shape,
            .strides = tensor.strides};
}

std::int64_t layer_of(std::string_view name) {
    constexpr std::string_view word = "layers.";
    const auto at = name.find(word);
    if (at == std::string_view::npos || (at > 0 && name[at - 1] != '.')) return -1;
    std::int64_t number = -1;
    const char* const begin = name.data() + at + word.size();
    const char* const end = name.data() + name.size();
    const auto [stopped, error] = std::from_chars(begin, end, number);
    return error == std::errc() && stopped != end && *stopped == '.' ? number : -1;
}

std::int64_t expert_of(std::string_view name) {
    constexpr std::string_view before = ".experts.";
    const auto at = name.find(before);
    std::int64_t number = -1;
    if (at != std::string_view::npos)
        std::from_chars(name.data() + at + before.size(), name.data() + name.size(), number);
    return number;
}

bool comes_before(std::string_view a, std::string_view b) {
    const auto rank = [](std::string_view name) {
        const int part = part_of_model(name);
        return std::tuple(part, layer_of(name), part == 1 ? place_in_block(name) : 0, expert_of(name),
                          name.ends_with(".bias"), name);
    };
    return rank(a) < rank(b);
}

std::int64_t count_layers(const std::vector<std::string>& names, std::string_view where) {
    std::set<std::int64_t> layers;
    for (const std::string& name : names)
        if (const std::int64_t layer = layer_of(name); layer >= 0) layers.insert(layer);
    std::int64_t expected = 0;
    for (const std::int64_t layer : layers)
        if (layer != expected++)
            throw Error(fmt::format("{} has no layer {}, but it has layer {}.", where, expected - 1, layer),
                        "Check that all files of the checkpoint are there.");
    return expected;
}

}  // namespace drover
