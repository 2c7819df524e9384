#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <utility>

#include "data/sampler.h"
#include "support/golden.h"
#include "train/trainer.h"

namespace drover::test {

/// Answers with the losses that a real run had, and checks that it is asked for no others.
class ReplayedModel final : public TrainingModel {
  public:
    explicit ReplayedModel(const Json& golden, std::int64_t targets_per_row)
        : golden_(golden), targets_per_row_(targets_per_row) {}

    UpdateOutcome update(std::span<const TokenBatch> micro_batches, double) override {
        const Json& update = golden_.at("updates").at(updates_++);
        UpdateOutcome outcome{.losses = {}, .gradient_norm = update.at("grad_norm")};
        for (const Json& loss : update.at("losses"))
            outcome.losses.push_back(loss.is_null() ? std::nan("") : loss.get<double>());
        EXPECT_EQ(outcome.losses.size(), micro_batches.size()) << "update " << updates_;
        return outcome;
    }

    std::vector<BatchEvaluation> evaluate(const TokenBatch& batch, std::int64_t rows) override {
        const Json& evaluation = golden_.at("evaluations").at(evaluations_++);
        EXPECT_EQ(batch.rows, evaluation.at("rows").get<std::int64_t>());
        return {{.loss = evaluation.at("loss"),
                 .rows = rows,
                 .targets = rows * targets_per_row_,
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
    std::filesystem::path saved;  ///< whose outcome was not asked for yet

  private:
    const Json& golden_;
    std::int64_t targets_per_row_;
    std::size_t updates_ = 0;
    std::size_t evaluations_ = 0;
};

/// Rows of zeros in the order of a sampler.
class BlankData final : public TrainingData {
  public:
    BlankData(SamplerOptions options, std::int64_t row_length, StreamEnd end)
        : options_(options), row_length_(row_length), end_(end), sampler_(options) {}

    std::int64_t samples() const override { return options_.samples; }
    std::int64_t batches_per_epoch() const override { return sampler_.batches_per_epoch(); }
    std::int64_t tokens_per_epoch() const override { return options_.samples * row_length_; }

    std::unique_ptr<BatchStream> open(BatchPosition start) override {
        return std::make_unique<Stream>(*this, start);
    }

  private:
    struct Stream final : BatchStream {
        Stream(BlankData& data, BatchPosition start) : data_(data), position_(start) {}

        std::optional<TrainingBatch> next() override {
            if (position_.step == data_.batches_per_epoch()) position_ = {position_.epoch + 1, 0};
            if (data_.end_ == StreamEnd::after_one_epoch && position_.epoch > 0) return std::nullopt;
            const auto rows =
                static_cast<std::int64_t>(data_.sampler_.batch(position_.epoch, position_.step).size());
            const std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * data_.row_length_), 0);
            TrainingBatch batch{.epoch = position_.epoch,
                                .step = position_.step,
                                .tokens = TokenBatch::from_labels(rows, data_.row_length_, ids, ids),
                                .attended = rows * data_.row_length_,
                                .fresh = rows};
            ++position_.step;
            return batch;
        }

        BlankData& data_;
        BatchPosition position_;
    };

    SamplerOptions options_;
    std::int64_t row_length_;
    StreamEnd end_;
    BatchSampler sampler_;
};

}  // namespace drover::test
