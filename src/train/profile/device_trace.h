#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"
#include "train/profile/profile_data.h"

namespace drover {

/// Records when a backend's operations, copies and scopes ran on its device: marks are put into the streams
/// meanwhile and read later, so that nothing waits. Observes the backend, which must outlive it and have no
/// other observer, from start() to stop().
class DeviceTrace final : public OperationObserver {
  public:
    explicit DeviceTrace(Backend& backend) : backend_(backend) {}
    ~DeviceTrace() override { stop(); }
    DeviceTrace(const DeviceTrace&) = delete;
    DeviceTrace& operator=(const DeviceTrace&) = delete;

    void start();
    /// Waits for the main stream, reads the times since the last call, and forgets all marks of the backend.
    /// `now` gives the time on the profile's clock. Outside of all scopes: at the begin of a step.
    template <class Now>
    void synchronize(const Now& now) {
        read();
        backend_.forget_marks();
        backend_.synchronize(backend_.main_stream());
        zero_ = now();
        zero_mark_ = backend_.mark(backend_.main_stream());
    }
    void stop();

    /// Spans so far, including those not read yet.
    std::size_t size() const { return read_ + entries_.size(); }
    /// A lane for each stream, the main stream first. Between stop() and start(). The backend keeps its
    /// marks, since others may have some too.
    std::vector<ProfileLane> take();

    void begin(const OperationCost&, Stream stream) override { mark(stream); }
    void end(const OperationCost& cost, Stream stream) override;
    void begin_copy(std::size_t, Stream stream) override { mark(stream); }
    void end_copy(std::size_t bytes, Stream stream) override;
    void begin_scope(std::string_view name, int number, Stream stream) override;
    void end_scope(Stream stream) override;

  private:
    struct Entry {
        std::string_view name;
        ProfileSpan::Kind kind;
        int number;  // below 0: none
        OperationCost cost;
        std::size_t lane;
        int parent;              // entry of the scope around it; −1: none
        std::size_t begin, end;  // marks
    };

    void mark(Stream stream) { running_since_ = backend_.mark(stream); }
    std::size_t lane_of(Stream stream);
    int scope_around(std::size_t lane) const;
    void read();

    Backend& backend_;
    bool observes_ = false;
    double zero_ = 0;  // of zero_mark_
    std::size_t zero_mark_ = 0, running_since_ = 0;
    std::vector<void*> streams_;     // by lane
    std::vector<Entry> entries_;     // since the last read(), in the order of their begin, scopes at theirs
    std::vector<std::size_t> open_;  // scopes
    std::vector<ProfileLane> lanes_;
    std::size_t read_ = 0;
};

}  // namespace drover
