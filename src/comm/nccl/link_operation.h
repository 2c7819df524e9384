#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/exchange.h"
#include "comm/nccl/gpu_links.h"
#include "comm/nccl/progress_notes.h"

namespace drover {

struct LinkOperation;

/// A link among some ranks, and the operations in progress on it.
struct WatchedLink {
    std::vector<int> ranks;  ///< in global numbers
    int rank = 0;            ///< index of this rank in `ranks`
    std::int64_t key = 0;    ///< which link it is, equal on all of its ranks

    std::mutex using_gpu;  ///< held during every call of `gpu`, guards the next two
    std::unique_ptr<GpuLink> gpu;
    bool aborted = false;

    // Guarded by the watch's mutex.
    std::deque<LinkOperation*> under_way;  ///< in the order of the link's stream
    LinkProgress progress;
};

/// Calls that are handed to a link together, from their start until they are done and waited for.
struct LinkOperation {
    using Clock = std::chrono::steady_clock;

    const Group* group = nullptr;
    std::int64_t number = 0;  ///< the first call's, as in Operation
    std::vector<CollectiveCall> calls;
    std::optional<int> peer_on_link;               ///< a message's other end, where it is not `call.peer`
    std::deque<std::vector<std::int64_t>> counts;  ///< what the calls' spans point into

    GpuEvent ready = nullptr;  ///< on the caller's stream: the work that comes before it
    GpuEvent began = nullptr;  ///< on the link's stream: its start
    GpuEvent done = nullptr;

    // Guarded by the watch's mutex.
    enum class State : std::uint8_t { waiting, enqueued, passed, cancelled };
    State state = State::waiting;
    bool has_held_stream = false;  ///< a wait for it was timed; belongs to the thread that waits
    int holders = 0;               ///< Pendings that were neither waited for nor dropped
    bool has_begun = false;
    Clock::time_point began_at;
    std::int64_t last_call = 0;  ///< LinkProgress::started once these calls are counted

    void add(const CollectiveCall& call) {
        auto& both = counts.emplace_back(call.counts_to.begin(), call.counts_to.end());
        both.insert(both.end(), call.counts_from.begin(), call.counts_from.end());
        CollectiveCall& kept = calls.emplace_back(call);
        kept.counts_to = std::span(both).first(call.counts_to.size());
        kept.counts_from = std::span(both).last(call.counts_from.size());
    }
    /// "all_gather number 17 on axis data (24 float32) and 3 more"
    std::string text() const;
};

}  // namespace drover
