#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "backend/cuda/cudnn_attention_problem.h"

namespace cudnn_frontend::graph {
class Graph;
}

namespace drover::cuda::cudnn {

/// Names of a graph's tensors other than its operands. An operand is named 1 + operand, its offsets `offsets
/// + operand`.
enum Other : std::int64_t { statistics = 1 + operands, query_lengths, key_lengths, offsets };

/// A graph's tensors by name.
using Bindings = std::unordered_map<std::int64_t, void*>;

/// Where the operand elements that a graph works on are: `summed` pieces have dk and dv packed in memory of
/// their own.
struct Places {
    std::int64_t token_stride, head_stride;

    Places(const Problem& problem, const Pieces& pieces, int operand)
        : token_stride(problem.tensor[operand].stride(0)), head_stride(problem.tensor[operand].stride(1)) {
        if (pieces.summed && (operand == dk || operand == dv))
            token_stride = head_stride = problem.head_size();
    }
};

/// The graph of one piece, built for the kernel that is the library's first choice. Its source alone includes
/// cuDNN's frontend, which takes half a minute to compile.
class AttentionGraph {
  public:
    AttentionGraph(cudnnHandle_t handle, const Problem& problem, const Pieces& pieces, const Chunk& chunk);

    /// Why cuDNN cannot execute it; absent if it can.
    const std::optional<std::string>& refusal() const { return refusal_; }
    /// Bytes of working memory that execute() needs.
    std::int64_t workspace() const { return workspace_; }
    /// Enqueues it on the handle's stream. Returns what went wrong; absent if nothing did.
    std::optional<std::string> execute(cudnnHandle_t handle, Bindings& bindings, void* workspace) const;

  private:
    std::shared_ptr<cudnn_frontend::graph::Graph> graph_;
    std::int64_t workspace_ = 0;
    std::optional<std::string> refusal_;
};

}  // namespace drover::cuda::cudnn
