#include "convert/training_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "convert/model_plan.h"
#include "core/error.h"
#include "io/fused_experts.h"
#include "io/safetensors_header.h"
#include "model/config.h"
#include "model/params.h"

namespace drover {
namespace {

using safetensors_detail::quoted_name;
using safetensors_detail::shape_text;


/// Rows [begin, begin + count) of the matrix that a tensor is, as a tensor of its own.
PlannedTensor rows_of(const PlannedTensor& whole, std::string name, std::vector<std::int64_t> shape,
                      std::int64_t begin, std::int64_t count) {
    PlannedTensor part{std::move(name), whole.dtype, std::move(shape), {}};
    for (Block block : whole.blocks) {
        require(!block.transposed && block.row_step == 1, "fused experts are cut from plain blocks");
        const std::int64_t first = std::max(begin, block.to_row);
        const std::int64_t last = std::min(begin + count, block.to_row + block.row_count);
        if (first >= last) continue;
        block.row_begin += first - block.to_row;
        block.row_count = last - first;
        block.to_row = first - begin;
        part.blocks.push_back(block);
    }
    return part;
}

/// Not part of the model that is trained: a head that is the embedding, and what old versions keep of RoPE.
bool is_left_out(const std::string& name) {
    return name == "lm_head.weight" || name.ends_with(".rotary_emb.inv_freq");
}

class LeafCheck {
  public:
    LeafCheck(const ModelConfig& config, std::string where) : where_(std::move(where)) {
        make_param_spec(config).for_each_leaf([&](const LeafSpec& leaf) {
            shapes_[leaf.name] = {leaf.shape.begin(), leaf.shape.end()};
        });
    }

    /// Those of the model, all of which must be there.
    std::vector<PlannedTensor> weights(std::vector<PlannedTensor> tensors) const {
        leave_out(tensors, "");
        check(tensors, "", "weight");
        return tensors;
    }

    /// The same of the optimizer's states.
    std::vector<PlannedTensor> states(const std::vector<PlannedTensor>& states) const {
        std::map<std::string, std::vector<PlannedTensor>> by_kind;
        for (const PlannedTensor& state : states)
            by_kind[state.name.substr(0, state.name.find('/'))].push_back(state);
        if (by_kind.empty())
            throw Error(fmt::format("{} has no state of an optimizer.", where_),
                        "Convert its weights alone with --output_format safetensors.");
        std::vector<PlannedTensor> all;
        for (auto& [kind, tensors] : by_kind) {
            leave_out(tensors, kind + "/");
            check(tensors, kind + "/", kind);
            for (PlannedTensor& tensor : tensors) all.push_back(std::move(tensor));
        }
        return all;
    }

  private:
    void leave_out(std::vector<PlannedTensor>& tensors, const std::string& prefix) const {
        std::erase_if(tensors, [&](const PlannedTensor& tensor) {
            const std::string name = tensor.name.substr(prefix.size());
            return !shapes_.contains(name) && is_left_out(name);
        });
    }

    void check(const std::vector<PlannedTensor>& tensors, const std::string& prefix,
               std::string_view what) const {
        std::set<std::string> found;
        for (const PlannedTensor& tensor : tensors) {
            const std::string name = tensor.name.substr(prefix.size());
            const auto leaf = shapes_.find(name);
            if (leaf == shapes_.end())
                throw Error(fmt::format("{} has a {} {}, which a model with this config has not.", where_,
                                        what, quoted_name(name)),
                            "Give the config.json of the model with --config.");
            if (leaf->second != tensor.shape)
                throw Error(
                    fmt::format("{}: the {} of {} has the shape {}, and with this config it is {}.", where_,
                                what, name, shape_text(tensor.shape), shape_text(leaf->second)),
                    "Give the config.json of the model with --config.");
            found.insert(name);
        }
        for (const auto& [name, shape] : shapes_)
            if (!found.contains(name))
                throw Error(
                    fmt::format("{} has no {} of {}.", where_, what, name),
                    prefix.empty()
                        ? "Give the config.json of the model with --config."
                        : "A run continues only if all weights were trained: convert the weights alone "
                          "with --output_format safetensors.");
    }

    std::string where_;
    std::map<std::string, std::vector<std::int64_t>> shapes_;
};

}  // namespace

ConversionPlan plan_resumable(const TrainingCheckpoint& checkpoint, const ModelConfig& config,
                              std::uint64_t max_shard_bytes, const std::string& where) {
    const LeafCheck leaves(config, where);
    std::vector<PlannedTensor> states = leaves.states(checkpoint.states);
    ConversionPlan plan =
        plan_model(leaves.weights(checkpoint.weights), ModelFormat::safetensors, max_shard_bytes);
    plan.files.push_back(safetensors_file(optimizer_states_file, std::move(states)));
    return plan;
}

std::vector<PlannedTensor> with_published_experts(std::vector<PlannedTensor> tensors) {
    // As if the tensors were one after the other in a file of bytes.
    SafetensorsHeader header;
    std::uint64_t end = 0;
    for (const PlannedTensor& tensor : tensors) {
        header.entries.push_back({.name = tensor.name, .dtype = FileDType::U8, .shape = tensor.shape});
        header.entries.back().begin = end;
        header.entries.back().end = end += tensor.bytes() / size_of(tensor.dtype);
    }
    const FusedExperts experts = split_fused_experts(header);
    if (experts.replaced.empty()) return tensors;
    std::vector<PlannedTensor> published;
    for (const SafetensorsEntry& entry : experts.published) {
        const auto whole = std::prev(std::upper_bound(
            header.entries.begin(), header.entries.end(), entry.begin,
            [](std::uint64_t at, const SafetensorsEntry& candidate) { return at < candidate.begin; }));
        const PlannedTensor& from = tensors[static_cast<std::size_t>(whole - header.entries.begin())];
        const auto columns = static_cast<std::uint64_t>(std::max<std::int64_t>(1, entry.shape.back()));
        published.push_back(rows_of(from, entry.name, entry.shape,
                                    static_cast<std::int64_t>((entry.begin - whole->begin) / columns),
                                    static_cast<std::int64_t>((entry.end - entry.begin) / columns)));
    }
    for (PlannedTensor& tensor : tensors)
        if (!experts.replaced.contains(tensor.name)) published.push_back(std::move(tensor));
    std::ranges::stable_sort(published, [](const PlannedTensor& a, const PlannedTensor& b) {
        return comes_before(a.name, b.name);
    });
    return published;
}

std::vector<PlannedTensor> named_states(std::string_view kind, std::vector<PlannedTensor> tensors) {
    tensors = with_published_experts(std::move(tensors));
    for (PlannedTensor& tensor : tensors) tensor.name = fmt::format("{}/{}", kind, tensor.name);
    return tensors;
}

void CommonStep::add(double step, std::string_view parameter) {
    if (!(step >= 0) || step != std::floor(step) || step > 1e15)
        throw Error(fmt::format("{}: the step of {} is {}.", where_, quoted_name(parameter), step),
                    "Check that the files are those of an optimizer.");
    const auto count = static_cast<std::int64_t>(step);
    if (step_ < 0) {
        first_ = parameter;
        step_ = count;
    } else if (step_ != count) {
        throw Error(fmt::format("{}: the optimizer made {} updates of {} and {} of {}.", where_, step_,
                                quoted_name(first_), count, quoted_name(parameter)),
                    "The files are of different steps: use those of one checkpoint.");
    }
}

std::int64_t CommonStep::value() const {
    if (step_ < 0)
        throw Error(fmt::format("{} does not say how many updates its optimizer made.", where_),
                    "Convert its weights alone with --output_format safetensors.");
    return step_;
}

std::string settings_of_groups(const PickleValue& groups) {
    std::string text;
    const auto add = [&](std::string_view name, const std::string& value) {
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
    };
    if (groups.size() == 0) return text;
    const PickleValue group = groups.at(0);
    const auto has_number = [&](std::string_view name) {
        using Kind = PickleValue::Kind;
        return group.contains(name) &&
               (group[name].kind() == Kind::real || group[name].kind() == Kind::integer);
    };
    if (has_number("lr")) add("learning rate", fmt::format("{}", group["lr"].number()));
    if (group.contains("betas") && group["betas"].size() == 2)
        add("betas", fmt::format("{} and {}", group["betas"].at(0).number(), group["betas"].at(1).number()));
    if (has_number("eps")) add("epsilon", fmt::format("{}", group["eps"].number()));
    if (has_number("weight_decay")) add("weight decay", fmt::format("{}", group["weight_decay"].number()));
    return text;
}

std::size_t JoinedSource::add(std::unique_ptr<TensorSource> source) {
    const std::size_t before = items().size();
    for (std::size_t i = 0; i < source->items().size(); ++i) {
        add_item(source->items()[i]);
        places_.emplace_back(sources_.size(), i);
    }
    sources_.push_back(std::move(source));
    return before;
}

StridedTensor JoinedSource::view(std::size_t item) const {
    return sources_[places_[item].first]->view(places_[item].second);
}

void JoinedSource::verify(std::size_t item) const {
    sources_[places_[item].first]->verify(places_[item].second);
}

void JoinedSource::forget() const {
    for (const auto& source : sources_) source->forget();
}

std::vector<std::filesystem::path> JoinedSource::files() const {
    std::vector<std::filesystem::path> paths;
    for (const auto& source : sources_)
        for (std::filesystem::path& path : source->files()) paths.push_back(std::move(path));
    return paths;
}

std::vector<PlannedTensor> moved_behind(std::vector<PlannedTensor> tensors, std::size_t items) {
    for (PlannedTensor& tensor : tensors)
        for (Block& block : tensor.blocks) block.item += items;
    return tensors;
}

}  // namespace drover
