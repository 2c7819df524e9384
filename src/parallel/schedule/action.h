#pragma once

#include <optional>
#include <string>
#include <string_view>

/// What a rank of a pipeline does, as data, and PyTorch's way to write it.
namespace drover {

enum class PipelineActionKind {
    forward,
    backward,         ///< both gradients at once
    backward_input,   ///< the gradient of a chunk's input alone
    backward_weight,  ///< what is left of backward after backward_input
    send_activations,
    receive_activations,
    send_gradients,
    receive_gradients,
    wait_for_sent_activations,  ///< until the buffer of that send is free
    wait_for_sent_gradients,
    gather,   ///< makes the whole weights of a chunk from those of all its ranks
    release,  ///< gives up what gather made
    reduce_gradients,
    wait_for_reduction,
};

/// Stages are numbered through the whole model: each is a chunk of its layers, and rank p of P holds the
/// chunks p, p + P, p + 2P, …
struct PipelineAction {
    /// The micro-batch of kinds that have none: weights belong to all of them.
    static constexpr int every_micro_batch = -1;

    PipelineActionKind kind = PipelineActionKind::forward;
    int stage = 0;
    int micro_batch = every_micro_batch;

    bool operator==(const PipelineAction&) const = default;
};

/// Whether it is a forward or one of the backwards.
bool is_computation(PipelineActionKind kind);
/// Whether it is a send or a receive.
bool is_transfer(PipelineActionKind kind);
/// Whether it is done for one micro-batch.
bool has_micro_batch(PipelineActionKind kind);

/// PyTorch's form: the stage, the kind and the micro-batch, as in 2F0, 3SEND_F1 or 1UNSHARD.
std::string to_text(const PipelineAction& action);

/// The action that `text` stands for; nothing if it is none. Numbers have at most seven digits.
std::optional<PipelineAction> parse_pipeline_action(std::string_view text);

}  // namespace drover
