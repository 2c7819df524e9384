#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/call_check.h"
#include "comm/collective_call.h"
#include "comm/collective_observer.h"
#include "comm/exchange.h"
#include "comm/transport.h"
#include "core/error.h"

namespace drover {

struct WorldOptions {
    /// How long a collective may wait for the other ranks, counted from its turn in the queue.
    std::chrono::milliseconds deadline = std::chrono::minutes(30);
    /// Before each collective and message the ranks compare what they call. Costs a small message per pair of
    /// ranks.
    bool comm_debug = false;
    /// Collectives on GPUs are timed, which costs a few events each; those on CPUs always are.
    bool gpu_times = false;
    /// Memory in which a rank receives the contributions to a reduction; enlarged if the number of ranks
    /// requires it.
    std::size_t scratch_bytes = std::size_t{16} << 20;
};

/// Another rank failed, so this one must stop. That rank's own message is the one to show; this one is short.
class PeerFailure : public Error {
  public:
    PeerFailure(int rank, std::string_view cause) : Error(cause), rank_(rank) {}
    int rank() const { return rank_; }

  private:
    int rank_;
};

/// Times of a rank's communication since its start.
struct CommunicationTimes {
    std::int64_t collectives = 0;
    /// During which collectives were in progress, from their turn to their end: moving, adding, and waiting
    /// for ranks that arrive later.
    double busy_seconds = 0;
    /// During which callers waited for collectives and messages; the rest of `busy_seconds` overlapped with
    /// their work.
    double waited_seconds = 0;

    CommunicationTimes& operator+=(const CommunicationTimes& more) {
        collectives += more.collectives;
        busy_seconds += more.busy_seconds;
        waited_seconds += more.waited_seconds;
        return *this;
    }
    CommunicationTimes& operator-=(const CommunicationTimes& less) {
        collectives -= less.collectives;
        busy_seconds -= less.busy_seconds;
        waited_seconds -= less.waited_seconds;
        return *this;
    }
};

/// "all_gather number 17 on axis data (24 float32)"
std::string operation_text(const Group& group, const CollectiveCall& call, std::int64_t number);

/// A collective or a message, from its start until it has been waited for.
struct Operation {
    using Clock = std::chrono::steady_clock;
    enum class State : std::uint8_t { under_way, done, broken };

    const Group* group = nullptr;
    CollectiveCall call;
    std::vector<std::int64_t> counts;  ///< what the call's spans point into
    std::int64_t number = 0;  ///< from 1: of the axis's collectives, or of the messages to, or from, a rank
    State state =
        State::under_way;  ///< guarded by the thread's mutex; the rest belongs to the thread meanwhile
    Clock::time_point began;

    // Of messages only.
    std::optional<Transport::Request> request;
    CallHeader header;
    bool header_exchanged = false;
    std::size_t bytes_in_flight = 0;
    std::size_t bytes_moved = 0;

    std::string text() const { return operation_text(*group, call, number); }
};

/// A rank's only communication thread: creates the transport and is the only one to use it. Performs
/// collectives of all axes one after the other in the order of their start. Messages between two ranks
/// progress alongside them, because a pipeline's sends may only be taken after collectives that come later in
/// the queue; they keep their order per peer.
class CommunicationThread {
  public:
    using MakeTransport = std::function<std::unique_ptr<Transport>()>;

    /// Returns when the transport is ready, or rethrows the error from creating it.
    CommunicationThread(MakeTransport make_transport, const WorldOptions& options);
    /// Closes, if that was not done, and ignores errors.
    ~CommunicationThread();
    CommunicationThread(const CommunicationThread&) = delete;
    CommunicationThread& operator=(const CommunicationThread&) = delete;

    int rank() const { return rank_; }
    int size() const { return size_; }
    const WorldOptions& options() const { return options_; }

    /// The group must live until the operation has been waited for or dropped.
    Operation* start(const Group& group, const CollectiveCall& call, std::int64_t number);
    /// Returns when the operation is done, or throws why it never will be. Ends the operation either way.
    void wait(Operation* operation);
    /// Ends an operation and ignores its outcome. During the unwinding of an exception it does not wait for
    /// other ranks, but aborts all communication of this rank and tells them.
    void drop(Operation* operation) noexcept;
    /// Shuts down in order; every operation must have been waited for or dropped. Waits for the other ranks
    /// where the transport needs that, and throws when they fail or are missing. Nothing can be started
    /// afterwards.
    void close();
    /// Aborts all communication and tells the other ranks why, unless it is already broken or closed.
    void fail(std::string_view reason) noexcept;
    /// Throws when communication is broken, with the reason.
    void check();
    CommunicationTimes times();
    /// From now on `observer` is told of everything that is done. Returns when the old one no longer is;
    /// null: no observer.
    void observe(CollectiveObserver* observer);

    /// Called on this thread with every note that arrives. Returns when the old function is no longer
    /// running; an empty function removes it.
    using NoteHandler = std::function<void(int from, const Note& note)>;
    void on_note(NoteHandler hear);
    /// Does nothing when communication is broken or closed. May be called from any thread, also from a
    /// NoteHandler.
    void send_note(int to, const Note& note);

  private:
    struct Broken {
        std::string cause;
        std::string remedy;
        int failed_peer = -1;  // the rank that failed, if it was another one
    };
    /// Thrown inside the thread when fail() asked for it.
    struct FailureRequest {
        std::string reason;
    };

    // On the thread.
    void run(const MakeTransport& make_transport);
    void serve();
    Operation* next_collective();
    void perform(Operation& operation);
    void attend();
    void check_peers() const;
    void move_notes();
    void advance_messages();
    bool waits_for_earlier(const Operation& message) const;
    bool advance(Operation& message);
    void check_deadline(const Operation& operation);
    std::string missing(const Operation& operation) const;
    void finish(Operation& operation);
    void tell_observer(const Operation& operation);
    void break_down(Broken broken, std::string_view reason_to_tell);

    // With the mutex held.
    [[noreturn]] void throw_broken() const;
    void recycle(Operation* operation) { free_.push_back(operation); }

    const WorldOptions options_;
    int rank_ = 0;
    int size_ = 0;
    std::unique_ptr<Transport> transport_;

    std::unique_ptr<Exchange> exchange_;
    CallCheck call_check_;
    Operation* current_ = nullptr;      // the collective that is being performed
    std::vector<Operation*> messages_;  // under way, in order of their start

    std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    std::deque<std::unique_ptr<Operation>> operations_;  // all that were ever needed at once
    std::vector<Operation*> free_;
    std::deque<Operation*> queue_;  // collectives that have not started
    std::vector<Operation*> new_messages_;
    std::vector<std::pair<int, Note>> new_notes_;
    CommunicationTimes times_;
    std::optional<FailureRequest> failure_request_;
    std::optional<Broken> broken_;
    std::exception_ptr start_error_;
    bool started_ = false;
    bool closing_ = false;
    bool closed_ = false;

    std::mutex observer_mutex_;  // held while the observer is told
    std::atomic<CollectiveObserver*> observer_ = nullptr;

    std::mutex note_mutex_;  // held while a note is heard; guards what follows
    NoteHandler hear_note_;

    std::thread thread_;
};

}  // namespace drover
