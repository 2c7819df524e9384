#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "io/model_folder.h"
#include "io/safetensors_header.h"

namespace drover {
namespace {

constexpr std::string_view base_prefix = "model.";
constexpr std::string_view head_name = "lm_head.weight", embedding_name = "model.embed_tokens.weight";

/// Old checkpoints stored the rotary frequencies, which are computed from the config.
bool is_stored_frequency(std::string_view name) {
    constexpr std::string_view frequency = "rotary_emb.inv_freq";
    return name == frequency || name.ends_with(fmt::format(".{}", frequency));
}

void require_floating(const SafetensorsEntry& entry, const ModelWeights& weights) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
        if (entry.dtype == file_dtype_of(dtype)) return;
    throw Error(
        fmt::format("{}: the tensor {} has the element type {}, but weights must be F32, BF16, F16 or F64.",
                    weights.path().string(), safetensors_detail::quoted_name(entry.name),
                    name_of(entry.dtype)),
        "Quantised models cannot be trained: use the original weights.");
}

std::string mismatch_list(const std::vector<LoadReport::Mismatch>& mismatched) {
    std::vector<std::string> parts;
    for (const auto& item : mismatched)
        parts.push_back(fmt::format("{} is {} in the folder and {} in the model", item.name,
                                    item.folder_shape, item.model_shape));
    return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

std::string LoadReport::text() const {
    std::vector<std::string> lines;
    if (!missing.empty())
        lines.push_back(fmt::format("Not in the folder, so newly initialised ({}): {}.", missing.size(),
                                    fmt::join(missing, ", ")));
    if (!mismatched.empty())
        lines.push_back(fmt::format("Of another shape, so newly initialised ({}): {}.", mismatched.size(),
                                    mismatch_list(mismatched)));
    if (!unexpected.empty())
        lines.push_back(fmt::format("In the folder, but not part of the model ({}): {}.", unexpected.size(),
                                    fmt::join(unexpected, ", ")));
    return fmt::format("{}", fmt::join(lines, "\n"));
}

LoadReport match_names(const std::vector<ExpectedTensor>& expected, const ModelWeights& weights,
                       const NameRules& rules) {
    const std::vector<std::string> names = weights.names();
    const bool without_prefix = std::none_of(
        names.begin(), names.end(), [](const std::string& name) { return name.starts_with(base_prefix); });

    LoadReport report;
    std::set<std::string> used;
    for (const ExpectedTensor& tensor : expected) {
        if (rules.tied_head && tensor.name == head_name) continue;
        const std::string wanted(rules.head_from_embedding && tensor.name == head_name ? embedding_name
                                                                                       : tensor.name);
        const bool strip = without_prefix && wanted.starts_with(base_prefix);
        const std::string name = strip ? wanted.substr(base_prefix.size()) : wanted;
        const SafetensorsEntry* const entry = weights.entry(name);
        if (entry == nullptr) {
            report.missing.push_back(tensor.name);
            continue;
        }
        used.insert(name);
        require_floating(*entry, weights);
        if (std::equal(entry->shape.begin(), entry->shape.end(), tensor.shape.begin(), tensor.shape.end()))
            report.found.emplace(tensor.name, name);
        else
            report.mismatched.push_back(
                {tensor.name, safetensors_detail::shape_text(entry->shape), tensor.shape.text()});
    }
    for (const std::string& name : names) {
        if (used.contains(name)) continue;
        const bool is_ignored = is_stored_frequency(name) ||
                                ((rules.tied_head || rules.head_from_embedding) && name == head_name);
        (is_ignored ? report.ignored : report.unexpected).push_back(name);
    }
    if (!report.mismatched.empty() && !rules.ignore_mismatched_sizes)
        throw Error(fmt::format("The weights in {} do not fit the model: {}.", weights.path().string(),
                                mismatch_list(report.mismatched)),
                    "Use the config.json that belongs to these weights.");
    return report;
}

}  // namespace drover
