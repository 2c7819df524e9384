#include <dlfcn.h>
#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/mpi/module/slurm_start.h"
#include "comm/mpi/module_interface.h"
#include "comm/transport.h"
#include "core/error.h"

namespace drover {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

void check(int result, std::string_view what) {
    if (result == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(result, text.data(), &length);
    throw Error(fmt::format("MPI failed in {}: {}.", what,
                            std::string_view(text.data(), static_cast<std::size_t>(length))),
                "Check the MPI installation and the network between the machines.");
}

/// Open MPI's plugins use its functions, but not all of them are linked with its library. They find the
/// functions if the program is linked with MPI, but not if a privately opened module is. Returns the
/// library's file.
const char* show_mpi_to_its_plugins() {
    Dl_info place{};
    if (dladdr(reinterpret_cast<void*>(&PMPI_Init_thread), &place) == 0 ||
        dlopen(place.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) == nullptr)
        throw Error("The MPI library cannot be made visible to its plugins.", "Check the MPI installation.");
    return place.dli_fname;
}

/// MPI cannot wake a sleeping thread, so waiting is polling: without pauses while an answer is likely within
/// microseconds, then less and less often, because ranks may share a core with the ranks they wait for.
Clock::duration pause_after(Clock::duration silence, bool expecting) {
    if (!expecting) return 10ms;
    if (silence < 30us) return 0us;
    if (silence < 5ms) return 20us;
    if (silence < 100ms) return 100us;
    return 1ms;
}

class MpiTransport final : public Transport {
  public:
    explicit MpiTransport(std::chrono::milliseconds deadline) : deadline_(deadline) {
        int was_initialized = 0, provided = 0;
        MPI_Initialized(&was_initialized);
        if (was_initialized != 0)
            throw Error("MPI was started twice in one process.", "Make one world per process.");
        // Open MPI without shared reads of memory (containers forbid them) keeps three fragments of 32 KiB in
        // flight, which is too little between two polls. A value set by the user is kept.
        setenv("OMPI_MCA_pml_ob1_send_pipeline_depth", "32", 0);
        refuse_srun_without_pmix(show_mpi_to_its_plugins());
        check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
        if (provided < MPI_THREAD_FUNNELED)
            throw Error("This MPI does not work in programs with threads.",
                        "Use one built with thread support.");
        for (MPI_Comm* comm : {&data_, &control_}) {
            check(MPI_Comm_dup(MPI_COMM_WORLD, comm), "MPI_Comm_dup");
            check(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        }
        check(MPI_Comm_rank(data_, &rank_), "MPI_Comm_rank");
        check(MPI_Comm_size(data_, &size_), "MPI_Comm_size");
        // Sleeps of microseconds would otherwise be rounded up to more than fifty.
        prctl(PR_SET_TIMERSLACK, 1000UL);
    }

    int rank() const override { return rank_; }
    int size() const override { return size_; }

    Request send(int to, Channel channel, const void* data, std::size_t bytes) override {
        MPI_Request handle = MPI_REQUEST_NULL;
        check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, channel, data_, &handle), "MPI_Isend");
        return new_request(handle, bytes, true);
    }

    Request receive(int from, Channel channel, void* data, std::size_t capacity) override {
        MPI_Request handle = MPI_REQUEST_NULL;
        check(MPI_Irecv(data, static_cast<int>(capacity), MPI_BYTE, from, channel, data_, &handle),
              "MPI_Irecv");
        return new_request(handle, capacity, false);
    }

    std::optional<std::size_t> finished(Request request) override {
        const Slot& slot = slots_[static_cast<std::size_t>(request)];
        if (!slot.finished) return std::nullopt;
        free_.push_back(request);
        return slot.bytes;
    }

    void poll(std::chrono::microseconds at_most) override {
        const bool moved = test_requests();
        forget_sent_notes();
        receive_control_messages();
        const auto now = Clock::now();
        if (moved || failed_) {
            last_event_ = now;
            return;
        }
        const auto pause =
            std::min<Clock::duration>(at_most, pause_after(now - last_event_, !handles_.empty()));
        if (pause == Clock::duration::zero()) {
            sched_yield();
            return;
        }
        std::unique_lock lock(mutex_);
        if (stirred_.wait_for(lock, pause, [&] { return woken_; })) {
            woken_ = false;
            last_event_ = Clock::now();
        }
    }

    void wake() override {
        {
            const std::lock_guard lock(mutex_);
            woken_ = true;
        }
        stirred_.notify_one();
    }

    void send_note(int to, const Note& note) override {
        SentNote& sent = sent_notes_.emplace_back(SentNote{note, MPI_REQUEST_NULL});
        check(MPI_Isend(sent.note.data(), sizeof(Note), MPI_BYTE, to, note_tag, control_, &sent.handle),
              "MPI_Isend");
    }
    std::vector<ReceivedNote> take_notes() override { return std::exchange(notes_, {}); }

    const std::optional<FailedRank>& failed_rank() const override { return failed_; }

    void tell_failure(std::string_view reason) noexcept override {
        // Short enough for every transport to send it without the receiver's help.
        const std::string text(reason.substr(0, 1000));
        std::vector<MPI_Request> handles;
        for (int to = 0; to < size_; ++to) {
            if (to == rank_) continue;
            handles.emplace_back(MPI_REQUEST_NULL);
            MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_BYTE, to, failure_tag, control_,
                      &handles.back());
        }
        const auto end = Clock::now() + 1s;
        for (int done = 0; done == 0 && Clock::now() < end; std::this_thread::sleep_for(100us))
            if (MPI_Testall(static_cast<int>(handles.size()), handles.data(), &done, MPI_STATUSES_IGNORE) !=
                MPI_SUCCESS)
                return;
    }

    // Only calls to MPI move bytes, and there are none from here on.
    void break_off() noexcept override {}

    /// MPI's own shutdown would wait for a failed rank for ever, so the ranks synchronise first.
    void close() override {
        MPI_Request handle = MPI_REQUEST_NULL;
        check(MPI_Ibarrier(control_, &handle), "MPI_Ibarrier");
        // Ranks that time out in a collective know more about it, so they report first.
        const auto patience = 2 * deadline_;
        const auto end = Clock::now() + patience;
        for (int done = 0;;) {
            check(MPI_Test(&handle, &done, MPI_STATUS_IGNORE), "MPI_Test");
            if (done != 0) break;
            receive_control_messages();
            if (failed_) return;
            if (Clock::now() >= end)
                throw Error(
                    fmt::format("Rank {} has finished its work and waited {:.1f} s for the others to do so.",
                                rank_, std::chrono::duration<double>(patience).count()),
                    "Look for the reason in their output; if they are only slow, allow a longer wait.");
            std::this_thread::sleep_for(200us);
        }
        for (MPI_Comm* comm : {&data_, &control_}) check(MPI_Comm_free(comm), "MPI_Comm_free");
        check(MPI_Finalize(), "MPI_Finalize");
    }

  private:
    struct Slot {
        bool sends = false;
        bool finished = false;
        std::size_t bytes = 0;  // sent, or the capacity until a receive has finished
    };

    Request new_request(MPI_Request handle, std::size_t bytes, bool sends) {
        if (free_.empty()) {
            slots_.emplace_back();
            free_.push_back(static_cast<Request>(slots_.size() - 1));
        }
        const Request request = free_.back();
        free_.pop_back();
        slots_[static_cast<std::size_t>(request)] = {.sends = sends, .bytes = bytes};
        handles_.push_back(handle);
        requests_.push_back(request);
        last_event_ = Clock::now();
        return request;
    }

    /// Marks the requests that MPI has finished; returns whether there were any.
    bool test_requests() {
        const int active = static_cast<int>(handles_.size());
        if (active == 0) return false;
        indices_.resize(handles_.size());
        statuses_.resize(handles_.size());
        int completed = 0;
        const int result =
            MPI_Testsome(active, handles_.data(), &completed, indices_.data(), statuses_.data());
        if (result != MPI_ERR_IN_STATUS) check(result, "MPI_Testsome");
        if (completed == MPI_UNDEFINED || completed == 0) return false;
        for (int i = 0; i < completed; ++i) {
            const MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
            const auto index = static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
            Slot& slot = slots_[static_cast<std::size_t>(requests_[index])];
            if (result == MPI_ERR_IN_STATUS && is_too_long(status.MPI_ERROR)) {
                slot.bytes += 1;
            } else {
                if (result == MPI_ERR_IN_STATUS) check(status.MPI_ERROR, slot.sends ? "a send" : "a receive");
                if (!slot.sends) slot.bytes = bytes_of(status);
            }
            slot.finished = true;
            requests_[index] = -1;
        }
        std::size_t kept = 0;
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            if (requests_[i] < 0) continue;
            requests_[kept] = requests_[i];
            handles_[kept] = handles_[i];
            ++kept;
        }
        requests_.resize(kept);
        handles_.resize(kept);
        return true;
    }

    static bool is_too_long(int error) {
        int error_class = MPI_SUCCESS;
        return error != MPI_SUCCESS && MPI_Error_class(error, &error_class) == MPI_SUCCESS &&
               error_class == MPI_ERR_TRUNCATE;
    }

    static std::size_t bytes_of(const MPI_Status& status) {
        int count = 0;
        check(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
        return static_cast<std::size_t>(count);
    }

    /// Failures and notes of other ranks.
    void receive_control_messages() {
        if (failed_ || size_ == 1) return;
        int there = 0;
        MPI_Status status;
        check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, control_, &there, &status), "MPI_Iprobe");
        if (there == 0) return;
        std::string words(bytes_of(status), '\0');
        check(MPI_Recv(words.data(), static_cast<int>(words.size()), MPI_BYTE, status.MPI_SOURCE,
                       status.MPI_TAG, control_, MPI_STATUS_IGNORE),
              "MPI_Recv");
        if (status.MPI_TAG == note_tag) {
            ReceivedNote& received = notes_.emplace_back(ReceivedNote{.from = status.MPI_SOURCE});
            std::memcpy(received.note.data(), words.data(), std::min(words.size(), sizeof(Note)));
            return;
        }
        // The first process to end makes the launcher end the others: that rank must have reported the reason
        // by then.
        std::this_thread::sleep_for(500ms);
        failed_ = {status.MPI_SOURCE, std::move(words)};
    }

    void forget_sent_notes() {
        while (!sent_notes_.empty()) {
            int done = 0;
            check(MPI_Test(&sent_notes_.front().handle, &done, MPI_STATUS_IGNORE), "MPI_Test");
            if (done == 0) return;
            sent_notes_.pop_front();
        }
    }

    static constexpr int failure_tag = 0, note_tag = 1;
    struct SentNote {
        Note note;
        MPI_Request handle;
    };

    const std::chrono::milliseconds deadline_;
    MPI_Comm data_ = MPI_COMM_NULL;
    MPI_Comm control_ = MPI_COMM_NULL;  // failure messages and notes
    int rank_ = 0;
    int size_ = 1;
    std::vector<Slot> slots_;  // requests are indices into this
    std::vector<Request> free_;
    std::vector<MPI_Request> handles_;  // of unfinished requests
    std::vector<Request> requests_;     // beside handles_
    std::vector<int> indices_;
    std::vector<MPI_Status> statuses_;
    std::optional<FailedRank> failed_;
    std::deque<SentNote> sent_notes_;  // whose bytes MPI may still need
    std::vector<ReceivedNote> notes_;
    Clock::time_point last_event_ = Clock::now();

    std::mutex mutex_;
    std::condition_variable stirred_;
    bool woken_ = false;
};

}  // namespace
}  // namespace drover

int drover_mpi_module_version() {
    return drover::mpi_module_version;
}

drover::Transport* drover_make_mpi_transport(std::chrono::milliseconds deadline) {
    return new drover::MpiTransport(deadline);
}
