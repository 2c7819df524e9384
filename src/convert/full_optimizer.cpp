#include "convert/full_optimizer.h"

#include <fmt/format.h>

#include "core/error.h"

namespace drover {
namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view full_optimizer_remedy =
    "Give an optimizer.bin that FSDP saved as a full_state_dict, with names of weights.";

}  // namespace

FullOptimizer::FullOptimizer(const std::filesystem::path& file) : file_(file) {
    if (file_.root().kind() != Kind::dict || !file_.root().contains("state"))
        throw Error(fmt::format("{} is not the state of an optimizer.", file.string()),
                    full_optimizer_remedy);
    const PickleValue states = file_.root()["state"];
    for (std::size_t i = 0; i < states.size(); ++i) {
        if (states.key(i).kind() != Kind::text)
            throw Error(fmt::format("{} has parameters by number and not by name.", file.string()),
                        full_optimizer_remedy);
        const std::string name(states.key(i).text());
        const PickleValue state = states.value(i);
        for (std::size_t j = 0; j < state.size(); ++j) {
            const PickleValue value = state.value(j);
            const std::string kind(state.key(j).text());
            if (kind == "step" || value.kind() != Kind::tensor) continue;
            const std::size_t item = add_item(name, value.tensor().dtype, value.tensor().shape, file);
            tensors_.push_back(value);
            TensorBuilder builder(name, items()[item].dtype);
            builder.whole(item, items()[item]);
            by_kind_[kind].push_back(builder.tensor());
        }
    }
}

std::vector<PlannedTensor> FullOptimizer::states() const {
    std::vector<PlannedTensor> all;
    for (const auto& [kind, tensors] : by_kind_)
        for (PlannedTensor& tensor : named_states(kind, tensors)) all.push_back(std::move(tensor));
    return all;
}

OptimizerFacts FullOptimizer::optimizer() const {
    CommonStep step(file_.path().string());
    const PickleValue states = file_.root()["state"];
    for (std::size_t i = 0; i < states.size(); ++i)
        if (states.value(i).contains("step"))
            step.add(states.value(i)["step"].number(), states.key(i).text());
    OptimizerFacts facts{.updates = step.value()};
    if (file_.root().contains("param_groups"))
        facts.settings = settings_of_groups(file_.root()["param_groups"]);
    return facts;
}

StridedTensor FullOptimizer::view(std::size_t item) const {
    return strided_view(tensors_[item].tensor());
}

}  // namespace drover
