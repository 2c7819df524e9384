#pragma once

#include <vector>

#include "backend/backend.h"
#include "parallel/schedule/simulate.h"

namespace drover {

/// When a rank computed what, by the clock of its device.
class ActionLog {
  public:
    /// `backend` must outlive the log.
    explicit ActionLog(Backend& backend) : backend_(backend) {}

    /// Forgets what was logged. Times count from here.
    void clear(Stream stream) {
        entries_.clear();
        zero_ = backend_.mark(stream);
    }
    void begin(Stream stream) { running_since_ = backend_.mark(stream); }
    void end(Stream stream, const PipelineAction& action) {
        entries_.push_back({action, running_since_, backend_.mark(stream)});
    }

    /// In seconds. All work that was logged has been waited for.
    std::vector<TimedAction> actions() const {
        std::vector<TimedAction> timed;
        for (const Entry& entry : entries_)
            timed.push_back({.action = entry.action,
                             .start = backend_.seconds_between(zero_, entry.begin),
                             .end = backend_.seconds_between(zero_, entry.end)});
        return timed;
    }

  private:
    struct Entry {
        PipelineAction action;
        std::size_t begin, end;  // marks
    };

    Backend& backend_;
    std::size_t zero_ = 0, running_since_ = 0;
    std::vector<Entry> entries_;
};

}  // namespace drover
