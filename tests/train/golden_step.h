#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "support/golden.h"
#include "train/engine/train_engine.h"
#include "train/single_mesh.h"

namespace drover::test {

/// One training step computed by transformers (tests/golden/step): config, weights, batch, loss, gradients.
class GoldenStep {
  public:
    explicit GoldenStep(const std::string& name)
        : file_(golden_path("step/" + name + ".safetensors")),
          config_(ModelConfig::parse(file_.header().metadata.at("config"), name)) {}

    const ModelConfig& config() const { return config_; }
    /// From now on engines are created with `config`, which must fit these weights.
    void set_config(ModelConfig config) { config_ = std::move(config); }
    const SafetensorsFile& file() const { return file_; }

    Batch batch() const {
        const Tensor ids = file_.tensor("input_ids");
        const auto integers = [&](const char* name) {
            const Tensor tensor = file_.tensor(name);
            return std::vector<std::int32_t>(tensor.data<std::int32_t>(),
                                             tensor.data<std::int32_t>() + tensor.numel());
        };
        if (!file_.find("attention_mask"))
            return Batch::full_rows(ids.size(0), ids.size(1), integers("input_ids"), integers("labels"));
        const std::int32_t* mask = file_.tensor("attention_mask").data<std::int32_t>();
        std::vector<std::int32_t> lengths;
        for (std::int64_t row = 0; row < ids.size(0); ++row) {
            std::int32_t length = 0;
            for (std::int64_t i = 0; i < ids.size(1); ++i) length += mask[row * ids.size(1) + i];
            lengths.push_back(length);
        }
        return Batch::right_padded(ids.size(0), ids.size(1), integers("input_ids"), integers("labels"),
                                   lengths);
    }

    /// A ready engine with the golden weights.
    std::unique_ptr<TrainEngine> engine(Backend& backend, const Precision& precision,
                                        const RecomputePolicy& recompute = {},
                                        MoeMode moe_mode = MoeMode::grouped) const {
        return engine(backend, options(precision, recompute, moe_mode));
    }

    TrainEngineOptions options(const Precision& precision, const RecomputePolicy& recompute = {},
                               MoeMode moe_mode = MoeMode::grouped) const {
        const Batch tokens = batch();
        return {.model = {.precision = precision,
                          .recompute = recompute,
                          .moe_mode = moe_mode,
                          .rows = tokens.rows,
                          .row_length = tokens.row_length},
                .max_gradient_norm = 1.0,
                .compat = {}};
    }

    std::unique_ptr<TrainEngine> engine(Backend& backend, const TrainEngineOptions& options) const {
        auto engine = std::make_unique<TrainEngine>(config_, options, backend, single_mesh());
        engine->allocate();
        const TemporaryFolder folder;
        std::map<std::string, Tensor> weights;
        for (const SafetensorsEntry& entry : file_.header().entries)
            if (entry.name.starts_with("weight.")) weights[entry.name.substr(7)] = file_.tensor(entry.name);
        write_safetensors(folder / "model.safetensors", weights);
        const LoadReport report = engine->load_weights(folder.path(), 0);
        require(report.missing.empty() && report.unexpected.empty(), "golden weights do not fit the model");
        return engine;
    }

  private:
    SafetensorsFile file_;
    ModelConfig config_;
};

/// Compares an engine's gradients with those in `expected`, named "grad.<leaf>"; returns how many there are.
inline int expect_gradients(const TrainEngine& engine, const SafetensorsFile& expected, double limit) {
    int compared = 0;
    for (const OwnedLeaf& leaf : engine.store().owned()) {
        if (!expected.find("grad." + leaf.spec->name)) continue;
        EXPECT_LE(relative_error(leaf.gradient, expected.tensor("grad." + leaf.spec->name)), limit)
            << leaf.spec->name;
        ++compared;
    }
    return compared;
}

/// An engine's weights and optimizer state.
inline std::vector<std::vector<double>> everything(const TrainEngine& engine) {
    std::vector<std::vector<double>> result;
    for (const OwnedLeaf& leaf : engine.store().owned()) result.push_back(values(leaf.param));
    for (const OptimizerState& state : engine.optimizer().state()) result.push_back(values(state.tensor));
    return result;
}

}  // namespace drover::test
