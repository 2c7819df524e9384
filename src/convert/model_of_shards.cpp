#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "convert/leaf_name.h"
#include "convert/megatron_names.h"
#include "convert/nxd_plan.h"
#include "core/error.h"
#include "io/safetensors_header.h"

namespace drover {
namespace {

using Item = TensorSource::Item;
using safetensors_detail::shape_text;

constexpr std::string_view not_one_checkpoint =
    "The files are of different checkpoints, or some are damaged.";

/// Rows of one rank's tensor.
struct RankRows {
    std::size_t item;
    std::int64_t begin;
};

bool same_rows(const ShardedCheckpoint& shards, const RankRows& a, const RankRows& b, std::int64_t rows) {
    const StridedTensor left = shards.view(a.item), right = shards.view(b.item);
    const std::size_t bytes = static_cast<std::size_t>(rows * left.columns() * (bits_of(left.dtype) / 8));
    std::vector<std::byte> left_copy(bytes), right_copy(bytes);
    copy_block(left, a.begin, rows, 0, left.columns(), left_copy.data(), left.columns());
    copy_block(right, b.begin, rows, 0, right.columns(), right_copy.data(), right.columns());
    shards.forget();
    return std::memcmp(left_copy.data(), right_copy.data(), bytes) == 0;
}

/// Joins the tensors of all ranks.
class ShardJoiner {
  public:
    /// Without `views`, copies of heads are not compared.
    ShardJoiner(const RankedTensors& shards, const ShardedCheckpoint* views, const NxdSettings& settings)
        : shards_(shards), views_(views), settings_(settings) {
        find_names();
        for (const auto& [name, items] : by_name_) {
            const LeafName leaf(name);
            has_qkv_layer_ =
                has_qkv_layer_ || (leaf.module == "qkv_proj" && leaf.field.find('_') != leaf.field.npos);
        }
        if (has_qkv_layer_) find_slots();
    }

    std::optional<KvSlots::Order> order() const {
        return slots_ ? std::optional(slots_->order) : settings_.order;
    }

    std::vector<PlannedTensor> run() {
        for (const auto& [name, items] : by_name_) add(name, items);
        std::vector<PlannedTensor> tensors;
        for (TensorBuilder& builder : built_) tensors.push_back(builder.tensor());
        set_floating_dtype(tensors, settings_.dtype);
        std::stable_sort(tensors.begin(), tensors.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
            return comes_before(a.name, b.name);
        });
        return tensors;
    }

  private:
    /// Items by tensor rank, and for experts by expert rank before that.
    using RankItems = std::vector<std::size_t>;

    std::int64_t ranks() const { return shards_.sizes().tensor; }
    const Item& item(std::size_t index) const { return shards_.item(index); }

    static bool is_expert(std::string_view name) {
        return name.find(".expert_mlps.") != std::string_view::npos;
    }

    /// Every tensor rank has the same tensors, in the same shapes.
    void find_names() {
        ShardRank rank;
        for (rank.pipeline = 0; rank.pipeline < shards_.sizes().pipeline; ++rank.pipeline) {
            std::map<std::string, RankItems> stage;
            for (rank.experts = 0; rank.experts < shards_.sizes().experts; ++rank.experts)
                for (rank.tensor = 0; rank.tensor < ranks(); ++rank.tensor)
                    for (const auto& [name, index] : shards_.tensors(rank))
                        if (rank.experts == 0 || is_expert(name))
                            stage[from_megatron_name(name)].push_back(index);
            for (auto& [name, items] : stage) {
                const std::int64_t expected = ranks() * (is_expert(name) ? shards_.sizes().experts : 1);
                if (static_cast<std::int64_t>(items.size()) != expected)
                    throw Error(
                        fmt::format("{} is in the files of {} ranks of pipeline rank {} instead of {}.", name,
                                    items.size(), rank.pipeline, expected),
                        not_one_checkpoint);
                for (const std::size_t index : items)
                    if (item(index).shape != item(items[0]).shape ||
                        item(index).dtype != item(items[0]).dtype)
                        throw Error(
                            fmt::format("{} is {} {} on one rank and {} {} on another.", name,
                                        name_of(item(items[0]).dtype), shape_text(item(items[0]).shape),
                                        name_of(item(index).dtype), shape_text(item(index).shape)),
                            not_one_checkpoint);
                check_dimensions(name, item(items[0]));
                by_name_.emplace(name, std::move(items));  // a weight that two stages share counts once
            }
        }
        std::vector<std::string> names;
        for (const auto& [name, items] : by_name_) names.push_back(name);
        count_layers(names, shards_.folder().string());
    }

    /// What is joined is a matrix, or the vector of a bias; experts are three-dimensional.
    static void check_dimensions(const std::string& name, const Item& item) {
        const LeafName leaf(name);
        const bool is_cut = (leaf.module.ends_with("_proj") || leaf.module == "embed_tokens" ||
                             leaf.module == "lm_head" || leaf.module == "key_value") &&
                            !is_expert(name);
        if (is_cut && item.shape.size() != (leaf.field.starts_with("weight") ? 2u : 1u))
            throw Error(
                fmt::format("{} has the shape {}, and cannot be joined.", item.name, shape_text(item.shape)),
                "Check that the files are a model of a family that is known.");
    }

    void find_slots() {
        if (!settings_.config) {
            const bool is_fused = std::ranges::any_of(
                by_name_, [](const auto& entry) { return entry.first.ends_with("_qkv"); });
            if (is_fused || settings_.kv_multiplier > 1)
                throw Error(
                    fmt::format("{} has q, k and v in one layer, and its files do not tell the numbers of "
                                "heads.",
                                shards_.folder().string()),
                    "Add --config with the model's config.json.");
            return;
        }
        slots_ = kv_slots(*settings_.config, settings_.kv_multiplier,
                          settings_.order.value_or(KvSlots::Order::interleaved), ranks());
        slots_here_ = slots_->count() / ranks();
        if (settings_.kv_multiplier > 1 && views_ != nullptr) check_order();
    }

    /// Finds the keys of a slot in the first layer that has some.
    std::optional<RankRows> keys_of(std::int64_t slot) const {
        for (const auto& [name, items] : by_name_) {
            const LeafName leaf(name);
            if (leaf.module != "qkv_proj" || (leaf.field != "weight_k" && leaf.field != "weight_qkv"))
                continue;
            const std::int64_t before = leaf.field == "weight_k" ? 0 : query_rows();
            check_rows(name, items[0], leaf.field == "weight_k" ? kv_rows() : query_rows() + 2 * kv_rows());
            return RankRows{items[static_cast<std::size_t>(slot / slots_here_)],
                            before + slot % slots_here_ * slots_->head_dim};
        }
        return std::nullopt;
    }

    /// Copies of a head are equal, which tells in which order they are.
    void check_order() {
        if (!keys_of(0)) return;
        const auto copies_are_equal = [&](KvSlots::Order order) {
            KvSlots slots = *slots_;
            slots.order = order;
            for (std::int64_t slot = 0; slot < slots.count(); ++slot) {
                const std::int64_t first = slots.first_slot(slots.kv_head(slot));
                if (!same_rows(*views_, *keys_of(first), *keys_of(slot), slots.head_dim)) return false;
            }
            return true;
        };
        if (copies_are_equal(slots_->order)) return;
        const bool adjacent = !settings_.order && copies_are_equal(KvSlots::Order::adjacent);
        if (!adjacent)
            throw Error(
                fmt::format("Copies of a key head differ, with --kv_size_multiplier {}{}.",
                            settings_.kv_multiplier,
                            settings_.order ? " and this --hw_backend" : ", in either order of copies"),
                settings_.order ? "Leave --hw_backend out, and the order is found from the files."
                                : "Give the multiplier with which the checkpoint was saved.");
        slots_->order = KvSlots::Order::adjacent;
    }

    std::int64_t query_rows() const { return slots_here_ * slots_->queries_per_slot() * slots_->head_dim; }
    std::int64_t kv_rows() const { return slots_here_ * slots_->head_dim; }

    void check_rows(const std::string& name, std::size_t index, std::int64_t expected) const {
        if (item(index).shape.empty() || item(index).shape[0] != expected)
            throw Error(fmt::format("{} has the shape {} on a rank, and with this config and "
                                    "--kv_size_multiplier {} it would have {} rows.",
                                    name, shape_text(item(index).shape), settings_.kv_multiplier, expected),
                        "Give the config.json and the multiplier with which the checkpoint was saved.");
    }

    TensorBuilder& builder(std::string name, const RankItems& items) {
        return built_.emplace_back(std::move(name), item(items[0]).dtype);
    }

    void add(const std::string& name, const RankItems& items) {
        const LeafName leaf(name);
        const std::string field(leaf.field.substr(0, leaf.field.find('_')));
        if (is_expert(name))
            add_experts(leaf, items);
        else if (leaf.module == "linear_router" && leaf.prefix.ends_with("mlp.router."))
            builder(fmt::format("{}block_sparse_moe.gate.{}",
                                leaf.prefix.substr(0, leaf.prefix.find("mlp.router.")), leaf.field),
                    items)
                .whole(items[0], item(items[0]));
        else if (leaf.module == "qkv_proj" && leaf.field.ends_with("_qkv"))
            add_fused(leaf, field, items);
        else if (leaf.module == "qkv_proj" && leaf.field != field)
            add_separate(leaf, field, items);
        else if (leaf.module == "qkv_proj")
            add_coalesced(leaf, items);
        else if (leaf.module == "key_value")
            add_parts(leaf, items, {"k_proj", "v_proj"}, {});
        else if (leaf.module == "gate_up_proj")
            add_parts(leaf, items, {"gate_proj", "up_proj"}, {});
        else if (leaf.module == "q_proj" || leaf.module == "k_proj" || leaf.module == "v_proj" ||
                 leaf.module == "embed_tokens" || leaf.module == "lm_head")
            add_parts(leaf, items, {std::string(leaf.module)}, {});
        else if (leaf.module == "o_proj" && leaf.is_weight() && slots_)
            add_output(name, items);
        else if ((leaf.module == "o_proj" || leaf.module == "down_proj") && leaf.is_weight())
            for (TensorBuilder& joined = builder(name, items); const std::size_t index : items)
                joined.append_columns(index, item(index), 0, item(index).columns());
        else
            builder(name, items).whole(items[0], item(items[0]));
    }

    /// Rows of every rank, cut into `modules` of these sizes (equal ones by default).
    void add_parts(const LeafName& leaf, const RankItems& items, const std::vector<std::string>& modules,
                   std::vector<std::int64_t> sizes) {
        const std::int64_t rows = item(items[0]).shape.at(0);
        const auto count = static_cast<std::int64_t>(modules.size());
        if (sizes.empty()) {
            if (rows % count != 0)
                throw Error(fmt::format("{} has {} rows on a rank, which are not {} parts of one size.",
                                        item(items[0]).name, rows, count),
                            not_one_checkpoint);
            sizes.assign(modules.size(), rows / count);
        }
        std::int64_t begin = 0;
        for (std::size_t i = 0; i < modules.size(); begin += sizes[i++])
            for (TensorBuilder& joined = builder(leaf.renamed(modules[i], leaf.field), items);
                 const std::size_t index : items)
                joined.append_rows(index, item(index), begin, sizes[i]);
    }

    void add_coalesced(const LeafName& leaf, const RankItems& items) {
        std::vector<std::int64_t> sizes;
        if (settings_.config) {
            const std::int64_t queries = settings_.config->query_columns() / ranks();
            const std::int64_t keys = settings_.config->key_value_columns() / ranks();
            check_rows(item(items[0]).name, items[0], queries + 2 * keys);
            sizes = {queries, keys, keys};
        }
        add_parts(leaf, items, {"q_proj", "k_proj", "v_proj"}, std::move(sizes));
    }

    void add_fused(const LeafName& leaf, const std::string& field, const RankItems& items) {
        check_rows(item(items[0]).name, items[0], query_rows() + 2 * kv_rows());
        add_heads(leaf.renamed("q_proj", field), items, 0, true);
        add_heads(leaf.renamed("k_proj", field), items, query_rows(), false);
        add_heads(leaf.renamed("v_proj", field), items, query_rows() + kv_rows(), false);
    }

    void add_separate(const LeafName& leaf, const std::string& field, const RankItems& items) {
        const bool queries = leaf.field.back() == 'q';
        if (slots_) check_rows(item(items[0]).name, items[0], queries ? query_rows() : kv_rows());
        add_heads(leaf.renamed(std::string(1, leaf.field.back()) + "_proj", field), items, 0, queries);
    }

    /// The slots in the order of the query heads.
    std::vector<std::int64_t> slots_by_query() const {
        std::vector<std::int64_t> slots(static_cast<std::size_t>(slots_->count()));
        for (std::int64_t slot = 0; slot < slots_->count(); ++slot)
            slots[static_cast<std::size_t>(slots_->first_query(slot) / slots_->queries_per_slot())] = slot;
        return slots;
    }

    /// Query heads, or the first copy of each key/value head; every rank has them from row `begin` on.
    void add_heads(std::string name, const RankItems& items, std::int64_t begin, bool queries) {
        TensorBuilder& joined = builder(std::move(name), items);
        if (!slots_) {
            for (const std::size_t index : items)
                joined.append_rows(index, item(index), 0, item(index).shape.at(0));
            return;
        }
        const auto append = [&](std::int64_t slot, std::int64_t heads) {
            const std::size_t index = items[static_cast<std::size_t>(slot / slots_here_)];
            const std::int64_t rows = heads * slots_->head_dim;
            joined.append_rows(index, item(index), begin + slot % slots_here_ * rows, rows);
        };
        if (queries)
            for (const std::int64_t slot : slots_by_query()) append(slot, slots_->queries_per_slot());
        else
            for (std::int64_t head = 0; head < slots_->kv_heads; ++head) append(slots_->first_slot(head), 1);
    }

    void add_output(const std::string& name, const RankItems& items) {
        TensorBuilder& joined = builder(name, items);
        const std::int64_t columns = slots_->queries_per_slot() * slots_->head_dim;
        if (item(items[0]).columns() != columns * slots_here_)
            throw Error(fmt::format("{} has {} columns on a rank, and with this config it would have {}.",
                                    name, item(items[0]).columns(), columns * slots_here_),
                        "Give the config.json with which the checkpoint was saved.");
        for (const std::int64_t slot : slots_by_query()) {
            const std::size_t index = items[static_cast<std::size_t>(slot / slots_here_)];
            joined.append_columns(index, item(index), slot % slots_here_ * columns, columns);
        }
    }

    /// gate_up [E,H,2I] and down [E,I,H] of every rank as the experts' own matrices.
    void add_experts(const LeafName& leaf, const RankItems& items) {
        const std::vector<std::int64_t>& shape = item(items[0]).shape;
        const bool gate_up = leaf.module == "gate_up_proj";
        if (shape.size() != 3 || (!gate_up && leaf.module != "down_proj") || (gate_up && shape[2] % 2 != 0))
            throw Error(fmt::format("{} of shape {} is not known.", item(items[0]).name, shape_text(shape)),
                        "Only Mixtral's experts (gate_up_proj and down_proj) can be joined.");
        const std::string layer(leaf.prefix.substr(0, leaf.prefix.find("mlp.expert_mlps.")));
        const std::int64_t experts = shape[0];
        const std::int64_t hidden = gate_up ? shape[1] : shape[2], part = gate_up ? shape[2] / 2 : shape[1];
        for (std::int64_t group = 0; group < shards_.sizes().experts; ++group)
            for (std::int64_t e = 0; e < experts; ++e) {
                const std::string prefix =
                    fmt::format("{}block_sparse_moe.experts.{}.", layer, group * experts + e);
                const auto matrix = [&](std::string_view name, std::int64_t column) {
                    PlannedTensor joined{
                        fmt::format("{}{}.weight", prefix, name), item(items[0]).dtype, {}, {}};
                    joined.shape = gate_up ? std::vector<std::int64_t>{part * ranks(), hidden}
                                           : std::vector<std::int64_t>{hidden, part * ranks()};
                    for (std::int64_t rank = 0; rank < ranks(); ++rank)
                        joined.blocks.push_back(
                            {.item = items[static_cast<std::size_t>(group * ranks() + rank)],
                             .row_begin = e * shape[1],
                             .row_count = shape[1],
                             .column_begin = column,
                             .column_count = gate_up ? part : hidden,
                             .transposed = true,
                             .to_row = gate_up ? rank * part : 0,
                             .to_column = gate_up ? 0 : rank * part});
                    built_.emplace_back(std::move(joined));
                };
                if (gate_up) {
                    matrix("w1", 0);
                    matrix("w3", part);
                } else {
                    matrix("w2", 0);
                }
            }
    }

    const RankedTensors& shards_;
    const ShardedCheckpoint* views_;
    const NxdSettings& settings_;
    std::map<std::string, RankItems> by_name_;
    bool has_qkv_layer_ = false;
    std::optional<KvSlots> slots_;
    std::int64_t slots_here_ = 0;  ///< of each rank
    std::deque<TensorBuilder> built_;
};

}  // namespace

std::vector<PlannedTensor> model_of_shards(const ShardedCheckpoint& shards, const NxdSettings& settings) {
    return ShardJoiner(shards, &shards, settings).run();
}

std::vector<PlannedTensor> model_of_ranks(const RankedTensors& ranks, const NxdSettings& settings) {
    return ShardJoiner(ranks, nullptr, settings).run();
}

std::optional<KvSlots::Order> kv_order_of_shards(const ShardedCheckpoint& shards,
                                                 const NxdSettings& settings) {
    return ShardJoiner(shards, &shards, settings).order();
}

ConversionPlan plan_same_shards(const ShardedCheckpoint& shards, const NxdSettings& settings) {
    ConversionPlan plan;
    ShardRank rank;
    for (rank.pipeline = 0; rank.pipeline < shards.sizes().pipeline; ++rank.pipeline)
        for (rank.experts = 0; rank.experts < shards.sizes().experts; ++rank.experts)
            for (rank.tensor = 0; rank.tensor < shards.sizes().tensor; ++rank.tensor) {
                std::vector<PlannedTensor> tensors;
                for (const auto& [name, index] : shards.tensors(rank)) {
                    const Item& item = shards.items()[index];
                    TensorBuilder builder(name, item.dtype);
                    builder.whole(index, item);
                    tensors.push_back(builder.tensor());
                }
                set_floating_dtype(tensors, settings.dtype);
                const std::string path = "model/" + ShardedCheckpoint::file_name(rank, shards.sizes());
                plan.add_rank(path, std::move(tensors), settings.xser);
            }
    return plan;
}

}  // namespace drover
