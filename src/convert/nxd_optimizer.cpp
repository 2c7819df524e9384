#include "convert/nxd_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "convert/rank_name.h"
#include "core/error.h"
#include "io/safetensors_header.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using Values = PickleValue::Kind;
using safetensors_detail::quoted_name;
using safetensors_detail::shape_text;

constexpr std::string_view optim_remedy =
    "The files are of different checkpoints, or some are missing or damaged: use those of one step.";

struct OptimizerRank {
    std::int64_t data = 0;
    ShardRank rank;
};

/// "dp_rank_03_tp_rank_00_pp_rank_01.pt"
std::optional<OptimizerRank> rank_of_file(std::string_view name) {
    const auto data = take_rank(name, "dp");
    const auto experts = take_rank(name, "ep");
    const auto tensor = take_rank(name, "tp");
    const auto pipeline = take_rank(name, "pp");
    if (!data || !tensor || !pipeline || name != ".pt") return std::nullopt;
    return OptimizerRank{*data, {.tensor = *tensor, .pipeline = *pipeline, .experts = experts.value_or(0)}};
}

std::vector<std::int64_t> sizes_of(const PickleValue& tuple) {
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < tuple.size(); ++i) sizes.push_back(tuple.at(i).integer());
    return sizes;
}

/// A parameter of a rank.
struct Parameter {
    std::string name;
    std::vector<std::int64_t> shape;
};

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

/// Which parameters were put into the second group, without weight decay.
constexpr bool (*second_groups[])(std::string_view name) = {
    [](std::string_view name) { return contains(name, "bias") || contains(name, "LayerNorm"); },
    [](std::string_view name) {
        return contains(name, "bias") || contains(name, "norm") || contains(name, "Norm");
    },
    [](std::string_view name) { return contains(name, "norm") || contains(name, "Norm"); },
    [](std::string_view) { return false; },
};

/// The parameters of a rank in the order in which the optimizer numbers them: those with weight decay, then
/// those without, each as the model has them. Which these are is seen from their number and their shapes.
std::vector<Parameter> in_optimizer_order(const std::vector<Parameter>& parameters,
                                          const std::vector<std::int64_t>& group_sizes,
                                          const std::function<bool(const std::vector<Parameter>&)>& fits,
                                          const fs::path& file) {
    for (const auto in_second : second_groups) {
        std::vector<Parameter> ordered = parameters;
        const auto second = std::stable_partition(ordered.begin(), ordered.end(),
                                                  [&](const Parameter& p) { return !in_second(p.name); });
        const auto first_size = static_cast<std::int64_t>(second - ordered.begin());
        const std::int64_t wanted = group_sizes.empty() ? 0 : group_sizes[0];
        const bool has_right_size =
            first_size == wanted || (wanted == 0 && first_size == static_cast<std::int64_t>(ordered.size()));
        if (has_right_size && fits(ordered)) return ordered;
    }
    throw Error(fmt::format("{}: its parameters do not fit the model's files in any usual order of groups.",
                            file.string()),
                "Groups of parameters with and without weight decay are known, as run_llama_nxd.py makes "
                "them.");
}

}  // namespace

/// One kind of state: for every tensor of a tensor and pipeline rank, the parts that data ranks have.
struct NxdOptimizer::Kind : RankedTensors {
    struct Local {
        TensorSource::Item whole;
        std::vector<std::size_t> parts;  ///< items, by data rank
    };
    std::vector<Local> locals;

    Kind(fs::path folder, const ShardSizes& sizes) {
        folder_ = std::move(folder);
        sizes_ = sizes;
    }
    const TensorSource::Item& item(std::size_t index) const override { return locals[index].whole; }
    std::size_t ranks() const { return ranks_.size(); }
    void add(const ShardRank& rank, Local local) {
        ranks_[rank].emplace_back(local.whole.name, locals.size());
        locals.push_back(std::move(local));
    }
};

NxdOptimizer::~NxdOptimizer() = default;

bool NxdOptimizer::is_one(const fs::path& step_folder) {
    std::error_code failure;
    for (const fs::directory_entry& entry : fs::directory_iterator(step_folder / "optim", failure))
        if (rank_of_file(entry.path().filename().string())) return true;
    return false;
}

NxdOptimizer::NxdOptimizer(const fs::path& step_folder, const ShardedCheckpoint& model)
    : folder_(step_folder / "optim"), sizes_(model.sizes()) {
    std::map<ShardRank, std::map<std::int64_t, fs::path>> found;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_))
        if (const auto rank = rank_of_file(entry.path().filename().string()))
            found[rank->rank][rank->data] = entry.path();
    if (sizes_.experts > 1 || std::ranges::any_of(found, [](const auto& f) { return f.first.experts > 0; }))
        throw Error(fmt::format("{} is of a run with expert parallelism, whose optimizer is not read.",
                                folder_.string()),
                    "Convert the weights alone: --convert_to_full_state.");
    CommonStep step(folder_.string());
    const std::size_t data_ranks = found.empty() ? 0 : found.begin()->second.size();
    ShardRank rank;
    for (rank.pipeline = 0; rank.pipeline < sizes_.pipeline; ++rank.pipeline)
        for (rank.tensor = 0; rank.tensor < sizes_.tensor; ++rank.tensor) {
            std::vector<fs::path> files;
            for (std::size_t data = 0; data < std::max<std::size_t>(data_ranks, 1); ++data) {
                const auto place = found[rank].find(static_cast<std::int64_t>(data));
                if (place == found[rank].end())
                    throw Error(
                        fmt::format("{} has no file of data rank {}, tensor rank {}, pipeline rank {}.",
                                    folder_.string(), data, rank.tensor, rank.pipeline),
                        "Check --input_dir: all files of the checkpoint must be there.");
                files.push_back(place->second);
            }
            if (found[rank].size() != files.size())
                throw Error(fmt::format("{} has files of {} data ranks for one tensor rank and of {} for "
                                        "another.",
                                        folder_.string(), files.size(), found[rank].size()),
                            optim_remedy);
            read_rank(rank, files, model, step);
        }
    for (const auto& [name, kind] : kinds_)
        if (kind->ranks() != static_cast<std::size_t>(sizes_.tensor * sizes_.pipeline))
            throw Error(fmt::format("{}: {} ranks have a {} instead of {}.", folder_.string(), kind->ranks(),
                                    quoted_name(name), sizes_.tensor * sizes_.pipeline),
                        optim_remedy);
    facts_.updates = step.value();
}

NxdOptimizer::Kind& NxdOptimizer::kind(const std::string& name) {
    std::unique_ptr<Kind>& found = kinds_[name];
    if (!found) found = std::make_unique<Kind>(folder_, sizes_);
    return *found;
}

void NxdOptimizer::read_rank(const ShardRank& rank, const std::vector<fs::path>& files,
                             const ShardedCheckpoint& model, CommonStep& step) {
    std::vector<Parameter> parameters;
    for (const auto& [name, index] : model.tensors(rank))
        if (!name.ends_with("inv_freq")) parameters.push_back({name, model.item(index).shape});
    std::map<std::string, std::vector<Kind::Local>> locals;
    for (std::size_t data = 0; data < files.size(); ++data) {
        const fs::path& file = files[data];
        const PickleValue root = open(file).root();
        const bool is_cut = root.contains("base_state");
        if (!is_cut && files.size() > 1)
            throw Error(fmt::format("{} is not of ZeRO-1, but there are files of {} data ranks.",
                                    file.string(), files.size()),
                        optim_remedy);
        const PickleValue states = root[is_cut ? "base_state" : "state"];
        if (states.size() != parameters.size())
            throw Error(fmt::format("{} has the states of {} parameters, and the model's file of this rank "
                                    "has {}.",
                                    file.string(), states.size(), parameters.size()),
                        optim_remedy);
        std::map<std::int64_t, PickleValue> by_number;
        for (std::size_t i = 0; i < states.size(); ++i)
            by_number.emplace(states.key(i).integer(), states.value(i));
        const auto entry_of = [&](const PickleValue& dict, std::size_t number) {
            for (std::size_t i = 0; i < dict.size(); ++i)
                if (dict.key(i).integer() == static_cast<std::int64_t>(number)) return dict.value(i);
            throw Error(fmt::format("{} has nothing of parameter {}.", file.string(), number), optim_remedy);
        };
        const auto rows_here = [&](const std::vector<std::int64_t>& shape) {
            const auto ranks = static_cast<std::int64_t>(files.size());
            return shape.empty() ? 1 : (shape[0] + ranks - 1) / ranks;
        };
        if (data == 0) {
            const PickleValue groups = root["param_groups"];
            if (facts_.settings.empty()) facts_.settings = settings_of_groups(groups);
            std::vector<std::int64_t> group_sizes;
            for (std::size_t i = 0; i < groups.size(); ++i)
                group_sizes.push_back(static_cast<std::int64_t>(groups.at(i)["params"].size()));
            const auto fits = [&](const std::vector<Parameter>& ordered) {
                for (std::size_t i = 0; is_cut && i < ordered.size(); ++i)
                    if (sizes_of(entry_of(root["shape_info"], i)) != ordered[i].shape) return false;
                return true;
            };
            parameters = in_optimizer_order(parameters, group_sizes, fits, file);
        }
        const auto add = [&](const std::string& kind_name, std::size_t number, const PickleValue& value) {
            const Parameter& parameter = parameters[number];
            const std::size_t item = *add_tensor(parameter.name, value, file);
            std::vector<std::int64_t> expected = parameter.shape;
            if (!expected.empty()) expected[0] = rows_here(expected);
            if (items()[item].shape != expected)
                throw Error(
                    fmt::format("{}: the {} of {} has the shape {}, and with {} data ranks it would be "
                                "{}.",
                                file.string(), kind_name, parameter.name, shape_text(items()[item].shape),
                                files.size(), shape_text(expected)),
                    optim_remedy);
            std::vector<Kind::Local>& list = locals[kind_name];
            if (data == 0)
                list.push_back({{parameter.name, items()[item].dtype, parameter.shape}, {item}});
            else if (number < list.size())
                list[number].parts.push_back(item);
        };
        for (std::size_t number = 0; number < parameters.size(); ++number) {
            const auto state = by_number.find(static_cast<std::int64_t>(number));
            if (state == by_number.end())
                throw Error(fmt::format("{} has no state of parameter {}.", file.string(), number),
                            optim_remedy);
            for (std::size_t i = 0; i < state->second.size(); ++i) {
                const std::string key(state->second.key(i).text());
                const PickleValue value = state->second.value(i);
                if (key == "step")
                    step.add(RankFiles::number(value, file), parameters[number].name);
                else if (is_tensor(value))
                    add(key, number, value);
            }
            if (root.contains("sharded_master_weights"))
                add(master, number, entry_of(root["sharded_master_weights"], number));
        }
    }
    for (auto& [name, list] : locals)
        for (Kind::Local& local : list) {
            if (list.size() != parameters.size() || local.parts.size() != files.size())
                throw Error(
                    fmt::format("{}: not every rank has the {} of every parameter.", folder_.string(), name),
                    optim_remedy);
            kind(name).add(rank, std::move(local));
        }
}

std::vector<std::string> NxdOptimizer::kinds() const {
    std::vector<std::string> names;
    for (const auto& [name, kind] : kinds_) names.push_back(name);
    return names;
}

std::vector<PlannedTensor> NxdOptimizer::tensors(const std::string& kind_name,
                                                 const NxdSettings& settings) const {
    const Kind& kind = *kinds_.at(kind_name);
    NxdSettings own = settings;
    own.dtype.reset();
    std::vector<PlannedTensor> tensors;
    for (const PlannedTensor& joined : model_of_ranks(kind, own))
        tensors.push_back(with_rows_of_ranks(kind, joined));
    return tensors;
}

/// Blocks of tensors of tensor ranks, cut where one data rank's rows end and the next one's begin.
PlannedTensor NxdOptimizer::with_rows_of_ranks(const Kind& kind, const PlannedTensor& joined) const {
    PlannedTensor tensor{joined.name, joined.dtype, joined.shape, {}};
    for (const Block& block : joined.blocks) {
        const Kind::Local& local = kind.locals[block.item];
        const std::vector<std::int64_t>& shape = local.whole.shape;
        const auto ranks = static_cast<std::int64_t>(local.parts.size());
        const bool is_vector = shape.size() < 2;
        std::int64_t rows = shape.empty() ? 1 : (shape[0] + ranks - 1) / ranks;  // of the matrix, on a rank
        for (std::size_t d = 1; d + 1 < shape.size(); ++d) rows *= shape[d];
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
            Block part = block;
            part.item = local.parts[static_cast<std::size_t>(rank)];
            const std::int64_t begin = rank * rows, end = begin + rows;
            if (is_vector) {  // one row, whose columns are cut
                const std::int64_t first = std::max(begin, block.column_begin);
                const std::int64_t last = std::min(end, block.column_begin + block.column_count);
                part.column_begin = first - begin;
                part.column_count = last - first;
                part.to_column += first - block.column_begin;
            } else {
                const auto taken_before = [&](std::int64_t row) {
                    const std::int64_t before = row - block.row_begin;
                    return std::clamp<std::int64_t>((before + block.row_step - 1) / block.row_step, 0,
                                                    block.row_count);
                };
                const std::int64_t first = begin <= block.row_begin ? 0 : taken_before(begin);
                const std::int64_t last = end <= block.row_begin ? 0 : taken_before(end);
                part.row_begin = block.row_begin + first * block.row_step - begin;
                part.row_count = last - first;
                (block.transposed ? part.to_column : part.to_row) += first;
            }
            if (part.row_count > 0 && part.column_count > 0) tensor.blocks.push_back(part);
        }
    }
    return tensor;
}

TrainingCheckpoint open_nxd_training(const fs::path& step_folder, std::string_view model_key,
                                     const NxdSettings& settings, std::optional<std::int64_t> tensor,
                                     std::optional<std::int64_t> pipeline) {
    auto model = std::make_unique<ShardedCheckpoint>(step_folder, tensor, pipeline, std::nullopt, model_key);
    auto optimizer = std::make_unique<NxdOptimizer>(step_folder, *model);
    NxdSettings ordered = settings;
    ordered.order = kv_order_of_shards(*model, settings);
    TrainingCheckpoint checkpoint{.source = nullptr,
                                  .weights = model_of_shards(*model, settings),
                                  .states = {},
                                  .optimizer = optimizer->optimizer()};
    std::vector<PlannedTensor> masters;
    for (const std::string& kind : optimizer->kinds()) {
        std::vector<PlannedTensor> tensors = optimizer->tensors(kind, ordered);
        if (kind == NxdOptimizer::master)
            masters = std::move(tensors);
        else
            for (PlannedTensor& state : named_states(kind, std::move(tensors)))
                checkpoint.states.push_back(std::move(state));
    }
    const fs::path user_content = step_folder / "user_content.pt";
    if (fs::exists(user_content)) {
        const TorchFile file(user_content);
        if (file.root().kind() == Values::dict && file.root().contains("total_steps"))
            checkpoint.step = file.root()["total_steps"].integer();
    }
    auto both = std::make_unique<JoinedSource>();
    both->add(std::move(model));
    const std::size_t behind = both->add(std::move(optimizer));
    checkpoint.states = moved_behind(std::move(checkpoint.states), behind);
    if (!masters.empty()) checkpoint.weights = moved_behind(std::move(masters), behind);
    checkpoint.source = std::move(both);
    return checkpoint;
}

}  // namespace drover
