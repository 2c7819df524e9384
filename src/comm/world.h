#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communication_thread.h"
#include "comm/communicator.h"

namespace drover {

/// How a mesh gets the communicators of its axes: World::make_communicator, or another transport's.
using MakeCommunicator =
    std::function<std::unique_ptr<Communicator>(std::string axis, std::vector<int> ranks)>;

/// One rank among the ranks of a run. make_mpi_world() (comm/mpi) and ThreadWorld (comm/threads) make it.
/// Outlives its communicators. The destructor closes it; when that happens because of an exception, the other
/// ranks are told that this one failed.
class World {
  public:
    World(CommunicationThread::MakeTransport make_transport, const WorldOptions& options);
    ~World();
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    int rank() const { return thread_.rank(); }
    int size() const { return thread_.size(); }
    const WorldOptions& options() const { return thread_.options(); }

    /// The communicator of the given ranks (global numbers, this one among them) along an axis, in this
    /// order. Involves no communication. Every rank must make its communicators in the same order of axes,
    /// including those of one rank. Communicators made at the same position must have the same ranks, or no
    /// rank in common.
    std::unique_ptr<Communicator> make_communicator(std::string axis, std::vector<int> ranks,
                                                    SingleRankAxis single_rank = SingleRankAxis::idles);

    /// The orderly shutdown: no collective follows. Waits until the other ranks have reached it where a
    /// launcher's processes end together (MPI); throws when they fail or are missing.
    void close() { thread_.close(); }

    /// This rank cannot continue. Aborts its communication and tells the other ranks why; their next wait
    /// throws PeerFailure. Does nothing when the world is already broken or closed.
    void fail(std::string_view reason) noexcept { thread_.fail(reason); }

    /// Throws when this rank or another one has failed, as the next wait would. From any thread.
    void check() { thread_.check(); }

    /// Times of everything that went through this world's communicators.
    CommunicationTimes communication_times() { return thread_.times(); }

    /// See CommunicationThread::observe().
    void observe(CollectiveObserver* observer) { thread_.observe(observer); }

    /// A few numbers for another rank, which need no action by it: it receives them on its own thread, even
    /// while it works or hangs. One function receives all notes; an empty one removes it.
    void on_note(CommunicationThread::NoteHandler hear) { thread_.on_note(std::move(hear)); }
    void send_note(int to, const Note& note) { thread_.send_note(to, note); }

  private:
    CommunicationThread thread_;
    Channel next_channel_ = 0;
    int exceptions_before_;
};

/// Runs a rank's work, and closes the world. When the work throws, the other ranks are told why before the
/// exception propagates.
void run_rank(World& world, const std::function<void(World&)>& work);

}  // namespace drover
