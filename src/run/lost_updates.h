#pragma once

#include <span>
#include <string>

#include "train/engine/train_engine.h"

/// Updates of bfloat16 weights that are too small to be seen.
namespace drover {

/// The share of bf16 numbers that a change of this size leaves as they are when it is rounded to the nearest
/// one: those for which it is below half the distance to their neighbours.
double share_left_unchanged(std::span<const float> weights, double change);

/// What the first update changes a weight by at most, at this learning rate and whatever the gradient is: the
/// learning rate itself, for all optimizers but RMSprop. (SGD changes a weight by a part of it.)
double first_update(const OptimizerSettings& optimizer, double learning_rate);

/// A warning where bf16 weights without a master copy are rounded to nearest, and the first update at the
/// highest learning rate leaves more than half of a sample of them as they are; else empty. The engine has
/// its weights. Not collective.
std::string lost_updates_warning(const TrainEngine& engine, const TrainEngineOptions& options,
                                 double learning_rate);

}  // namespace drover
