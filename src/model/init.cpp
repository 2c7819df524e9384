#include "model/init.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/counter_rng.h"
#include "core/error.h"
#include "model/config.h"
#include "model/params.h"

namespace drover {
namespace {

/// Fills a leaf that is not drawn; false for one that is.
bool fill_constant(const OwnedLeaf& leaf, std::span<float> out) {
    const Initial initial = leaf.spec->initial;
    if (initial != Initial::ones && initial != Initial::zeros) return false;
    std::fill(out.begin(), out.end(), initial == Initial::ones ? 1.0f : 0.0f);
    return true;
}

/// Where the owned part is in the whole leaf.
MatrixSlice slice_of(const OwnedLeaf& leaf) {
    const auto count = [](std::int64_t number) { return static_cast<std::uint64_t>(number); };
    const Shape& shape = leaf.spec->shape;
    return {.rows = count(shape[0]),
            .columns = count(shape.numel() / shape[0]),
            .row_begin = count(leaf.row_begin),
            .row_count = count(leaf.row_count),
            .column_begin = count(leaf.column_begin),
            .column_count = count(leaf.column_count)};
}

/// The padding token's embedding is zero.
void clear_padding_row(const OwnedLeaf& leaf, std::span<float> out) {
    const std::int64_t zeroed = leaf.spec->zeroed_row - leaf.row_begin;
    if (leaf.spec->zeroed_row >= 0 && zeroed >= 0 && zeroed < leaf.row_count)
        std::fill_n(out.begin() + zeroed * leaf.column_count, leaf.column_count, 0.0f);
}

}  // namespace

InitKind init_kind_from_name(std::string_view name, std::string_view what) {
    if (name == "hf") return InitKind::hugging_face;
    if (name == "counter") return InitKind::counter;
    throw UsageError(fmt::format("{} is \"{}\".", what, name), "Use hf or counter.");
}

void fill_by_counter(const OwnedLeaf& leaf, std::uint64_t seed, double standard_deviation,
                     std::span<float> out) {
    if (fill_constant(leaf, out)) return;
    const CounterRng random(seed, 0);
    const std::uint64_t name = leaf_hash(leaf.spec->name + "/init");
    const std::int64_t columns = leaf.spec->shape.numel() / leaf.spec->shape[0];
    const auto deviation = static_cast<float>(standard_deviation);
    const auto draw = [&](std::int64_t from, std::int64_t to, std::int64_t count) {
        random.fill_normal(name, static_cast<std::uint64_t>(from),
                           out.subspan(static_cast<std::size_t>(to), static_cast<std::size_t>(count)), 0.0f,
                           deviation);
    };
    if (leaf.column_count == columns)
        draw(leaf.row_begin * columns, 0, leaf.row_count * columns);
    else
        for (std::int64_t row = 0; row < leaf.row_count; ++row)
            draw((leaf.row_begin + row) * columns + leaf.column_begin, row * leaf.column_count,
                 leaf.column_count);
    clear_padding_row(leaf, out);
}

AdapterInit::AdapterInit(const Adapters& adapters, const ParamSpec& spec, std::uint64_t seed) {
    std::map<std::string_view, const LeafSpec*> leaves;
    spec.for_each_leaf([&](const LeafSpec& leaf) { leaves[leaf.name] = &leaf; });
    TorchRng generator(seed);
    const auto pass_over = [&](const AdaptedWeight& adapted) {
        const Shape& shape = leaves.at(adapted.leaf)->shape;
        const auto a = static_cast<std::uint64_t>(adapted.rank * shape[1]),
                   b = static_cast<std::uint64_t>(adapted.rank * shape[0]);
        if (adapted.is_embedding()) {
            // A [rank,V] and B [H,rank] draw normals, then B draws again; A is zero.
            generator.skip_normal(b);
            generator.skip_normal(a);
            before_.emplace(adapted.leaf, generator);
            generator.skip_normal(a);
            return;
        }
        generator.skip_uniform(a + b);
        before_.emplace(adapted.leaf, generator);
        generator.skip_uniform(a);
    };
    // To transformers 5 a router is no module, and PEFT adapts single parameters after all modules.
    for (const bool routers : {false, true})
        for (const AdaptedWeight& adapted : adapters.weights)
            if (adapted.is_router() == routers) pass_over(adapted);
}

void AdapterInit::fill(const OwnedLeaf& leaf, std::span<float> out) const {
    if (fill_constant(leaf, out)) return;
    if (leaf.spec->initial == Initial::standard_normal) {
        before_.find(leaf.spec->adapted)->second.normal_slice(slice_of(leaf), out, 0.0, 1.0);
        return;
    }
    require(leaf.spec->initial == Initial::adapter, "a leaf that no adapter draws");
    // kaiming_uniform_(a = √5), with the roundings of torch.nn.init.
    const std::int64_t columns = leaf.spec->shape[1];
    const double slope = std::sqrt(5.0), gain = std::sqrt(2.0 / (1 + slope * slope));
    const double bound = std::sqrt(3.0) * (gain / std::sqrt(static_cast<double>(columns)));
    TorchRng generator = before_.find(leaf.spec->adapted)->second;
    generator.skip_uniform(static_cast<std::uint64_t>(leaf.row_begin * columns));
    std::vector<float> row(static_cast<std::size_t>(columns));
    for (std::int64_t i = 0; i < leaf.row_count; ++i) {
        generator.fill_uniform(row, -bound, bound);
        std::copy_n(row.begin() + leaf.column_begin, leaf.column_count, out.begin() + i * leaf.column_count);
    }
}

HfInit::HfInit(const ModelConfig& config, const ParamSpec& spec, std::uint64_t seed)
    : standard_deviation_(config.initializer_range) {
    std::map<std::string_view, const LeafSpec*> leaves;
    spec.for_each_leaf([&](const LeafSpec& leaf) { leaves[leaf.name] = &leaf; });
    const std::vector<std::string> names = names_in_module_order(config);
    TorchRng generator(seed);

    // Constructors: the embedding draws normals; every linear layer uniforms for its weight, then for its
    // bias. Fused tensors are constructed without drawing.
    const auto numel = [&](std::string_view name) {
        return static_cast<std::uint64_t>(leaves.at(name)->shape.numel());
    };
    std::uint64_t uniforms = 0;
    for (const std::string& name : names) {
        const LeafSpec& leaf = *leaves.at(name);
        const bool draws = leaf.initial != Initial::ones && leaf.fused_tensor.empty();
        if (draws && name != embedding_leaf && name != head_leaf) uniforms += numel(name);
    }
    generator.skip_normal(numel(embedding_leaf));
    generator.skip_uniform(uniforms);

    // The model's own init, in the same order; only matrices draw. Leaves that transformers keeps in one
    // tensor are drawn together.
    const auto draw = [&](const std::vector<std::string>& stacked) {
        std::int64_t rows = 0;
        for (const std::string& name : stacked) rows += leaves.at(name)->shape[0];
        std::int64_t first_row = 0;
        for (const std::string& name : stacked) {
            draws_.emplace(name, Draws{generator, rows, first_row});
            first_row += leaves.at(name)->shape[0];
        }
        generator.skip_normal(static_cast<std::uint64_t>(rows) * numel(stacked[0]) /
                              static_cast<std::uint64_t>(leaves.at(stacked[0])->shape[0]));
    };
    std::map<std::string_view, std::vector<std::string>> fused;
    for (const std::string& name : names)
        if (const std::string& tensor = leaves.at(name)->fused_tensor; !tensor.empty())
            fused[tensor].push_back(name);
    for (const std::string& name : names) {
        const LeafSpec& leaf = *leaves.at(name);
        if (name == head_leaf || leaf.initial != Initial::normal) continue;
        if (leaf.fused_tensor.empty())
            draw({name});
        else if (fused.at(leaf.fused_tensor).front() == name)
            draw(fused.at(leaf.fused_tensor));
    }

    // The head is constructed and drawn last.
    if (!config.tie_word_embeddings) {
        generator.skip_uniform(numel(head_leaf));
        draw({std::string(head_leaf)});
    }
    after_ = generator;
    if (config.tie_word_embeddings) {  // it is constructed and drawn anyway, before it is tied
        after_.skip_uniform(numel(embedding_leaf));
        after_.skip_normal(numel(embedding_leaf));
    }
}

void HfInit::fill(const OwnedLeaf& leaf, std::span<float> out) const {
    if (fill_constant(leaf, out)) return;
    const Draws& draws = draws_.find(leaf.spec->name)->second;
    MatrixSlice slice = slice_of(leaf);
    slice.rows = static_cast<std::uint64_t>(draws.rows);
    slice.row_begin += static_cast<std::uint64_t>(draws.first_row);
    draws.generator.normal_slice(slice, out, 0.0, standard_deviation_);
    clear_padding_row(leaf, out);
}

}  // namespace drover
