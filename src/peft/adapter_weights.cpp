#include "peft/adapter_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "model/adapters.h"
#include "model/config.h"
#include "model/params.h"
#include "peft/low_rank_merge.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::vector<std::int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

fs::path weights_in(const fs::path& folder) {
    for (const std::string_view name : {adapter_weights_file, adapter_pickle_file})
        if (fs::exists(folder / name)) return folder / name;
    throw Error(fmt::format("{} holds no weights of an adapter: neither {} nor {}.", folder.string(),
                            adapter_weights_file, adapter_pickle_file),
                "Check the path; it must be a folder that PEFT or a training run saved.");
}

PeftConfig config_in(const fs::path& folder, const PeftWarning& warn) {
    if (!is_adapter_folder(folder))
        throw Error(fmt::format("{} is no adapter: it has no {}.", folder.string(), adapter_config_file),
                    "Name a folder that PEFT or a training run with --use_peft saved.");
    return PeftConfig::read(folder, warn);
}

/// Where transformers 5.x has a module of a Mixtral block.
std::string renamed_module(std::string module) {
    constexpr std::string_view published = ".block_sparse_moe.";
    if (const auto at = module.find(published); at != std::string::npos)
        module.replace(at, published.size(), ".mlp.");
    return module;
}

}  // namespace

std::string name_in_adapter_file(std::string_view leaf) {
    return fmt::format("{}{}", adapter_prefix, leaf);
}

AdapterWeights::AdapterWeights(const fs::path& folder, const ModelConfig& model, const PeftWarning& warn)
    : folder_(folder), config_(config_in(folder, warn)) {
    resolved_ = resolve_adapter(config_, model, where());
    weights_ = std::make_unique<ModelWeights>(weights_in(folder));
    plan(model);
    for (const std::string& name : used_) check_numbers(name);
}

void AdapterWeights::check_numbers(const std::string& name) const {
    weights_->verify(name);
    const Tensor tensor = weights_->find(name);
    const std::int64_t rows = tensor.size(0), columns = rows > 0 ? tensor.numel() / rows : 0;
    // A whole embedding may be among them.
    const std::int64_t at_once = std::max<std::int64_t>(1, (1 << 20) / std::max<std::int64_t>(1, columns));
    std::vector<float> values;
    for (std::int64_t begin = 0; begin < rows; begin += at_once) {
        const std::int64_t count = std::min(at_once, rows - begin);
        values.resize(static_cast<std::size_t>(count * columns));
        read_rows(tensor, begin, count,
                  Tensor::of(values.data(), tensor.rank() == 1 ? Shape{count} : Shape{count, columns}));
        for (const float value : values)
            if (!std::isfinite(value))
                throw Error(fmt::format("{}: the tensor {} holds a number that is not finite ({}).",
                                        file().string(), name, value),
                            "The training that made it went wrong, or the file is damaged: take an earlier "
                            "checkpoint.");
    }
    weights_->forget();
}

std::vector<std::string> AdapterWeights::changed_leaves() const {
    std::vector<std::string> leaves;
    for (const auto& [leaf, change] : changed_) leaves.push_back(leaf);
    return leaves;
}

Tensor AdapterWeights::find(std::string_view leaf) const {
    for (const std::string& name :
         {name_in_adapter_file(leaf), name_in_adapter_file(renamed_module(std::string(leaf))),
          name_in_adapter_file(leaf) + ".weight"})
        if (has(name)) return weights_->find(name);
    return {};
}

std::string AdapterWeights::where() const {
    return (folder_ / adapter_config_file).string();
}

void AdapterWeights::plan(const ModelConfig& model) {
    std::map<std::string, Shape> shapes;
    ModelConfig separate = model;
    separate.separate_head();
    make_param_spec(separate).for_each_leaf(
        [&](const LeafSpec& leaf) { shapes.emplace(leaf.name, leaf.shape); });
    for (const AdaptedWeight& weight : resolved_.adapters.weights) plan_leaf(weight, shapes.at(weight.leaf));
    for (const FusedExpertsAdapter& fused : resolved_.fused) plan_experts(fused, model, shapes);
    plan_replacements(shapes);
    if (model.tie_word_embeddings) share_replacement();
    for (const std::string& leaf : resolved_.adapters.trained_leaves)
        if (!changed_.contains(leaf))
            throw Error(fmt::format("{} has no tensor {}, though modules_to_save names its module.",
                                    file().string(), name_in_adapter_file(leaf)),
                        "Save the adapter again.");
    for (const std::string& name : weights_->names())
        if (!used_.contains(name))
            throw Error(fmt::format("{} has the tensor {}, which belongs to no weight that {} adapts.",
                                    file().string(), name, adapter_config_file),
                        "Check that the adapter was made for this base model.");
}

/// Marks a tensor as used. Error unless it is there with this shape.
void AdapterWeights::use(const std::string& name, const std::vector<std::int64_t>& shape) {
    const SafetensorsEntry* const entry = weights_->entry(name);
    if (entry == nullptr)
        throw Error(fmt::format("{} has no tensor {}.", file().string(), name),
                    "Check that the adapter was made for this base model, and that the file is complete.");
    if (entry->shape != shape)
        throw Error(fmt::format("{}: the tensor {} is {}, but it must be {}.", file().string(), name,
                                text_of(entry->shape), text_of(shape)),
                    "Check that the adapter was made for this base model.");
    if (const auto dtype = engine_dtype_of(entry->dtype); !dtype || !is_floating(*dtype))
        throw Error(fmt::format("{}: the tensor {} has the element type {}.", file().string(), name,
                                name_of(entry->dtype)),
                    "Adapters are F32, BF16 or F16.");
    used_.insert(name);
}

void AdapterWeights::plan_leaf(const AdaptedWeight& weight, const Shape& shape) {
    const auto stored = [&](const std::string& leaf) {
        const std::string renamed = name_in_adapter_file(renamed_module(leaf));
        return has(renamed) ? renamed : name_in_adapter_file(leaf);
    };
    Change change{.a = stored(weight.a()),
                  .b = stored(weight.b()),
                  .scale = weight.scale,
                  .rank = weight.rank,
                  .of_embedding = weight.is_embedding()};
    const std::int64_t in = shape[weight.is_embedding() ? 0 : 1], out = shape[weight.is_embedding() ? 1 : 0];
    use(change.a, {weight.rank, in});
    use(change.b, {out, weight.rank});
    if (resolved_.adapters.magnitudes) {
        change.magnitude = stored(weight.magnitudes());
        if (has(change.magnitude + ".weight")) change.magnitude += ".weight";
        use(change.magnitude, {shape[0]});
    }
    changed_[weight.leaf] = std::move(change);
}

void AdapterWeights::plan_experts(const FusedExpertsAdapter& fused, const ModelConfig& model,
                                  std::map<std::string, Shape>& shapes) {
    using Weight = FusedExpertsAdapter::Weight;
    const bool is_down = fused.weight == Weight::down;
    const std::int64_t experts = model.moe.experts, hidden = model.hidden_size, ffn = model.intermediate_size;
    const std::int64_t in = is_down ? ffn : hidden, out = is_down ? hidden : 2 * ffn;
    // Two adapted weights of one module are nested, and the inner one is in its "base_layer". The shapes tell
    // which is which.
    for (const std::string_view nested : {"", ".base_layer"}) {
        const std::string name = name_in_adapter_file(fused.module) + std::string(nested);
        const SafetensorsEntry* const a = weights_->entry(name + ".lora_A.weight");
        const SafetensorsEntry* const b = weights_->entry(name + ".lora_B.weight");
        if (a == nullptr || b == nullptr || a->shape.back() != in || b->shape.front() != out) continue;
        use(name + ".lora_A.weight", {fused.rank * experts, in});
        use(name + ".lora_B.weight", {out, fused.rank * experts});
        for (std::int64_t expert = 0; expert < experts; ++expert) {
            const auto add = [&](std::string_view leaf, std::int64_t first_row) {
                const std::string whole = fmt::format("{}{}.{}.weight", fused.leaves, expert, leaf);
                require(shapes.contains(whole), "an expert that the model does not have");
                changed_[whole] = {.a = name + ".lora_A.weight",
                                   .b = name + ".lora_B.weight",
                                   .scale = fused.scale,
                                   .expert = expert,
                                   .experts = experts,
                                   .first_row = first_row,
                                   .rank = fused.rank};
            };
            if (is_down) {
                add("w2", 0);
            } else {
                add("w1", 0);
                add("w3", ffn);
            }
        }
        return;
    }
    throw Error(fmt::format("{} has no adapter of {}.{}.", file().string(), fused.module,
                            is_down ? "down_proj" : "gate_up_proj"),
                "Check that the adapter was made for this base model, and that the file is complete.");
}

/// Weights of the model itself: modules that were trained whole, and embeddings that PEFT saves beside their
/// adapters.
void AdapterWeights::plan_replacements(const std::map<std::string, Shape>& shapes) {
    for (const auto& [leaf, shape] : shapes) {
        const std::size_t dot = leaf.rfind('.');
        const std::string base = leaf.substr(0, dot) + ".base_layer" + leaf.substr(dot);
        for (const std::string& name : {name_in_adapter_file(leaf), name_in_adapter_file(base),
                                        name_in_adapter_file(renamed_module(leaf))}) {
            if (!has(name) || used_.contains(name)) continue;
            use(name, std::vector<std::int64_t>(shape.begin(), shape.end()));
            changed_[leaf].replacement = name;
        }
    }
}

/// PEFT loads an embedding that it has saved beside the adapters into the base model, where it is also the
/// head. One that was trained whole is another weight than the head.
void AdapterWeights::share_replacement() {
    const auto embedding = changed_.find(embedding_leaf);
    if (embedding == changed_.end() || embedding->second.replacement.empty()) return;
    const std::vector<std::string>& whole = resolved_.adapters.trained_leaves;
    if (std::ranges::find(whole, embedding_leaf) != whole.end()) return;
    Change& head = changed_[std::string(head_leaf)];
    if (head.replacement.empty()) head.replacement = embedding->second.replacement;
}

AdapterWeights::Matrix AdapterWeights::read(const std::string& name) const {
    weights_->verify(name);
    const Tensor tensor = weights_->find(name);
    const Shape& shape = tensor.shape();
    Matrix matrix{.rows = shape[0], .columns = shape.rank() > 1 ? shape[1] : 1};
    matrix.values.resize(static_cast<std::size_t>(shape.numel()));
    read_rows(tensor, 0, matrix.rows, Tensor::of(matrix.values.data(), shape));
    return matrix;
}

/// [rank,in]
AdapterWeights::Matrix AdapterWeights::read_a(const Change& change) const {
    Matrix all = read(change.a);
    if (change.expert < 0) return all;
    const auto begin = all.values.begin() + change.expert * change.rank * all.columns;
    return {.rows = change.rank,
            .columns = all.columns,
            .values = std::vector<float>(begin, begin + change.rank * all.columns)};
}

/// [out,rank]
AdapterWeights::Matrix AdapterWeights::read_b(const Change& change, std::int64_t rows) const {
    Matrix all = read(change.b);
    if (change.expert < 0) return all;
    Matrix own{.rows = rows, .columns = change.rank, .values = {}};
    own.values.resize(static_cast<std::size_t>(rows * change.rank));
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t r = 0; r < change.rank; ++r)
            own.values[static_cast<std::size_t>(row * change.rank + r)] = all.values[static_cast<std::size_t>(
                (change.first_row + row) * all.columns + r * change.experts + change.expert)];
    return own;
}

void AdapterWeights::merge(std::string_view leaf, const Shape& shape, std::span<float> weight) const {
    const auto found = changed_.find(leaf);
    if (found == changed_.end()) return;
    const Change& change = found->second;
    require(static_cast<std::int64_t>(weight.size()) == shape.numel(),
            "a weight of another size than its shape");
    if (!change.replacement.empty()) std::ranges::copy(read(change.replacement).values, weight.begin());
    if (change.a.empty()) return;
    const std::int64_t rows = shape[0], columns = shape[1];
    Matrix a, b;
    if (change.of_embedding) {
        const Matrix wide = read(change.a), narrow = read(change.b);  // [rank,V] and [H,rank]
        a.values = transposed(narrow.values, narrow.rows, narrow.columns);
        b.values = transposed(wide.values, wide.rows, wide.columns);
    } else {
        a = read_a(change);
        b = read_b(change, rows);
    }
    const Matrix magnitude = change.magnitude.empty() ? Matrix{} : read(change.magnitude);
    merge_low_rank({.a = a.values,
                    .b = b.values,
                    .magnitude = magnitude.values,
                    .rank = change.rank,
                    .scale = change.scale},
                   rows, columns, weight);
    weights_->forget();
}

ModelConfig merged_config(ModelConfig base, std::span<const AdapterWeights> adapters) {
    if (std::ranges::any_of(adapters, &AdapterWeights::changes_vocabulary)) base.separate_head();
    return base;
}

MergedWeights::MergedWeights(const fs::path& base, const ModelConfig& model,
                             std::span<const AdapterWeights> adapters)
    : base_(base), adapters_(adapters) {
    std::vector<ExpectedTensor> expected;
    make_param_spec(model).for_each_leaf([&](const LeafSpec& leaf) {
        expected.push_back({leaf.name, leaf.shape});
    });
    report_ = match_names(
        expected, base_,
        {.tied_head = model.tie_word_embeddings, .head_from_embedding = model.head_from_embedding});
    if (!report_.missing.empty())
        throw Error(fmt::format("{} has no tensor {}{}.", base.string(), report_.missing.front(),
                                report_.missing.size() == 1
                                    ? ""
                                    : fmt::format(" and lacks {} more", report_.missing.size() - 1)),
                    "Check that config.json belongs to these weights.");
}

std::vector<float> MergedWeights::read(const std::string& leaf, const Shape& shape) const {
    std::vector<float> values(static_cast<std::size_t>(shape.numel()));
    read_rows(base_.find(report_.found.at(leaf)), 0, shape[0], Tensor::of(values.data(), shape));
    base_.forget();
    for (const AdapterWeights& adapter : adapters_) adapter.merge(leaf, shape, values);
    return values;
}

}  // namespace drover
