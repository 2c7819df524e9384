#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <utility>

#include "core/text_file.h"
#include "data/sampling/sampler.h"
#include "support/golden.h"
#include "train/loop/trainer.h"
#include "train/sampled_data.h"

namespace drover::test {

/// Returns the losses of a real run, and checks that no others are requested.
class ReplayedModel final : public TrainingModel {
  public:
    explicit ReplayedModel(const Json& golden, std::int64_t targets_per_row)
        : golden_(golden), targets_per_row_(targets_per_row) {}

    UpdateResult update(std::span<const Batch> micro_batches, double) override {
        const Json& update = golden_.at("updates").at(updates_++);
        EXPECT_EQ(micro_batches.size(), update.at("micro_batches").get<std::size_t>())
            << "update " << updates_;
        const Json& loss = update.at("loss");
        return {.loss = loss.is_null() ? std::nan("") : loss.get<double>(),
                .gradient_norm = update.at("grad_norm")};
    }

    std::vector<BatchEvaluation> evaluate(const Batch& batch) override {
        const Json& evaluation = golden_.at("evaluations").at(evaluations_++);
        EXPECT_EQ(batch.rows, evaluation.at("rows").get<std::int64_t>());
        return {{.loss = evaluation.at("loss"),
                 .rows = batch.rows,
                 .targets = batch.rows * targets_per_row_,
                 .correct = evaluation.at("correct")}};
    }

    void save(const std::filesystem::path& folder) override { std::filesystem::create_directories(folder); }
    void load(const std::filesystem::path& folder) override { loaded = folder; }
    void save_checkpoint(const CheckpointRequest& request) override {
        std::filesystem::create_directories(request.folder);
        write_file_atomically(request.folder / "trainer_state.json", request.trainer_state);
        saved = request.folder;
    }
    std::optional<CheckpointOutcome> checkpoint_outcome(bool) override {
        if (saved.empty()) return std::nullopt;
        return CheckpointOutcome{.folder = std::exchange(saved, {})};
    }
    ParameterCounts parameters() const override {
        return {.total = golden_.at("parameters"),
                .active = golden_.at("parameters"),
                .without_embeddings = golden_.at("parameters_without_embeddings")};
    }

    bool all_played() const {
        return updates_ == golden_.at("updates").size() && evaluations_ == golden_.at("evaluations").size();
    }

    std::filesystem::path loaded;
    std::filesystem::path saved;  ///< its outcome has not been read yet

  private:
    const Json& golden_;
    std::int64_t targets_per_row_;
    std::size_t updates_ = 0;
    std::size_t evaluations_ = 0;
};

/// Rows of zeros in the order of a sampler.
class BlankData final : public SampledData {
  public:
    using SampledData::SampledData;

  private:
    std::int32_t token(std::int64_t, std::int64_t) const override { return 0; }
};

}  // namespace drover::test
