#include "parallel/mesh_matrix.h"

#include <array>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

namespace drover::test {
namespace {

/// Two settings, each with its choice.
using ChoicePair = std::tuple<std::size_t, int, std::size_t, int>;

std::vector<ChoicePair> pairs_of(const MatrixCase& matrix_case) {
    std::vector<ChoicePair> pairs;
    const std::vector<int>& choices = matrix_case.choices;
    for (std::size_t i = 0; i < choices.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) pairs.emplace_back(i, choices[i], j, choices[j]);
    return pairs;
}

/// Every combination of choices, of which setting i has sizes[i].
std::vector<std::vector<int>> all_choices(const std::vector<std::size_t>& sizes) {
    std::vector<std::vector<int>> all{{}};
    for (const std::size_t size : sizes) {
        std::vector<std::vector<int>> longer;
        for (const std::vector<int>& choices : all)
            for (std::size_t choice = 0; choice < size; ++choice) {
                longer.push_back(choices);
                longer.back().push_back(static_cast<int>(choice));
            }
        all = std::move(longer);
    }
    return all;
}

/// What a setting's choice, a number, stands for.
template <class Choices>
const auto& chosen(const Choices& choices, int number) {
    return choices[static_cast<std::size_t>(number)];
}

/// What the ranks of a pipeline stage do.
std::vector<MeshMode> stage_modes() {
    return {
        {.name = "one rank"},
        {.name = "DDP"},
        {.name = "ZeRO-1", .sharding = Sharding::zero1},
        {.name = "ZeRO-2", .sharding = Sharding::zero2},
        {.name = "ZeRO-3", .sharding = Sharding::zero3},
        {.name = "tp 2", .tp = 2},
        {.name = "tp 2, sequence parallel", .tp = 2, .sequence_parallel = true},
        {.name = "2-D", .sharding = Sharding::zero3, .tp = 2, .sequence_parallel = true},
        {.name = "hybrid", .sharding = Sharding::zero3, .dcn = 2},
        {.name = "hybrid ZeRO-1", .sharding = Sharding::zero1, .dcn = 2},
    };
}

int stage_ranks(const MeshMode& mode) {
    if (mode.name == "one rank") return 1;
    return mode.name == "2-D" || mode.dcn > 1 ? 4 : 2;
}

}  // namespace

std::optional<MeshShape> MeshMode::shape(int ranks) const {
    if (ranks % (dcn * tp) != 0) return std::nullopt;
    return MeshShape{.dcn = dcn, .data = ranks / (dcn * tp), .tp = tp};
}

std::vector<MeshMode> mesh_modes() {
    return {
        {.name = "DDP"},
        {.name = "ZeRO-1", .sharding = Sharding::zero1},
        {.name = "ZeRO-2", .sharding = Sharding::zero2},
        {.name = "ZeRO-3", .sharding = Sharding::zero3},
        {.name = "2-D, tp 2", .sharding = Sharding::zero3, .tp = 2},
        {.name = "2-D, tp 4", .sharding = Sharding::zero3, .tp = 4},
        {.name = "2-D, tp 2, sequence parallel",
         .sharding = Sharding::zero3,
         .tp = 2,
         .sequence_parallel = true},
        {.name = "2-D, tp 4, sequence parallel",
         .sharding = Sharding::zero3,
         .tp = 4,
         .sequence_parallel = true},
        {.name = "hybrid", .sharding = Sharding::zero3, .dcn = 2},
        {.name = "hybrid ZeRO-2", .sharding = Sharding::zero2, .dcn = 2},
        {.name = "hybrid 2-D", .sharding = Sharding::zero3, .dcn = 2, .tp = 2, .sequence_parallel = true},
    };
}

std::vector<MatrixCase> full_matrix() {
    std::vector<MeshModel> models;
    for (const MeshModel& model : mesh_models())
        for (const char* name : {"grouped-query", "tied", "mixtral", "qwen2", "qwen3"})
            if (model.name == name) models.push_back(model);
    constexpr std::array ranks = {1, 2, 4, 8};
    const auto modes = mesh_modes();
    constexpr std::array optimizers = {"adamw_torch", "adafactor"};
    constexpr std::array recomputing = {Recompute::none, Recompute::full};
    constexpr std::array accumulations = {1, 3};
    constexpr std::array last_rows = {0, 5};  // of 8
    std::vector<MatrixCase> cases;
    for (const std::vector<int>& at :
         all_choices({ranks.size(), modes.size(), models.size(), optimizers.size(), recomputing.size(),
                      accumulations.size(), last_rows.size()})) {
        const MeshMode& mode = chosen(modes, at[1]);
        const auto shape = mode.shape(chosen(ranks, at[0]));
        if (!shape) continue;
        MatrixCase& one = cases.emplace_back();
        one.model = chosen(models, at[2]);
        one.choices = at;
        one.mesh_case.shape = *shape;
        one.mesh_case.sharding = mode.sharding;
        one.mesh_case.sequence_parallel = mode.sequence_parallel;
        one.mesh_case.optimizer = chosen(optimizers, at[3]);
        one.mesh_case.recompute = chosen(recomputing, at[4]);
        one.mesh_case.accumulation = chosen(accumulations, at[5]);
        one.mesh_case.rows = 8;
        one.mesh_case.last_rows = chosen(last_rows, at[6]);
    }
    return cases;
}

std::vector<MatrixCase> full_pipeline_matrix() {
    constexpr int most_ranks = 8;
    const auto models = pipeline_models(9);
    const auto modes = stage_modes();
    constexpr std::array stages = {2, 4};
    constexpr std::array chunks = {1, 2};
    constexpr std::array schedules = {PipelineScheduleKind::one_forward_one_backward,
                                      PipelineScheduleKind::zero_bubble};
    constexpr std::array optimizers = {"adamw_torch", "adafactor"};
    constexpr std::array accumulations = {1, 3, 4, 8};
    constexpr std::array recomputing = {Recompute::none, Recompute::selective, Recompute::full};
    constexpr std::array last_rows = {0, 3};  // of 4

    std::vector<MatrixCase> cases;
    for (const std::vector<int>& at :
         all_choices({stages.size(), chunks.size(), schedules.size(), modes.size(), models.size(),
                      optimizers.size(), accumulations.size(), recomputing.size(), last_rows.size()})) {
        const MeshMode& mode = chosen(modes, at[3]);
        MeshShape shape = *mode.shape(stage_ranks(mode));
        shape.pp = chosen(stages, at[0]);
        if (shape.ranks() > most_ranks) continue;
        cases.push_back({.model = chosen(models, at[4]),
                         .mesh_case = {.shape = shape,
                                       .sharding = mode.sharding,
                                       .sequence_parallel = mode.sequence_parallel,
                                       .accumulation = chosen(accumulations, at[6]),
                                       .optimizer = chosen(optimizers, at[5]),
                                       .recompute = chosen(recomputing, at[7]),
                                       .last_rows = chosen(last_rows, at[8]),
                                       .schedule = chosen(schedules, at[2]),
                                       .chunks = chosen(chunks, at[1])},
                         .choices = at});
    }
    return cases;
}

std::vector<MatrixCase> covering_pairs(const std::vector<MatrixCase>& cases) {
    std::map<ChoicePair, std::size_t> numbers;
    std::vector<std::vector<std::size_t>> pairs;  // of each case, by number
    for (const MatrixCase& matrix_case : cases) {
        pairs.emplace_back();
        for (const ChoicePair& pair : pairs_of(matrix_case))
            pairs.back().push_back(numbers.try_emplace(pair, numbers.size()).first->second);
    }
    std::vector<bool> open(numbers.size(), true);
    std::size_t left = numbers.size();
    std::vector<MatrixCase> chosen;
    while (left > 0) {
        std::size_t best = 0, most = 0;
        for (std::size_t i = 0; i < cases.size(); ++i) {
            std::size_t covers = 0;
            for (const std::size_t pair : pairs[i]) covers += open[pair];
            if (covers > most) {
                most = covers;
                best = i;
            }
        }
        for (const std::size_t pair : pairs[best]) open[pair] = false;
        left -= most;
        chosen.push_back(cases[best]);
    }
    return chosen;
}

std::vector<MatrixCase> chosen_cases(const std::vector<MatrixCase>& all) {
    const char* selection = std::getenv("DROVER_MESH_MATRIX");
    if (selection == nullptr) return covering_pairs(all);
    const std::string_view text(selection);
    const std::size_t slash = text.find('/');
    const auto number = [](std::string_view digits) {
        return static_cast<std::size_t>(std::max(1L, std::strtol(std::string(digits).c_str(), nullptr, 10)));
    };
    const std::size_t first = slash == text.npos ? 1 : number(text.substr(0, slash));
    const std::size_t stride = number(slash == text.npos ? text : text.substr(slash + 1));
    std::vector<MatrixCase> some;
    for (std::size_t i = first - 1; i < all.size(); i += stride) some.push_back(all[i]);
    return some;
}

}  // namespace drover::test
