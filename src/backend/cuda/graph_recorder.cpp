#include "backend/cuda/graph_recorder.h"

#include <fmt/format.h>

#include "backend/cuda/cuda_error.h"
#include "core/console.h"

namespace drover::cuda {
namespace {

/// A training step has four (two sets of batch buffers, first and later micro-batches), and four more for a
/// short last batch. The limit keeps batches of ever new lengths from filling the memory with graphs.
constexpr std::size_t most_sequences = 32;

}  // namespace

void GraphRecorder::run(Stream stream, const RecordingKey& key, const std::function<void()>& enqueue) {
    const auto found = sequences_.find(key);
    if (found == sequences_.end()) {
        if (sequences_.size() < most_sequences) sequences_.emplace(key, Sequence{});
        return enqueue();
    }
    Sequence& sequence = found->second;
    const auto on = static_cast<cudaStream_t>(stream.handle);
    if (!sequence.refused && (!sequence.graph || sequence.moves != scratch_.moves())) {
        // An old graph has run to its end: scratch memory waits for the device before it moves.
        sequence.graph = record(on, enqueue);
        sequence.moves = scratch_.moves();
        sequence.refused = !sequence.graph;
    }
    if (sequence.refused) return enqueue();
    check(cudaGraphLaunch(sequence.graph.get(), on), "a recorded sequence of operations");
    ++replays_;
}

/// Null if the sequence cannot be recorded, which is logged once. Runs nothing.
GraphRecorder::Graph GraphRecorder::record(cudaStream_t stream, const std::function<void()>& enqueue) {
    // Other threads may copy and allocate meanwhile. Waiting for the whole device would fail in them, and end
    // the recording.
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "the recording of operations");
    bool enqueued = true;
    try {
        enqueue();
    } catch (...) {  // whatever it was, it recurs when the sequence runs unrecorded
        enqueued = false;
    }
    cudaGraph_t recorded = nullptr;
    cudaGraphExec_t made = nullptr;
    cudaError_t status = cudaStreamEndCapture(stream, &recorded);
    if (status == cudaSuccess && enqueued) status = cudaGraphInstantiate(&made, recorded, 0);
    Graph graph(status == cudaSuccess ? made : nullptr);
    // Upload now: the first launch would otherwise allocate the graph's memory, and fail if there is none.
    if (graph) status = cudaGraphUpload(graph.get(), stream);
    if (status != cudaSuccess) graph.reset();
    if (recorded != nullptr) cudaGraphDestroy(recorded);
    if (!graph) refuse(status);
    return graph;
}

void GraphRecorder::refuse(cudaError_t status) {
    cudaGetLastError();  // or the next launch would be blamed
    if (refusal_said_) return;
    refusal_said_ = true;
    print_log(stderr, "Operations are not recorded, which makes small steps slower{}\n",
              status == cudaSuccess ? std::string(".") : fmt::format(": {}.", cudaGetErrorString(status)));
}

GraphRecorder::~GraphRecorder() {
    if (!sequences_.empty()) cudaDeviceSynchronize();  // one of them may be running
}

}  // namespace drover::cuda
