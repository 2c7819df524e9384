#pragma once

#include "core/json.h"
#include "train/golden_step.h"

namespace drover::test {

/// A model with PEFT's adapters (tests/golden/lora): config, weights, adapters, gradients and a loss curve.
class GoldenLora : public GoldenStep {
  public:
    explicit GoldenLora(const std::string& name) : GoldenStep("../lora/" + name) {
        const Json json = Json::parse(file().header().metadata.at("adapters"));
        for (const Json& weight : json["weights"])
            adapters_.weights.push_back(
                {.leaf = weight["leaf"], .rank = weight["rank"], .scale = weight["scale"]});
        for (const Json& leaf : json["trained_leaves"]) adapters_.trained_leaves.push_back(leaf);
        adapters_.magnitudes = json["magnitudes"];
        if (adapters_.change_vocabulary()) {
            ModelConfig separate = config();
            separate.separate_head();
            set_config(std::move(separate));
        }
    }

    const Adapters& adapters() const { return adapters_; }
    std::uint64_t seed() const { return std::stoull(file().header().metadata.at("seed")); }
    double learning_rate() const { return std::stod(file().header().metadata.at("learning_rate")); }

    TrainEngineOptions options(const Precision& precision, const RecomputePolicy& recompute = {}) const {
        TrainEngineOptions options = GoldenStep::options(precision, recompute);
        options.model.adapters = adapters_;
        options.max_gradient_norm = 0;
        return options;
    }

    /// An engine with the golden weights and the adapters for which there are gradients.
    std::unique_ptr<TrainEngine> engine(Backend& backend, const TrainEngineOptions& options) const {
        auto engine = GoldenStep::engine(backend, options);
        engine->load_adapters([&](const LeafSpec& leaf) { return file().tensor("adapter." + leaf.name); });
        return engine;
    }
    /// With adapters as PEFT draws them.
    std::unique_ptr<TrainEngine> new_engine(Backend& backend, const TrainEngineOptions& options) const {
        auto engine = GoldenStep::engine(backend, options);
        engine->initialize_adapters(seed());
        return engine;
    }

  private:
    Adapters adapters_;
};

}  // namespace drover::test
