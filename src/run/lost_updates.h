#pragma once

#include <span>
#include <string>

#include "optim/optimizer.h"

/// Detects updates that are too small to change bfloat16 weights.
namespace drover {

class TrainEngine;
struct TrainEngineOptions;

/// The fraction of bf16 numbers that a change of this size leaves unchanged when rounded to nearest: those
/// for which it is below half the distance to their neighbours.
double share_left_unchanged(std::span<const float> weights, double change);

/// The most by which the first update changes a weight at this learning rate, whatever the gradient: the
/// learning rate itself, for all optimizers but RMSprop. (SGD changes a weight by less.)
double first_update(const OptimizerSettings& optimizer, double learning_rate);

/// A warning if bf16 weights without a master copy are rounded to nearest and the first update at the highest
/// learning rate leaves more than half of a sample of them unchanged; otherwise empty. The engine must have
/// its weights. Not collective.
std::string lost_updates_warning(const TrainEngine& engine, const TrainEngineOptions& options,
                                 double learning_rate);

}  // namespace drover
