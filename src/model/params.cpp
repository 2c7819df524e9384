#include "model/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "core/error.h"
#include "model/config.h"
#include "model/families/family.h"
#include "model/families/leaves.h"

namespace drover {
namespace {

bool is_norm(BlockStorage::Index storage) {
    return storage == BlockStorage::attention_norm || storage == BlockStorage::mlp_norm;
}

bool norms_decayed(const Family& family, const HfCompat& compat) {
    return family.old_releases_decay_norms && compat.mixtral_norms_decayed;
}

UnitSpec block_unit(const ModelConfig& config, const HfCompat& compat, int index) {
    UnitSpec unit{.name = fmt::format("block {}", index), .storages = {}};
    unit.storages.resize(BlockStorage::count);
    const Family& family = family_of(config);
    for (BlockLeaf& part : family.block_leaves(config, compat, index)) {
        if (is_norm(part.storage)) part.leaf.decayed |= norms_decayed(family, compat);
        unit.storages[part.storage].leaves.push_back(std::move(part.leaf));
    }
    return unit;
}

// ----------------------------------------------------------------------------------------------- adapters

LeafSpec adapter_leaf(const LeafSpec& adapted, std::string name, const Shape& shape) {
    const bool decayed = takes_weight_decay(name);
    return {.name = std::move(name), .shape = shape, .decayed = decayed, .adapted = adapted.name};
}

/// A [rank,in]. Where the weight's rows are split, a rank's gradient of A comes from its rows alone; where
/// its columns are, A's are too.
LeafSpec leaf_a(const LeafSpec& weight, const AdaptedWeight& adapted) {
    LeafSpec leaf = adapter_leaf(weight, adapted.a(), {adapted.rank, weight.shape[1]});
    leaf.initial = Initial::adapter;
    if (weight.split == Split::rows) leaf.partial_gradient = PartialGradient::always;
    if (weight.split == Split::columns) leaf.split = Split::columns;
    return leaf;
}

/// B [out,rank]. Where the weight's columns are split, a rank has a part of the sum A·x, so its gradient of B
/// is a part too.
LeafSpec leaf_b(const LeafSpec& weight, const AdaptedWeight& adapted) {
    LeafSpec leaf = adapter_leaf(weight, adapted.b(), {weight.shape[0], adapted.rank});
    leaf.initial = Initial::zeros;
    if (weight.split == Split::rows) {
        leaf.split = Split::rows;
        leaf.largest_split = weight.largest_split;
    }
    if (weight.split == Split::columns) leaf.partial_gradient = PartialGradient::always;
    return leaf;
}

/// The lengths [out] of the rows, placed as B is.
LeafSpec leaf_of_magnitudes(const LeafSpec& weight, const AdaptedWeight& adapted) {
    LeafSpec leaf = leaf_b(weight, adapted);
    leaf.name = adapted.magnitudes();
    leaf.shape = {weight.shape[0]};
    leaf.initial = Initial::ones;  // of a model from scratch; the lengths of rows otherwise
    return leaf;
}

[[noreturn]] void cannot_adapt(std::string_view leaf, std::string_view why, std::string_view remedy) {
    throw Error(fmt::format("LoRA cannot adapt {}{}.", leaf, why), std::string(remedy));
}

/// Adds the adapters of one matrix to its unit.
class UnitAdapters {
  public:
    explicit UnitAdapters(const Adapters& adapters) : adapters_(adapters) {
        for (const AdaptedWeight& weight : adapters.weights) wanted_.emplace(weight.leaf, &weight);
        for (const std::string& leaf : adapters.trained_leaves) trained_.insert(leaf);
        if (!adapters.magnitudes) return;
        for (const std::string& leaf : adapters.trained_leaves)
            if (leaf.ends_with(".bias"))
                throw Error(fmt::format("The bias {} cannot be trained together with DoRA.", leaf),
                            "Use LoRA, or leave the biases as they are.");
    }

    void add(UnitSpec& unit) {
        for (StorageSpec& storage : unit.storages)
            for (LeafSpec& leaf : storage.leaves) leaf.trained = trained_.erase(leaf.name) > 0;
        switch (unit.kind) {
            case UnitSpec::Kind::embedding:
                return add_to_embedding(unit);
            case UnitSpec::Kind::head:
                return add_to_head(unit);
            case UnitSpec::Kind::block:
                for (const AdapterStorages& storages : adapter_storages()) add(unit, storages);
        }
    }

    /// Error when something was asked for that no unit has.
    void check_all_found() const {
        if (!wanted_.empty())
            cannot_adapt(wanted_.begin()->first, "",
                         "Choose the embedding, the head, or matrices of attention, feed-forward, router or "
                         "experts as "
                         "target_modules.");
        if (!trained_.empty())
            throw Error(fmt::format("The model has no weight {} to train whole.", *trained_.begin()),
                        "Correct modules_to_save.");
    }

  private:
    /// The adapter of the only leaf of a storage; nullptr: none.
    const AdaptedWeight* take(const StorageSpec& storage) {
        const auto found =
            storage.leaves.empty() ? wanted_.end() : wanted_.find(std::string_view(storage.leaves[0].name));
        if (found == wanted_.end()) return nullptr;
        if (adapters_.magnitudes)
            cannot_adapt(found->first, " with DoRA", "Use LoRA, or train it whole with modules_to_save.");
        return wanted_.extract(found).mapped();
    }

    /// The weight's transpose is adapted, whose columns are split.
    void add_to_embedding(UnitSpec& unit) {
        const StorageSpec& storage = unit.storages[EmbeddingStorage::weight];
        const AdaptedWeight* const adapted = take(storage);
        if (adapted == nullptr) return;
        LeafSpec weight = storage.leaves[0];
        weight.shape = {weight.shape[1], weight.shape[0]};
        weight.split = Split::columns;
        LeafSpec a = leaf_a(weight, *adapted), b = leaf_b(weight, *adapted);
        a.initial = Initial::zeros;
        b.initial = Initial::standard_normal;
        unit.storages[EmbeddingStorage::adapter_a].leaves = {std::move(a)};
        unit.storages[EmbeddingStorage::adapter_b].leaves = {std::move(b)};
    }

    void add_to_head(UnitSpec& unit) {
        const StorageSpec& storage = unit.storages[HeadStorage::weight];
        const AdaptedWeight* const adapted = take(storage);
        if (adapted == nullptr) return;
        LeafSpec a = leaf_a(storage.leaves[0], *adapted), b = leaf_b(storage.leaves[0], *adapted);
        unit.storages[HeadStorage::adapter_a].leaves = {std::move(a)};
        unit.storages[HeadStorage::adapter_b].leaves = {std::move(b)};
    }

    void add(UnitSpec& unit, const AdapterStorages& to) {
        const std::vector<LeafSpec>& leaves = unit.storages[to.weight].leaves;
        const AdaptedWeight* of_first_expert[2] = {};
        for (std::size_t i = 0; i < leaves.size(); ++i) {
            const std::size_t part = i % to.b.size();
            const auto found = wanted_.find(leaves[i].name);
            const AdaptedWeight* adapted = found == wanted_.end() ? nullptr : found->second;
            if (to.has_experts()) {
                if (i < to.b.size()) of_first_expert[part] = adapted;
                check_same(leaves[i].name, adapted, of_first_expert[part]);
            }
            if (adapted == nullptr) continue;
            wanted_.erase(found);
            if (adapters_.magnitudes && to.magnitudes.empty())
                cannot_adapt(leaves[i].name, " with DoRA",
                             "Use LoRA, or leave the experts and their router out.");
            const auto put = [&](BlockStorage::Index storage, LeafSpec leaf) {
                unit.storages[storage].leaves.push_back(std::move(leaf));
            };
            put(to.a, leaf_a(leaves[i], *adapted));
            put(to.b[part], leaf_b(leaves[i], *adapted));
            if (adapters_.magnitudes) put(to.magnitudes[part], leaf_of_magnitudes(leaves[i], *adapted));
        }
    }

    /// All experts are one grouped product.
    static void check_same(std::string_view leaf, const AdaptedWeight* adapted, const AdaptedWeight* first) {
        if ((adapted == nullptr) != (first == nullptr) ||
            (adapted && (adapted->rank != first->rank || adapted->scale != first->scale)))
            cannot_adapt(leaf, " in another way than the same matrix of the first expert",
                         "Give all experts the same rank and alpha, or none.");
    }

    const Adapters& adapters_;
    std::map<std::string_view, const AdaptedWeight*> wanted_;
    std::set<std::string_view> trained_;
};

}  // namespace

const std::vector<AdapterStorages>& adapter_storages() {
    using S = BlockStorage;
    static const std::vector<AdapterStorages> all = {
        {S::qkv,
         S::qkv_a,
         {S::query_b, S::key_b, S::value_b},
         {S::query_magnitudes, S::key_magnitudes, S::value_magnitudes}},
        {S::attention_output,
         S::attention_output_a,
         {S::attention_output_b},
         {S::attention_output_magnitudes}},
        {S::gate_up, S::gate_up_a, {S::gate_b, S::up_b}, {S::gate_magnitudes, S::up_magnitudes}},
        {S::down, S::down_a, {S::down_b}, {S::down_magnitudes}},
        {S::router, S::router_a, {S::router_b}, {}},
        {S::experts_gate_up, S::experts_gate_up_a, {S::experts_gate_b, S::experts_up_b}, {}},
        {S::experts_down, S::experts_down_a, {S::experts_down_b}, {}}};
    return all;
}

const AdapterStorages& adapter_storages(BlockStorage::Index weight) {
    for (const AdapterStorages& storages : adapter_storages())
        if (storages.weight == weight) return storages;
    bug("a storage that cannot be adapted");
}

AdaptedMatrix adapted_matrix(BlockStorage::Index weight) {
    switch (weight) {
        case BlockStorage::qkv:
            return AdaptedMatrix::qkv;
        case BlockStorage::attention_output:
            return AdaptedMatrix::attention_output;
        case BlockStorage::gate_up:
        case BlockStorage::experts_gate_up:
            return AdaptedMatrix::gate_up;
        case BlockStorage::down:
        case BlockStorage::experts_down:
            return AdaptedMatrix::down;
        default:
            bug("a storage that cannot be adapted");
    }
}

ParamSpec make_param_spec(const ModelConfig& config, const HfCompat& compat, const Adapters& adapters) {
    require(!config.tie_word_embeddings || !adapters.change_vocabulary(),
            "adapters of an embedding that is also the head");
    ParamSpec spec;
    LeafSpec embedding =
        matrix_leaf(std::string(embedding_leaf), config.vocab_size, config.hidden_size, Split::rows);
    embedding.zeroed_row = config.pad_token_id;
    spec.units.push_back(
        {.name = "embedding", .kind = UnitSpec::Kind::embedding, .storages = {{{embedding}}, {}, {}}});
    for (int i = 0; i < config.num_hidden_layers; ++i) spec.units.push_back(block_unit(config, compat, i));

    StorageSpec head;
    if (!config.tie_word_embeddings)
        head = {{matrix_leaf(std::string(head_leaf), config.vocab_size, config.hidden_size, Split::rows)}};
    LeafSpec final_norm = norm_leaf("model.norm.weight", config.hidden_size);
    final_norm.decayed |= norms_decayed(family_of(config), compat);
    spec.units.push_back(
        {.name = "head", .kind = UnitSpec::Kind::head, .storages = {{{final_norm}}, head, {}, {}}});
    if (adapters.any()) {
        UnitAdapters added(adapters);
        for (UnitSpec& unit : spec.units) added.add(unit);
        added.check_all_found();
    }
    return spec;
}

std::int64_t active_parameter_count(const ModelConfig& config) {
    const std::int64_t expert = 3 * config.hidden_size * config.intermediate_size;
    const std::int64_t unused = config.has_experts() ? config.moe.experts - config.moe.chosen : 0;
    return make_param_spec(config).parameter_count() - config.num_hidden_layers * unused * expert;
}

std::vector<std::string> names_in_module_order(const ModelConfig& config) {
    std::vector<std::string> names = {std::string(embedding_leaf)};
    for (int i = 0; i < config.num_hidden_layers; ++i)
        for (const BlockLeaf& part : family_of(config).block_leaves(config, {}, i))
            names.push_back(part.leaf.name);
    names.push_back("model.norm.weight");
    if (!config.tie_word_embeddings) names.emplace_back(head_leaf);
    return names;
}

bool takes_weight_decay(std::string_view name) {
    std::string lower(name);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    for (const char* word : {"bias", "layernorm", "rmsnorm"})
        if (lower.find(word) != std::string::npos) return false;
    for (std::size_t begin = 0; begin <= lower.size();) {
        const std::size_t end = std::min(lower.find('.', begin), lower.size());
        const std::string_view part = std::string_view(lower).substr(begin, end - begin);
        if (part == "norm" || part.ends_with("_norm")) return false;
        begin = end + 1;
    }
    return true;
}

}  // namespace drover
