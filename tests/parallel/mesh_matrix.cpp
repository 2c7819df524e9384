#include "parallel/mesh_matrix.h"

#include <array>
#include <set>
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
    const std::array<std::size_t, 7> sizes = {ranks.size(),      modes.size(),       models.size(),
                                              optimizers.size(), recomputing.size(), accumulations.size(),
                                              last_rows.size()};
    std::size_t all = 1;
    for (const std::size_t size : sizes) all *= size;

    std::vector<MatrixCase> cases;
    for (std::size_t number = 0; number < all; ++number) {
        std::array<std::size_t, sizes.size()> at{};
        std::size_t rest = number;
        for (std::size_t i = sizes.size(); i-- > 0; rest /= sizes[i]) at[i] = rest % sizes[i];
        const MeshMode& mode = modes[at[1]];
        const auto shape = mode.shape(ranks[at[0]]);
        if (!shape) continue;
        MatrixCase& one = cases.emplace_back();
        one.model = models[at[2]];
        one.choices.assign(at.begin(), at.end());
        one.mesh_case.shape = *shape;
        one.mesh_case.sharding = mode.sharding;
        one.mesh_case.sequence_parallel = mode.sequence_parallel;
        one.mesh_case.optimizer = optimizers[at[3]];
        one.mesh_case.recompute = recomputing[at[4]];
        one.mesh_case.accumulation = accumulations[at[5]];
        one.mesh_case.rows = 8;
        one.mesh_case.last_rows = last_rows[at[6]];
    }
    return cases;
}

std::vector<MatrixCase> covering_pairs(const std::vector<MatrixCase>& cases) {
    std::set<ChoicePair> open;
    for (const MatrixCase& matrix_case : cases)
        for (const ChoicePair& pair : pairs_of(matrix_case)) open.insert(pair);
    std::vector<MatrixCase> chosen;
    while (!open.empty()) {
        const MatrixCase* best = nullptr;
        std::size_t most = 0;
        for (const MatrixCase& matrix_case : cases) {
            std::size_t covers = 0;
            for (const ChoicePair& pair : pairs_of(matrix_case)) covers += open.count(pair);
            if (covers > most) {
                most = covers;
                best = &matrix_case;
            }
        }
        for (const ChoicePair& pair : pairs_of(*best)) open.erase(pair);
        chosen.push_back(*best);
    }
    return chosen;
}

}  // namespace drover::test
