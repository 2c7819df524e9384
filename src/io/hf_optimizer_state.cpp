#include "io/hf_optimizer_state.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"

namespace drover {
namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view not_an_optimizer_file =
    "Check that the file is an optimizer.pt of Hugging Face's Trainer.";

double number_or(const PickleValue& dict, std::string_view key, double otherwise) {
    return dict.contains(key) ? dict[key].number() : otherwise;
}

HfOptimizerState::Parameter read_parameter(const PickleValue& state, const std::filesystem::path& path) {
    HfOptimizerState::Parameter parameter;
    for (std::size_t i = 0; i < state.size(); ++i) {
        const std::string key(state.key(i).text());
        const PickleValue value = state.value(i);
        if (key == "step") {
            const double step = value.number();
            if (!(step >= 0) || step != std::floor(step) || step > 1e15)
                throw Error(fmt::format("{}: a parameter's step is {}.", path.string(), step),
                            not_an_optimizer_file);
            parameter.step = static_cast<std::int64_t>(step);
        } else if (value.kind() == Kind::tensor && !value.tensor().shape.empty()) {
            parameter.tensors.insert_or_assign(key, value.packed_tensor());
        } else if (value.kind() != Kind::none) {
            parameter.numbers.insert_or_assign(key, value.number());
        }
    }
    return parameter;
}

std::vector<double> numbers(const PickleValue& list) {
    std::vector<double> values;
    for (std::size_t i = 0; i < list.size(); ++i) values.push_back(list.at(i).number());
    return values;
}

}  // namespace

HfOptimizerState::HfOptimizerState(const std::filesystem::path& path) : file_(path) {
    file_.verify();
    const PickleValue groups = file_.root()["param_groups"];
    for (std::size_t i = 0; i < groups.size(); ++i) {
        const PickleValue group = groups.at(i);
        const PickleValue members = group["params"];
        const double rate = group["lr"].number();
        groups_.push_back({.learning_rate = rate,
                           .initial_learning_rate = number_or(group, "initial_lr", rate),
                           .weight_decay = number_or(group, "weight_decay", 0),
                           .first_parameter = parameters_.size(),
                           .parameters = members.size()});
        for (std::size_t j = 0; j < members.size(); ++j)
            if (members.at(j).integer() != static_cast<std::int64_t>(parameters_.size() + j))
                throw Error(fmt::format("{}: the parameters are not numbered in order.", path.string()),
                            not_an_optimizer_file);
        parameters_.resize(parameters_.size() + members.size());
    }
    const PickleValue state = file_.root()["state"];
    for (std::size_t i = 0; i < state.size(); ++i) {
        const std::int64_t index = state.key(i).integer();
        if (index < 0 || static_cast<std::size_t>(index) >= parameters_.size())
            throw Error(fmt::format("{} has the state of a parameter {}, but {} parameters.", path.string(),
                                    index, parameters_.size()),
                        not_an_optimizer_file);
        parameters_[static_cast<std::size_t>(index)] = read_parameter(state.value(i), path);
    }
}

Tensor HfOptimizerState::tensor(std::size_t index, std::string_view key, std::int64_t elements) const {
    const auto& tensors = parameters_.at(index).tensors;
    const auto found = tensors.find(key);
    if (found == tensors.end())
        throw Error(fmt::format("{} has no {} for parameter {}.", path().string(), key, index),
                    "Continue with the optimizer that the checkpoint was saved with.");
    if (found->second.numel() != elements)
        throw Error(fmt::format("{}: {} of parameter {} has {} elements where the model has {}.",
                                path().string(), key, index, found->second.numel(), elements),
                    "Continue with the model that the checkpoint was saved with.");
    return found->second;
}

HfSchedulerState HfSchedulerState::read(const std::filesystem::path& path) {
    const TorchFile file(path);
    file.verify();
    const PickleValue state = file.root();
    HfSchedulerState result;
    result.last_epoch = state["last_epoch"].integer();
    if (state.contains("base_lrs")) result.base_learning_rates = numbers(state["base_lrs"]);
    if (state.contains("_last_lr")) result.last_learning_rates = numbers(state["_last_lr"]);
    return result;
}

}  // namespace drover
