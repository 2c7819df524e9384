#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "backend/backend.h"
#include "parallel/mesh_cases.h"
#include "train/dealt_data.h"
#include "train/engine/engine_model.h"
#include "train/engine/train_engine.h"

namespace drover::test {

/// One rank's engine, loop and data on a mesh: a run that logs every step and saves every second step.
class RankRun {
  public:
    RankRun(const MeshModel& model, const MeshCase& mesh_case, const Mesh& mesh,
            const std::filesystem::path& output, std::int64_t max_steps, const Precision& precision);

    /// The records, including those before the checkpoint.
    Json train(const std::optional<std::filesystem::path>& checkpoint = std::nullopt);
    /// Reads a checkpoint and writes it again.
    void copy_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to);
    std::string outcome_of_saving_to(const std::filesystem::path& to);

  private:
    std::unique_ptr<Backend> backend_;
    TrainerSettings settings_;
    std::unique_ptr<TrainEngine> engine_;
    std::unique_ptr<EngineModel> model_;
    std::unique_ptr<DealtData> training_;
};

/// Calls `work` on every rank of the case, as a thread.
void on_mesh(const MeshModel& model, const MeshCase& mesh_case, const std::filesystem::path& output,
             std::int64_t max_steps, const Precision& precision, const std::function<void(RankRun&)>& work);

/// The records of such a run in fp32, which are the same on all ranks.
Json records_of(const MeshModel& model, const MeshCase& mesh_case, const std::filesystem::path& output,
                std::int64_t max_steps,
                const std::optional<std::filesystem::path>& checkpoint = std::nullopt);
/// Records that differ by no more than rounding.
void expect_same_curve(const Json& actual, const Json& expected);

/// One of mesh_models().
MeshModel model_named(std::string_view name);

}  // namespace drover::test
