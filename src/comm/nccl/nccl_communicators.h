#pragma once

#include <map>

#include "comm/nccl/link_watch.h"

namespace drover {

class Backend;

/// Makes the communicators of a mesh whose tensors are on GPUs, one per rank. The world transports everything
/// but tensors (the ids of links, failures, the comparisons of comm_debug); its options apply here too. World
/// and backend must outlive this, and this its communicators.
///
/// Communicators with the same ranks in the same order share a link, which lives as long as this. When an
/// operation waits for too long, the error names its axis and the missing ranks. When a rank fails, pending
/// operations on the others' GPUs are aborted, and the next call there throws.
class NcclCommunicators {
  public:
    /// Collective over the world's ranks.
    NcclCommunicators(World& world, std::unique_ptr<GpuLinks> gpu);
    ~NcclCommunicators();
    NcclCommunicators(const NcclCommunicators&) = delete;
    NcclCommunicators& operator=(const NcclCommunicators&) = delete;

    /// As World::make_communicator; collective over the given ranks.
    std::unique_ptr<Communicator> make(std::string axis, std::vector<int> ranks,
                                       SingleRankAxis single_rank = SingleRankAxis::idles);
    /// For a mesh.
    MakeCommunicator maker();

    /// How many ranks use this rank's GPU, including itself.
    int ranks_of_gpu() const { return ranks_of_gpu_; }

    /// Times of the collectives on the GPU, if the world's options request them. Waits for those in progress.
    CommunicationTimes times() { return watch_.times(); }

    /// From now on `observer` is told of everything that is done on the GPU, which the world's options must
    /// request to be timed; null: no observer. An observer waits for the stream.
    void observe(CollectiveObserver* observer, Stream stream, UnderWay under_way = UnderWay::told) {
        watch_.observe(observer, stream, under_way);
    }

  private:
    WatchedLink& link_of(const Group& group, Communicator& connection);
    void tell_apart_ranks_of_one_gpu();

    World& world_;
    std::unique_ptr<GpuLinks> gpu_;
    LinkWatch watch_;
    std::map<std::vector<int>, std::unique_ptr<WatchedLink>> links_;  // by their ranks
    int exceptions_before_;
    int ranks_of_gpu_ = 1;
};

/// NCCL for the GPU of a CUDA backend; Error when this build or this machine has none. It lives in the module
/// drover_nccl.so, so that one GPU can be used without it.
std::unique_ptr<GpuLinks> load_nccl(Backend& backend);

}  // namespace drover
