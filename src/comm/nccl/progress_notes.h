#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <span>

#include "comm/world.h"

namespace drover {

/// A rank's progress on a link, in calls.
struct LinkProgress {
    std::int64_t started = 0;  ///< that the host has handed over
    std::int64_t begun = 0;    ///< that the GPU has reached
};

/// Ranks report their progress to each other by notes. Their communication threads answer, so a rank answers
/// even while it works, hangs or waits for its GPU.
class ProgressNotes {
  public:
    /// `look` returns this rank's progress on the link with that key; it is called on another thread.
    using Look = std::function<LinkProgress(std::int64_t key)>;
    ProgressNotes(World& world, Look look);
    ~ProgressNotes();
    ProgressNotes(const ProgressNotes&) = delete;
    ProgressNotes& operator=(const ProgressNotes&) = delete;

    /// The progress of those ranks that answer in time. One question at a time.
    std::map<int, LinkProgress> ask(std::int64_t key, std::span<const int> ranks,
                                    std::chrono::milliseconds patience);

  private:
    void hear(int from, const Note& note);

    World& world_;
    const Look look_;
    std::mutex mutex_;  // guards what follows
    std::condition_variable answered_;
    std::int64_t asked_key_ = 0;
    std::map<int, LinkProgress> answers_;  // by rank
};

}  // namespace drover
