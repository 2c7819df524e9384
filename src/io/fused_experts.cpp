#include "io/fused_experts.h"

#include <fmt/format.h>

namespace drover {
namespace {

constexpr std::string_view gate_up_suffix = "mlp.experts.gate_up_proj", down_suffix = "mlp.experts.down_proj";
constexpr std::string_view router_suffix = "mlp.gate.weight";

/// Part `index` of `count` equal ones along the outer dimensions, as a matrix.
SafetensorsEntry part_of(const SafetensorsEntry& whole, std::string name, std::int64_t index,
                         std::int64_t count, std::int64_t rows) {
    const std::uint64_t bytes = (whole.end - whole.begin) / static_cast<std::uint64_t>(count);
    const std::uint64_t begin = whole.begin + bytes * static_cast<std::uint64_t>(index);
    return {.name = std::move(name),
            .dtype = whole.dtype,
            .shape = {rows, whole.shape[2]},
            .begin = begin,
            .end = begin + bytes};
}

void split_experts(const SafetensorsEntry& entry, const std::string& layer, bool gate_up,
                   std::vector<SafetensorsEntry>& published) {
    const std::int64_t experts = entry.shape[0], rows = entry.shape[1];
    for (std::int64_t e = 0; e < experts; ++e) {
        const std::string expert = fmt::format("{}block_sparse_moe.experts.{}.", layer, e);
        if (gate_up) {
            published.push_back(part_of(entry, expert + "w1.weight", 2 * e, 2 * experts, rows / 2));
            published.push_back(part_of(entry, expert + "w3.weight", 2 * e + 1, 2 * experts, rows / 2));
        } else {
            published.push_back(part_of(entry, expert + "w2.weight", e, experts, rows));
        }
    }
}

}  // namespace

FusedExperts split_fused_experts(const SafetensorsHeader& header) {
    FusedExperts result;
    const auto prefix_of = [](const SafetensorsEntry& entry, std::string_view suffix) {
        return entry.name.substr(0, entry.name.size() - suffix.size());
    };
    for (const SafetensorsEntry& entry : header.entries) {
        const bool gate_up = entry.name.ends_with(gate_up_suffix), down = entry.name.ends_with(down_suffix);
        // Sub-byte element types cannot be cut anywhere, and weights never have one.
        const bool can_be_cut = entry.shape.size() == 3 && entry.shape[0] > 0 &&
                                bits_of(entry.dtype) % 8 == 0 && (!gate_up || entry.shape[1] % 2 == 0);
        if ((!gate_up && !down) || !can_be_cut) continue;
        split_experts(entry, prefix_of(entry, gate_up ? gate_up_suffix : down_suffix), gate_up,
                      result.published);
        result.replaced.insert(entry.name);
    }
    if (result.replaced.empty()) return result;
    for (const SafetensorsEntry& entry : header.entries)
        if (entry.name.ends_with(router_suffix)) {
            SafetensorsEntry router = entry;
            router.name = prefix_of(entry, router_suffix) + "block_sparse_moe.gate.weight";
            result.published.push_back(std::move(router));
            result.replaced.insert(entry.name);
        }
    return result;
}

}  // namespace drover
