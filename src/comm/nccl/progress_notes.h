#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <span>

#include "comm/world.h"

namespace drover {

/// How far a rank has got on a link, in calls.
struct LinkProgress {
    std::int64_t started = 0;  ///< that the host has handed over
    std::int64_t begun = 0;    ///< that the GPU has reached
};

/// Ranks tell each other by notes how far they have got. Their communication threads answer, so a rank that
/// works, hangs or waits for its GPU answers too.
class ProgressNotes {
  public:
    /// `look` says how far this rank has got on the link of that key; it is called on another thread.
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
