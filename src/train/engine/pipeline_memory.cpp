#include "train/engine/pipeline_memory.h"

#include <algorithm>

#include "train/engine/planning_mesh.h"
#include "train/engine/train_engine.h"

namespace drover {

std::vector<RankMemory> plan_pipeline_memory(const ModelConfig& config, const TrainEngineOptions& options,
                                             Backend& backend, const Mesh& mesh) {
    const int ranks = mesh.shape().pp;
    std::vector<RankMemory> plans;
    const auto add = [&](const TrainEngine& engine) {
        plans.push_back({.device = engine.memory_plan(), .host = engine.host_memory_plan()});
    };
    if (ranks == 1) {
        add(TrainEngine(config, options, backend, mesh));
        return plans;
    }
    for (int rank = 0; rank < ranks; ++rank) {
        SentCounts counts;
        const Mesh planning =
            counting_mesh(mesh, rank * (mesh.shape().ranks() / ranks), backend.device(), counts);
        add(TrainEngine(config, options, backend, planning));
    }
    return plans;
}

int largest_rank(const std::vector<RankMemory>& ranks) {
    const auto largest =
        std::max_element(ranks.begin(), ranks.end(), [](const RankMemory& left, const RankMemory& right) {
            return left.device.total < right.device.total;
        });
    return static_cast<int>(largest - ranks.begin());
}

}  // namespace drover
