#include <fmt/format.h>

#include <deque>

#include "convert/leaf_name.h"
#include "convert/look_through.h"
#include "convert/megatron_names.h"
#include "convert/model_plan.h"
#include "convert/nxd_plan.h"
#include "core/error.h"
#include "io/safetensors_header.h"
#include "model/partition.h"

namespace drover {
namespace {

using Item = TensorSource::Item;

constexpr std::string_view experts_folder = "block_sparse_moe.experts.";

/// The three matrices of an expert, as items: gate [I,H], down [H,I], up [I,H].
struct ExpertItems {
    std::size_t w1 = 0, w2 = 0, w3 = 0;
    int found = 0;
};

/// Makes the tensors of one rank after the other.
class ShardPlanner {
  public:
    ShardPlanner(const std::vector<Item>& items, const NxdSettings& settings)
        : items_(items), settings_(settings) {
        std::vector<std::string> names;
        for (const Item& item : items_) names.push_back(item.name);
        const std::int64_t layers = count_layers(names, "The model");
        const std::int64_t stages = settings.sizes.pipeline * settings.virtual_pipeline;
        if (layers < stages)
            throw Error(
                fmt::format("The model has {} layers, but --pp_size {} and --virtual_pp_size {} make {} "
                            "stages.",
                            layers, settings.sizes.pipeline, settings.virtual_pipeline, stages),
                "Every stage needs a layer: use smaller sizes.");
        ModelConfig counted;
        counted.num_hidden_layers = layers;
        std::int64_t stage = 0;
        for (const ModelChunk& chunk : cut_into_stages(counted, static_cast<int>(stages), {}))
            pipeline_of_layer_.insert(pipeline_of_layer_.end(), static_cast<std::size_t>(chunk.blocks.count),
                                      stage++ % settings.sizes.pipeline);
        for (const Item& item : items_) check_dimensions(item);
        if (settings.qkv_linear && !settings.megatron) find_slots();
        if (settings.coalesce_qkv && !settings.megatron) check_equal_heads();
        find_experts();
    }

    /// What is cut is a matrix, or the vector of a bias.
    static void check_dimensions(const Item& item) {
        const std::string_view module = LeafName(item.name).module;
        const bool is_cut = module.ends_with("_proj") || module == "embed_tokens" || module == "lm_head" ||
                            item.name.find(experts_folder) != std::string::npos;
        if (is_cut && item.shape.size() != (LeafName(item.name).is_weight() ? 2u : 1u))
            throw Error(fmt::format("{} has the shape {}, and cannot be cut.", item.name,
                                    safetensors_detail::shape_text(item.shape)),
                        "Check that the file is a model of a family that is known.");
    }

    std::vector<PlannedTensor> rank(const ShardRank& rank) {
        rank_ = rank;
        tensors_.clear();
        by_name_.clear();
        for (std::size_t i = 0; i < items_.size(); ++i)
            if (is_here(items_[i].name)) add(i, items_[i]);
        add_tied_head();
        std::vector<PlannedTensor> result;
        for (const TensorBuilder& builder : tensors_) result.push_back(builder.tensor());
        set_floating_dtype(result, settings_.dtype);
        if (settings_.megatron)
            for (PlannedTensor& tensor : result) tensor.name = to_megatron_name(tensor.name);
        return result;
    }

  private:
    void find_slots() {
        if (!settings_.config) {
            if (settings_.kv_multiplier > 1 || settings_.pads_heads)
                throw Error(
                    "With --kv_size_multiplier or --pad_attn_heads the numbers of heads are needed, which "
                    "the "
                    "weights do not tell.",
                    "Add --config with the model's config.json.");
            return;
        }
        slots_ = kv_slots(*settings_.config, settings_.kv_multiplier,
                          settings_.order.value_or(KvSlots::Order::interleaved), settings_.sizes.tensor,
                          settings_.pads_heads);
        for (const Item& item : items_) {
            const LeafName leaf(item.name);
            const bool query = leaf.module == "q_proj",
                       key = leaf.module == "k_proj" || leaf.module == "v_proj";
            const std::int64_t expected = (key ? slots_->kv_heads : slots_->query_heads) * slots_->head_dim;
            const bool output = leaf.module == "o_proj" && leaf.is_weight();
            const std::int64_t found = output ? item.columns() : item.shape.empty() ? 1 : item.shape[0];
            if ((query || key || output) && found != expected)
                throw Error(fmt::format("{} has {} {}, and the config's heads have {}.", item.name, found,
                                        output ? "columns" : "rows", expected),
                            "Use the config.json that belongs to these weights.");
        }
    }

    void check_equal_heads() const {
        std::map<std::string, std::int64_t> rows;
        for (const Item& item : items_)
            if (LeafName(item.name).is_weight()) rows[item.name] = item.shape.at(0);
        for (const auto& [name, count] : rows) {
            const LeafName leaf(name);
            if (leaf.module != "q_proj") continue;
            const auto key = rows.find(leaf.renamed("k_proj", "weight"));
            if (key != rows.end() && key->second != count)
                throw Error(
                    fmt::format("--coalesce_qkv needs q, k and v of one size, but {} has {} rows and {} "
                                "has {}.",
                                name, count, key->first, key->second),
                    "Use --qkv_linear for models with fewer key/value heads.");
        }
    }

    void find_experts() {
        for (std::size_t i = 0; i < items_.size(); ++i) {
            const LeafName leaf(items_[i].name);
            const auto at = leaf.prefix.find(experts_folder);
            if (at == std::string_view::npos) continue;
            const std::string layer(leaf.prefix.substr(0, at));
            const auto number = static_cast<std::size_t>(expert_of(items_[i].name));
            if (number >= items_.size())
                throw Error(fmt::format("{} has the number of no expert.", items_[i].name),
                            "Check that the file is a model of the Mixtral family.");
            std::vector<ExpertItems>& experts = experts_[layer];
            if (experts.size() <= number) experts.resize(number + 1);
            ExpertItems& expert = experts[number];
            (leaf.module == "w1" ? expert.w1 : leaf.module == "w2" ? expert.w2 : expert.w3) = i;
            ++expert.found;
        }
        if (settings_.inner_multiple > 0 && experts_.empty()) refuse_inner_multiple();
        for (const auto& [layer, experts] : experts_) {
            for (std::size_t e = 0; e < experts.size(); ++e)
                if (experts[e].found != 3)
                    throw Error(fmt::format("{}{}{} does not have w1, w2 and w3.", layer, experts_folder, e),
                                "Check that all files of the checkpoint are there.");
            part_of(static_cast<std::int64_t>(experts.size()), settings_.sizes.experts, "--ep_size",
                    fmt::format("the experts of {}", layer));
        }
    }

    /// Layers of this pipeline rank; the embedding on the first, norm and head on the last. Expert ranks but
    /// the first have experts alone.
    bool is_here(std::string_view name) const {
        if (rank_.experts > 0 && name.find(experts_folder) == std::string_view::npos) return false;
        if (const std::int64_t layer = layer_of(name); layer >= 0)
            return pipeline_of_layer_[static_cast<std::size_t>(layer)] == rank_.pipeline;
        if (LeafName(name).module == "embed_tokens") return rank_.pipeline == 0;
        return rank_.pipeline == settings_.sizes.pipeline - 1;
    }

    static std::int64_t part_of(std::int64_t size, std::int64_t parts, std::string_view flag,
                                const std::string& what) {
        if (size % parts != 0)
            throw Error(fmt::format("{} {} does not divide {} ({}).", flag, parts, what, size),
                        "Choose a size that divides it.");
        return size / parts;
    }

    /// The tensor of this name, to which `item` is appended.
    TensorBuilder& builder(const std::string& name, const Item& item) {
        const auto found = by_name_.find(name);
        if (found == by_name_.end()) return *(by_name_[name] = &tensors_.emplace_back(name, item.dtype));
        const PlannedTensor& begun = found->second->tensor();
        if (begun.dtype != item.dtype || begun.shape.size() != item.shape.size() ||
            (begun.shape.size() == 2 && begun.shape[1] != item.shape[1]))
            throw Error(fmt::format("{} is {} {}, which does not fit the others that become {}.", item.name,
                                    name_of(item.dtype), safetensors_detail::shape_text(item.shape), name),
                        "Check that all files are of one model.");
        return *found->second;
    }

    void add(std::size_t index, const Item& item) {
        const LeafName leaf(item.name);
        const bool attention = leaf.module == "q_proj" || leaf.module == "k_proj" || leaf.module == "v_proj";
        const std::string part(1, leaf.module.empty() ? ' ' : leaf.module[0]);
        if (leaf.prefix.find(experts_folder) != std::string_view::npos)
            add_experts(leaf);
        else if (leaf.prefix.ends_with("block_sparse_moe.") && leaf.module == "gate")
            builder(fmt::format("{}mlp.router.linear_router.weight", layer_prefix_of(leaf.prefix)), item)
                .whole(index, item);
        else if (attention && settings_.megatron)
            add_rows(builder(leaf.renamed(megatron_module(leaf.module), leaf.field), item), index, item);
        else if (attention && settings_.qkv_linear)
            add_slots(builder(leaf.renamed("qkv_proj", fmt::format("{}_{}", leaf.field,
                                                                   settings_.fuse_qkv ? "qkv" : part)),
                              item),
                      index, item, leaf.module == "q_proj");
        else if (attention && settings_.coalesce_qkv)
            add_rows(builder(leaf.renamed("qkv_proj", leaf.field), item), index, item);
        else if (attention || leaf.module == "embed_tokens" || leaf.module == "lm_head")
            add_rows(builder(item.name, item), index, item);
        else if (leaf.module == "gate_proj" || leaf.module == "up_proj")
            add_rows(builder(leaf.renamed("gate_up_proj", leaf.field), item), index, item);
        else if (leaf.module == "o_proj" && leaf.is_weight())
            add_output(builder(item.name, item), index, item);
        else if (leaf.module == "down_proj" && leaf.is_weight())
            add_columns(builder(item.name, item), index, item);
        else
            builder(item.name, item).whole(index, item);
    }

    /// The matrix that has a part of attention.
    std::string_view megatron_module(std::string_view module) const {
        if (!settings_.qkv_linear) return "qkv_proj";
        return module == "q_proj" ? module : "key_value";
    }

    static std::string_view layer_prefix_of(std::string_view prefix) {
        return prefix.substr(0, prefix.find("block_sparse_moe."));
    }

    void add_rows(TensorBuilder& to, std::size_t index, const Item& item) const {
        const std::int64_t rows =
            part_of(item.shape.at(0), settings_.sizes.tensor, "--tp_size", "the rows of " + item.name);
        to.append_rows(index, item, rank_.tensor * rows, rows);
    }

    void add_columns(TensorBuilder& to, std::size_t index, const Item& item) const {
        const std::int64_t columns =
            part_of(item.columns(), settings_.sizes.tensor, "--tp_size", "the columns of " + item.name);
        to.append_columns(index, item, rank_.tensor * columns, columns);
    }

    template <class Add>
    void for_each_slot(Add&& add) const {
        const std::int64_t here = slots_->count() / settings_.sizes.tensor;
        for (std::int64_t slot = rank_.tensor * here; slot < (rank_.tensor + 1) * here; ++slot) add(slot);
    }

    void add_slots(TensorBuilder& to, std::size_t index, const Item& item, bool queries) const {
        if (!slots_) return add_rows(to, index, item);
        for_each_slot([&](std::int64_t slot) {
            const std::int64_t d = slots_->head_dim;
            if (!queries) return to.append_rows(index, item, slots_->kv_head(slot) * d, d);
            const std::int64_t heads = slots_->queries_in(slot);
            if (heads > 0) to.append_rows(index, item, slots_->first_query(slot) * d, heads * d);
            to.append_zero_rows(item, (slots_->places_per_slot() - heads) * d);
        });
    }

    void add_output(TensorBuilder& to, std::size_t index, const Item& item) const {
        if (!slots_) return add_columns(to, index, item);
        for_each_slot([&](std::int64_t slot) {
            const std::int64_t d = slots_->head_dim, heads = slots_->queries_in(slot);
            if (heads > 0) to.append_columns(index, item, slots_->first_query(slot) * d, heads * d);
            to.append_zero_columns(item, (slots_->places_per_slot() - heads) * d);
        });
    }

    /// All experts of a layer when the first is met: [E,H,2I] and [E,I,H], transposed.
    void add_experts(const LeafName& leaf) {
        const std::string layer(layer_prefix_of(leaf.prefix));
        const std::string folder = layer + "mlp.expert_mlps.mlp_op.";
        const std::string gate_up_name = folder + "gate_up_proj.weight";
        if (by_name_.contains(gate_up_name)) return;
        const std::vector<ExpertItems>& experts = experts_.at(layer);
        const Item& first = items_[experts[0].w1];
        const std::int64_t inner = first.shape.at(0), hidden = first.columns();
        const std::int64_t part =
            part_of(inner, settings_.sizes.tensor, "--tp_size", "the rows of " + first.name);
        const std::int64_t here = static_cast<std::int64_t>(experts.size()) / settings_.sizes.experts;
        const std::int64_t padded = padded_inner(part, settings_.inner_multiple);
        PlannedTensor gate_up{gate_up_name, first.dtype, {here, hidden, 2 * padded}, {}};
        PlannedTensor down{folder + "down_proj.weight", first.dtype, {here, padded, hidden}, {}};
        const std::int64_t begin = rank_.tensor * part;
        for (std::int64_t e = 0; e < here; ++e) {
            const ExpertItems& expert = experts[static_cast<std::size_t>(rank_.experts * here + e)];
            check_expert(expert, inner, hidden);
            const Block half{.row_begin = begin,
                             .row_count = part,
                             .column_count = hidden,
                             .transposed = true,
                             .to_row = e * hidden};
            gate_up.blocks.push_back(half);
            gate_up.blocks.back().item = expert.w1;
            gate_up.blocks.push_back(half);
            gate_up.blocks.back().item = expert.w3;
            gate_up.blocks.back().to_column = padded;
            down.blocks.push_back({.item = expert.w2,
                                   .row_count = hidden,
                                   .column_begin = begin,
                                   .column_count = part,
                                   .transposed = true,
                                   .to_row = e * padded});
            if (padded == part) continue;
            for (const std::int64_t column : {part, padded + part})
                gate_up.blocks.push_back({.item = Block::zeros,
                                          .row_count = hidden,
                                          .column_count = padded - part,
                                          .to_row = e * hidden,
                                          .to_column = column});
            down.blocks.push_back({.item = Block::zeros,
                                   .row_count = padded - part,
                                   .column_count = hidden,
                                   .to_row = e * padded + part});
        }
        by_name_[gate_up_name] = &tensors_.emplace_back(std::move(gate_up));
        tensors_.emplace_back(std::move(down));
    }

    void check_expert(const ExpertItems& expert, std::int64_t inner, std::int64_t hidden) const {
        const auto check = [&](std::size_t index, std::int64_t rows, std::int64_t columns) {
            const Item& item = items_[index];
            if (item.shape != std::vector<std::int64_t>{rows, columns})
                throw Error(fmt::format("{} does not have the shape of the layer's other experts, [{}, {}].",
                                        item.name, rows, columns),
                            "Check that all files are of one model.");
        };
        check(expert.w1, inner, hidden);
        check(expert.w2, hidden, inner);
        check(expert.w3, inner, hidden);
    }

    /// Safetensors of a model whose head is the embedding have no head; a state dict of torch does.
    void add_tied_head() {
        if (!settings_.config || !settings_.config->tie_word_embeddings || rank_.experts > 0 ||
            rank_.pipeline != settings_.sizes.pipeline - 1)
            return;
        std::optional<std::size_t> embedding;
        for (std::size_t i = 0; i < items_.size(); ++i) {
            const LeafName leaf(items_[i].name);
            if (leaf.module == "lm_head") return;
            if (leaf.module == "embed_tokens") embedding = i;
        }
        if (embedding)
            add_rows(tensors_.emplace_back("lm_head.weight", items_[*embedding].dtype), *embedding,
                     items_[*embedding]);
    }

    const std::vector<Item>& items_;
    const NxdSettings& settings_;
    std::vector<std::int64_t> pipeline_of_layer_;
    std::optional<KvSlots> slots_;
    std::map<std::string, std::vector<ExpertItems>> experts_;  ///< by the prefix of their layer
    ShardRank rank_;
    std::deque<TensorBuilder> tensors_;
    std::map<std::string, TensorBuilder*> by_name_;  ///< into tensors_
};

}  // namespace

ConversionPlan plan_shards_of_model(const std::vector<PlannedTensor>& model, const NxdSettings& settings) {
    const std::vector<Item> items = items_of(model);
    ShardPlanner planner(items, settings);
    ConversionPlan plan;
    ShardRank rank;
    for (rank.pipeline = 0; rank.pipeline < settings.sizes.pipeline; ++rank.pipeline)
        for (rank.experts = 0; rank.experts < settings.sizes.experts; ++rank.experts)
            for (rank.tensor = 0; rank.tensor < settings.sizes.tensor; ++rank.tensor) {
                const std::string path = "model/" + ShardedCheckpoint::file_name(rank, settings.sizes);
                std::vector<PlannedTensor> tensors = planner.rank(rank);
                for (PlannedTensor& tensor : tensors) look_through(tensor, model);
                plan.add_rank(path, std::move(tensors), settings.xser);
            }
    return plan;
}

ConversionPlan plan_shards_of_model(const FullCheckpoint& model, const NxdSettings& settings) {
    return plan_shards_of_model(whole_model(model, std::nullopt), settings);
}

}  // namespace drover
