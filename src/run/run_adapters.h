#pragma once

#include <filesystem>
#include <string>

#include "model/adapters.h"
#include "peft/peft_config.h"

namespace drover {

struct LoraSettings;
struct ModelConfig;
struct ModelSettings;

/// The adapters that a run trains.
struct RunAdapters {
    PeftConfig config;
    Adapters adapters;
    std::filesystem::path start;  ///< folder of those it goes on from; empty: new ones

    /// Makes the configuration of new adapters, or reads that of those the settings name, and finds what they
    /// adapt. `base` is the model's name in the saved file. Error if something is missing or does not fit.
    static RunAdapters find(const LoraSettings& settings, const ModelSettings& places,
                            const ModelConfig& model, const std::string& base, const PeftWarning& warn);

    /// "LoRA r 16 on 7 modules × 32 blocks: 41,943,040 of 8,072,204,288 parameters are trained (0.52 %)"
    std::string text(const ModelConfig& model) const;
    /// Writes adapter_config.json and a README.md.
    void write_texts(const std::filesystem::path& folder) const;
    /// Error unless a checkpoint has these adapters.
    void check_same(const std::filesystem::path& checkpoint, const ModelConfig& model) const;
};

/// Error if a checkpoint has adapters, but the run trains the whole model.
void refuse_adapters_of(const std::filesystem::path& checkpoint);

}  // namespace drover
