#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <memory>

#include "backend/cuda/scratch.h"
#include "backend/recorder.h"

namespace drover::cuda {

/// Records sequences as CUDA graphs. The first time, a sequence runs directly and allocates the memory it
/// needs. The second time it is recorded; from then on it is replayed. A sequence that cannot be recorded, or
/// that comes after many others, always runs directly.
class GraphRecorder final : public Recorder {
  public:
    /// Operations keep addresses in this scratch memory; when it has moved, they are recorded again.
    explicit GraphRecorder(const Scratch& scratch) : scratch_(scratch) {}
    ~GraphRecorder() override;

    void run(Stream stream, const RecordingKey& key, const std::function<void()>& enqueue) override;
    std::int64_t replays() const override { return replays_; }

  private:
    struct Destroy {
        void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
    };
    using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy>;
    struct Sequence {
        Graph graph;
        std::int64_t moves = 0;  ///< moves of the scratch memory up to the recording
        bool refused = false;
    };

    void refuse(cudaError_t status);
    Graph record(cudaStream_t stream, const std::function<void()>& enqueue);

    const Scratch& scratch_;
    std::map<RecordingKey, Sequence> sequences_;
    std::int64_t replays_ = 0;
    bool refusal_said_ = false;
};

}  // namespace drover::cuda
