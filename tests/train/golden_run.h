#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "backend/backend.h"
#include "support/golden.h"
#include "support/test_backend.h"
#include "train/engine/train_engine.h"
#include "train/single_mesh.h"

namespace drover::test {

/// The golden runs' data: sample i holds outputs of mt19937(1000 + i) modulo the vocabulary.
inline Batch batch_of_samples(const std::vector<int>& samples, std::int64_t length, std::uint32_t vocab) {
    std::vector<std::int32_t> ids;
    for (const int sample : samples) {
        std::mt19937 generator(1000u + static_cast<std::uint32_t>(sample));
        for (std::int64_t i = 0; i < length; ++i)
            ids.push_back(static_cast<std::int32_t>(generator() % vocab));
    }
    return Batch::full_rows(static_cast<std::int64_t>(samples.size()), length, ids, ids);
}

/// The optimizer of a golden run; a file without a name means AdamW.
inline OptimizerSettings optimizer_of(const Json& golden) {
    const double weight_decay = golden.at("weight_decay");
    OptimizerSettings settings =
        OptimizerSettings::named(golden.value("name", std::string("adamw_torch")), weight_decay);
    if (golden.contains("beta1"))
        settings.adamw = {.beta1 = golden.at("beta1"),
                          .beta2 = golden.at("beta2"),
                          .eps = golden.at("epsilon"),
                          .weight_decay = weight_decay};
    return settings;
}

/// Rows of the largest batch of a run, including its evaluation.
inline std::int64_t largest_batch(const Json& golden) {
    const std::int64_t training = golden.at("batch_size");
    return golden.contains("eval_samples")
               ? std::max(training, static_cast<std::int64_t>(golden.at("eval_samples").size()))
               : training;
}

/// An engine set up like a golden run of tests/golden/curve.
struct GoldenRun {
    std::unique_ptr<Backend> backend = make_test_backend();
    ModelConfig config;
    std::unique_ptr<TrainEngine> engine;

    GoldenRun(const Json& golden, const Precision& precision, const HfCompat& compat = {})
        : config(ModelConfig::parse(golden.at("config").dump(), "golden")) {
        engine = std::make_unique<TrainEngine>(
            config,
            TrainEngineOptions{.model = {.precision = precision,
                                         .recompute = {},
                                         .rows = largest_batch(golden),
                                         .row_length = golden.at("sample_length")},
                               .optimizer = optimizer_of(golden.at("optimizer")),
                               .max_gradient_norm = golden.at("max_grad_norm"),
                               .compat = compat},
            *backend, single_mesh());
        engine->allocate();
        engine->initialize_weights(golden.at("seed"));
    }

    double sum_of(const std::string& name) const {
        for (const OwnedLeaf& leaf : engine->store().owned())
            if (leaf.spec->name == name) {
                const auto elements = values(leaf.param);
                return std::accumulate(elements.begin(), elements.end(), 0.0);
            }
        ADD_FAILURE() << name;
        return 0;
    }
};

}  // namespace drover::test
