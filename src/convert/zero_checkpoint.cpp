#include "convert/zero_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "convert/rank_name.h"
#include "core/error.h"
#include "core/text_file.h"
#include "io/safetensors_header.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using Kind = PickleValue::Kind;
using safetensors_detail::quoted_name;

constexpr std::string_view zero_remedy =
    "Check --input_dir: all files of one checkpoint of DeepSpeed must be there.";
constexpr std::string_view master_kind;  ///< the weights themselves

struct ZeroRank {
    std::int64_t data = 0, model = 0;
};

/// "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt"
std::optional<ZeroRank> rank_of_optimizer_file(std::string_view name) {
    for (const std::string_view precision : {"bf16_", "fp16_"})
        if (name.starts_with(precision)) name.remove_prefix(precision.size());
    if (!name.starts_with("zero_")) return std::nullopt;
    name.remove_prefix(std::string_view("zero_").size());
    const auto data = take_rank(name, "pp");
    const auto model = take_rank(name, "mp");
    if (!data || !model || name != "optim_states.pt") return std::nullopt;
    return ZeroRank{*data, *model};
}

bool has_optimizer_files(const fs::path& folder) {
    std::error_code failure;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, failure))
        if (rank_of_optimizer_file(entry.path().filename().string())) return true;
    return false;
}

/// The folder with the files of ranks; empty if there is none.
fs::path folder_of_ranks(const fs::path& folder) {
    if (has_optimizer_files(folder)) return folder;
    if (!fs::exists(folder / "latest")) return {};
    std::string tag = read_text_file(folder / "latest");
    while (!tag.empty() && (tag.back() == '\n' || tag.back() == '\r' || tag.back() == ' ')) tag.pop_back();
    if (!is_plain_file_name(tag)) return {};
    return has_optimizer_files(folder / tag) ? folder / tag : fs::path();
}

std::vector<std::int64_t> shape_in(const PickleValue& size) {
    std::vector<std::int64_t> shape;
    for (std::size_t i = 0; i < size.size(); ++i) shape.push_back(size.at(i).integer());
    return shape;
}

std::int64_t elements_of(const std::vector<std::int64_t>& shape, std::string_view name,
                         const fs::path& file) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape)
        if (size < 0 || __builtin_mul_overflow(count, size, &count))
            throw Error(fmt::format("{}: the shape of {} cannot be.", file.string(), quoted_name(name)),
                        zero_remedy);
    return count;
}

bool has(const PickleValue& dict, std::string_view key) {
    return dict.contains(key) && dict[key].kind() != Kind::none;
}

/// Elements that follow a weight of a group and belong to none.
std::int64_t padding_of(const PickleValue& optimizer, std::size_t group, std::size_t weight,
                        std::int64_t available, const fs::path& file) {
    constexpr std::string_view key = "param_alignment_paddings";
    if (!has(optimizer, key)) return 0;
    const std::int64_t padding = optimizer[key].at(group).at(weight).integer();
    if (padding < 0 || padding > available)
        throw Error(fmt::format("{}: {} elements are said to follow a weight.", file.string(), padding),
                    zero_remedy);
    return padding;
}

}  // namespace

/// A tensor of one dimension in a rank's file.
struct ZeroCheckpoint::Vector {
    const std::byte* data;
    FileDType dtype;
    std::int64_t size;
};

/// What a rank has: for every kind of state, the vectors of its groups.
struct ZeroCheckpoint::Rank {
    fs::path file;
    PickleValue optimizer;  ///< the file's optimizer_state_dict
    std::map<std::string, std::vector<Vector>> vectors;
    std::vector<double> steps;  ///< by group; empty: the file has none
};

ZeroCheckpoint::~ZeroCheckpoint() = default;

bool ZeroCheckpoint::is_one(const fs::path& folder) {
    return fs::is_directory(folder) && !folder_of_ranks(folder).empty();
}

ZeroCheckpoint::ZeroCheckpoint(const fs::path& folder) {
    find_files(folder);
    for (const auto& [rank, file] : optimizer_files_) read_rank(file);
    is_partitioned_ = ranks_.front().optimizer.contains("fp32_flat_groups");
    if (world() != static_cast<std::int64_t>(ranks_.size()))
        throw Error(fmt::format("{} has the optimizer's files of {} ranks, and {} saved it.",
                                folder_.string(), ranks_.size(), world()),
                    zero_remedy);
    read_models();
    for (const Rank& rank : ranks_)
        for (const auto& [kind, vectors] : ranks_.front().vectors) {
            const auto found = rank.vectors.find(kind);
            if (found == rank.vectors.end() || found->second.size() != vectors.size())
                throw Error(
                    fmt::format("{} has other states than the file of the first rank.", rank.file.string()),
                    zero_remedy);
        }
    is_partitioned_ ? join_partitions() : join_groups();
    add_untrained();
}

void ZeroCheckpoint::find_files(const fs::path& folder) {
    folder_ = folder_of_ranks(folder);
    if (folder_.empty())
        throw Error(fmt::format("{} has no files such as zero_pp_rank_0_mp_rank_00_optim_states.pt.",
                                folder.string()),
                    zero_remedy);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
        const auto rank = rank_of_optimizer_file(entry.path().filename().string());
        if (!rank) continue;
        if (rank->model != 0)
            throw Error(
                fmt::format("{} is of a run with tensor or pipeline parallelism.", entry.path().string()),
                "Only data parallelism can be converted: make a universal checkpoint of it.");
        if (!optimizer_files_.emplace(rank->data, entry.path()).second)
            throw Error(fmt::format("{} has two files of rank {}.", folder_.string(), rank->data),
                        "Remove the one that does not belong to the checkpoint.");
    }
    std::int64_t expected = 0;
    for (const auto& [rank, file] : optimizer_files_)
        if (rank != expected++)
            throw Error(fmt::format("{} has no optimizer's file of rank {}, but one of rank {}.",
                                    folder_.string(), expected - 1, rank),
                        zero_remedy);
}

std::int64_t ZeroCheckpoint::world() const {
    const PickleValue count = ranks_.front().optimizer["partition_count"];
    if (count.kind() != Kind::list) return count.integer();
    std::int64_t largest = 0;
    for (std::size_t i = 0; i < count.size(); ++i) {
        if (i > 0 && count.at(i).integer() != count.at(0).integer())
            throw Error(fmt::format("{}: groups of weights are cut into different numbers of parts.",
                                    folder_.string()),
                        "Expert parallelism is not read: make a universal checkpoint of it.");
        largest = std::max(largest, count.at(i).integer());
    }
    return largest;
}

void ZeroCheckpoint::read_rank(const fs::path& file) {
    const TorchFile& opened = *opened_.emplace_back(std::make_unique<TorchFile>(file));
    Rank rank{.file = file, .optimizer = opened.root()["optimizer_state_dict"], .vectors = {}, .steps = {}};
    const bool partitioned = rank.optimizer.contains("fp32_flat_groups");
    if (!partitioned && !rank.optimizer.contains("single_partition_of_fp32_groups"))
        throw Error(fmt::format("{} has no float32 weights, so ZeRO did not write it.", file.string()),
                    zero_remedy);
    const auto vector_of = [&](const PickleValue& value) {
        const PickleTensor& tensor = value.tensor();
        const std::optional<DType> dtype = engine_dtype_of(tensor.dtype);
        if (tensor.shape.size() != 1 || !tensor.packed() || !dtype || !is_floating(*dtype))
            throw Error(
                fmt::format("{} has a tensor that is not a vector of floating numbers.", file.string()),
                zero_remedy);
        return Vector{reinterpret_cast<const std::byte*>(tensor.elements.data()), tensor.dtype,
                      tensor.numel()};
    };
    const PickleValue masters =
        rank.optimizer[partitioned ? "fp32_flat_groups" : "single_partition_of_fp32_groups"];
    if (masters.size() == 0)
        throw Error(fmt::format("{} has no group of weights.", file.string()), zero_remedy);
    for (std::size_t i = 0; i < masters.size(); ++i)
        rank.vectors[std::string(master_kind)].push_back(vector_of(masters.at(i)));

    const char* const base_key = partitioned ? "optimizer_state_dict" : "base_optimizer_state";
    if (has(rank.optimizer, base_key)) {
        const PickleValue base = rank.optimizer[base_key];
        const auto add = [&](const PickleValue& state) {
            for (std::size_t i = 0; i < state.size(); ++i) {
                const PickleValue value = state.value(i);
                const std::string key(state.key(i).text());
                if (key == "step")
                    rank.steps.push_back(value.number());
                else if (value.kind() == Kind::tensor && value.tensor().shape.size() == 1)
                    rank.vectors[key].push_back(vector_of(value));
            }
        };
        if (base.kind() == Kind::list) {  // an "elastic" checkpoint
            for (std::size_t i = 0; i < base.size(); ++i) add(base.at(i));
        } else {
            // Groups are in order of their numbers.
            const PickleValue states = base["state"];
            std::map<std::int64_t, PickleValue> in_order;
            for (std::size_t i = 0; i < states.size(); ++i)
                in_order.emplace(states.key(i).integer(), states.value(i));
            for (const auto& [number, state] : in_order) add(state);
            // Some optimizers keep one step for a group.
            const PickleValue groups = base["param_groups"];
            for (std::size_t i = 0; rank.steps.empty() && i < groups.size(); ++i)
                if (has(groups.at(i), "step")) rank.steps.push_back(groups.at(i)["step"].number());
        }
    }
    if (rank.steps.empty() && has(rank.optimizer, "base_optimizer_state_step"))
        rank.steps.push_back(rank.optimizer["base_optimizer_state_step"].number());
    for (const auto& [kind, vectors] : rank.vectors)
        if (vectors.size() != masters.size())
            throw Error(fmt::format("{} has {} of {} groups of weights, and there are {}.", file.string(),
                                    kind, vectors.size(), masters.size()),
                        zero_remedy);
    ranks_.push_back(std::move(rank));
}

void ZeroCheckpoint::read_models() {
    for (std::size_t i = 0; i < (is_partitioned_ ? ranks_.size() : 1); ++i) {
        const fs::path file =
            folder_ / (is_partitioned_ ? fmt::format("zero_pp_rank_{}_mp_rank_00_model_states.pt", i)
                                       : std::string("mp_rank_00_model_states.pt"));
        if (!fs::exists(file))
            throw Error(
                fmt::format("There is no {}, which has the names and shapes of the weights.", file.string()),
                zero_remedy);
        models_.push_back(opened_.emplace_back(std::make_unique<TorchFile>(file)).get());
        const PickleValue root = models_.back()->root();
        if (!has(root, "param_shapes"))
            throw Error(fmt::format("{} does not have the shapes of weights that ZeRO cuts.", file.string()),
                        zero_remedy);
        const std::int64_t step = root.contains("global_steps") ? root["global_steps"].integer() : 0;
        if (i > 0 && step != step_)
            throw Error(fmt::format("{} is of step {}, and the file of the first rank of step {}.",
                                    file.string(), step, step_),
                        zero_remedy);
        step_ = step;
    }
}

std::size_t ZeroCheckpoint::add_part(const Vector& vector, std::int64_t begin, std::int64_t rows,
                                     std::int64_t columns) {
    const std::int64_t size = bits_of(vector.dtype) / 8;
    views_.push_back(StridedTensor::packed(vector.data + begin * size, vector.dtype, {rows, columns}));
    return add_item({}, vector.dtype, {rows, columns}, folder_);
}

/// The next `count` elements of a tensor are [begin, begin + count) of the vectors, one after the other: the
/// end of a row, whole rows, and the beginning of a row.
void ZeroCheckpoint::append(PlannedTensor& tensor, const std::vector<Vector>& vectors, std::int64_t begin,
                            std::int64_t count) {
    const std::int64_t columns = tensor.as_item().columns();
    std::int64_t at = 0;
    for (const Block& block : tensor.blocks) at += block.row_count * block.column_count;
    for (const Vector& vector : vectors) {
        std::int64_t taken = std::clamp<std::int64_t>(vector.size - begin, 0, count);
        count -= taken;
        while (taken > 0) {
            const std::int64_t column = at % columns;
            const bool whole = column == 0 && taken >= columns;
            const std::int64_t rows = whole ? taken / columns : 1;
            const std::int64_t width = whole ? columns : std::min(taken, columns - column);
            tensor.blocks.push_back({.item = add_part(vector, begin, rows, width),
                                     .row_count = rows,
                                     .column_count = width,
                                     .to_row = at / columns,
                                     .to_column = column});
            begin += rows * width;
            at += rows * width;
            taken -= rows * width;
        }
        begin -= vector.size;
        if (begin < 0) begin = 0;
    }
    if (count > 0)
        throw Error(fmt::format("{}: the ranks' vectors end {} elements before the end of {}.",
                                folder_.string(), count, quoted_name(tensor.name)),
                    zero_remedy);
}

/// Stages 1 and 2: a group's weights follow each other in a vector, of which every rank has a part. It may
/// be longer, by less than twice the number of ranks, to which it is aligned.
void ZeroCheckpoint::join_groups() {
    const PickleValue groups = models_.front()->root()["param_shapes"];
    const fs::path& file = models_.front()->path();
    const PickleValue& optimizer = ranks_.front().optimizer;
    for (const auto& [kind, first] : ranks_.front().vectors) {
        if (groups.size() != first.size())
            throw Error(fmt::format("{} has {} groups of weights, and the optimizer {}.", file.string(),
                                    groups.size(), first.size()),
                        zero_remedy);
        for (std::size_t group = 0; group < groups.size(); ++group) {
            std::vector<Vector> vectors;
            std::int64_t available = 0;
            for (const Rank& rank : ranks_) {
                vectors.push_back(rank.vectors.at(kind)[group]);
                available += vectors.back().size;
            }
            std::int64_t begin = 0;
            const PickleValue shapes = groups.at(group);
            for (std::size_t i = 0; i < shapes.size(); ++i) {
                const std::string name(shapes.key(i).text());
                PlannedTensor tensor{
                    name, *engine_dtype_of(first[group].dtype), shape_in(shapes.value(i)), {}};
                const std::int64_t elements = elements_of(tensor.shape, name, file);
                append(tensor, vectors, begin, elements);
                begin += elements;
                begin += padding_of(optimizer, group, i, available, file);
                by_kind_[kind].push_back(std::move(tensor));
            }
            if (available - begin >= 2 * static_cast<std::int64_t>(ranks_.size()))
                throw Error(fmt::format("{}: the ranks have {} elements of group {}, and its weights {}.",
                                        folder_.string(), available, group, begin),
                            zero_remedy);
        }
    }
}

/// Stage 3: every rank has an equal part of each weight, the last one perhaps with some elements too many.
void ZeroCheckpoint::join_partitions() {
    const PickleValue groups = models_.front()->root()["param_shapes"];
    const fs::path& file = models_.front()->path();
    const auto world = static_cast<std::int64_t>(ranks_.size());
    for (const auto& [kind, first] : ranks_.front().vectors) {
        std::int64_t begin = 0;
        for (std::size_t group = 0; group < groups.size(); ++group) {
            const PickleValue shapes = groups.at(group);
            for (std::size_t i = 0; i < shapes.size(); ++i) {
                const std::string name(shapes.key(i).text());
                PlannedTensor tensor{name, *engine_dtype_of(first[0].dtype), shape_in(shapes.value(i)), {}};
                const std::int64_t elements = elements_of(tensor.shape, name, file);
                const std::int64_t part = (elements + world - 1) / world;
                std::int64_t left = elements;
                for (const Rank& rank : ranks_) {
                    append(tensor, rank.vectors.at(kind), begin, std::min(part, left));
                    left -= std::min(part, left);
                }
                begin += part;
                by_kind_[kind].push_back(std::move(tensor));
            }
        }
        for (const Rank& rank : ranks_) {
            std::int64_t available = 0;
            for (const Vector& vector : rank.vectors.at(kind)) available += vector.size;
            if (available != begin)
                throw Error(fmt::format("{} has {} elements, and a rank's part of the weights is {}.",
                                        rank.file.string(), available, begin),
                            zero_remedy);
        }
    }
}

void ZeroCheckpoint::add_whole(const std::string& name, const PickleValue& value, const fs::path& file) {
    const PickleTensor& tensor = value.tensor();
    views_.push_back(strided_view(tensor));
    const std::size_t item = add_item(name, tensor.dtype, tensor.shape, file);
    TensorBuilder builder(name, items()[item].dtype);
    builder.whole(item, items()[item]);
    by_kind_[std::string(master_kind)].push_back(builder.tensor());
}

/// Weights that were frozen, buffers, and second names of weights.
void ZeroCheckpoint::add_untrained() {
    std::vector<PlannedTensor>& weights = by_kind_[std::string(master_kind)];
    const PickleValue root = models_.front()->root();
    const fs::path& file = models_.front()->path();
    std::set<std::string> known;
    for (const PlannedTensor& tensor : weights) known.insert(tensor.name);
    if (has(root, "frozen_param_shapes") && has(root, "frozen_param_fragments")) {
        const PickleValue shapes = root["frozen_param_shapes"];
        for (std::size_t i = 0; i < shapes.size(); ++i) {
            const std::string name(shapes.key(i).text());
            known.insert(name);
            if (!is_partitioned_) {
                add_whole(name, root["frozen_param_fragments"][name], file);
                continue;
            }
            std::vector<Vector> vectors;
            for (const TorchFile* const model : models_) {
                const PickleTensor& part = model->root()["frozen_param_fragments"][name].tensor();
                if (part.shape.size() != 1 || !part.packed())
                    throw Error(fmt::format("{}: its part of {} is not a vector.", model->path().string(),
                                            quoted_name(name)),
                                zero_remedy);
                vectors.push_back(
                    {reinterpret_cast<const std::byte*>(part.elements.data()), part.dtype, part.numel()});
            }
            const std::optional<DType> dtype = engine_dtype_of(vectors.front().dtype);
            if (!dtype)
                throw Error(fmt::format("{}: {} has an element type that cannot be converted.", file.string(),
                                        quoted_name(name)),
                            zero_remedy);
            PlannedTensor tensor{name, *dtype, shape_in(shapes.value(i)), {}};
            append(tensor, vectors, 0, elements_of(tensor.shape, name, file));
            weights.push_back(std::move(tensor));
        }
    }
    for (std::size_t i = 0; has(root, "shared_params") && i < root["shared_params"].size(); ++i) {
        const PickleValue shared = root["shared_params"];
        const std::string name(shared.key(i).text()), stored(shared.value(i).text());
        if (known.contains(name)) continue;
        const auto found = std::ranges::find(weights, stored, &PlannedTensor::name);
        if (found == weights.end()) continue;
        PlannedTensor copy = *found;
        copy.name = name;
        weights.push_back(std::move(copy));
        known.insert(name);
    }
    // With stage 1, frozen weights are only among those that the model computes with. With stage 3, these
    // are empty, but for the buffers.
    std::set<std::string> buffers;
    for (std::size_t i = 0; has(root, "buffer_names") && i < root["buffer_names"].size(); ++i)
        buffers.emplace(root["buffer_names"].at(i).text());
    for (std::size_t i = 0; has(root, "module") && i < root["module"].size(); ++i) {
        const PickleValue module = root["module"];
        const std::string name(module.key(i).text());
        if (!known.contains(name) && module.value(i).kind() == Kind::tensor &&
            (!is_partitioned_ || buffers.contains(name)))
            add_whole(name, module.value(i), file);
    }
}

std::vector<PlannedTensor> ZeroCheckpoint::tensors() const {
    std::vector<PlannedTensor> weights = with_published_experts(by_kind_.at(std::string(master_kind)));
    std::ranges::stable_sort(
        weights, [](const PlannedTensor& a, const PlannedTensor& b) { return comes_before(a.name, b.name); });
    return weights;
}

std::vector<PlannedTensor> ZeroCheckpoint::states() const {
    std::vector<PlannedTensor> all;
    for (const auto& [kind, tensors] : by_kind_) {
        if (kind == master_kind) continue;
        for (PlannedTensor& tensor : named_states(kind, tensors)) all.push_back(std::move(tensor));
    }
    return all;
}

OptimizerFacts ZeroCheckpoint::optimizer() const {
    CommonStep step(folder_.string());
    for (const Rank& rank : ranks_)
        for (const double value : rank.steps) step.add(value, rank.file.filename().string());
    OptimizerFacts facts{.updates = step.value()};
    const PickleValue& first = ranks_.front().optimizer;
    const char* const base_key = is_partitioned_ ? "optimizer_state_dict" : "base_optimizer_state";
    if (first[base_key].kind() == Kind::dict)
        facts.settings = settings_of_groups(first[base_key]["param_groups"]);
    return facts;
}

StridedTensor ZeroCheckpoint::view(std::size_t item) const {
    return views_[item];
}

void ZeroCheckpoint::forget() const {
    for (const auto& file : opened_) file->forget();
}

std::vector<fs::path> ZeroCheckpoint::files() const {
    std::vector<fs::path> paths;
    for (const auto& file : opened_) paths.push_back(file->path());
    return paths;
}

}  // namespace drover
