#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/stream.h"
#include "comm/collective_call.h"
#include "core/tensor.h"

namespace drover {

class Communicator;

/// A collective that was started. Until it has been waited for, its operands belong to it: they must stay
/// alive and must not be written, and what it writes must not be read. The destructor waits if that was not
/// done. If it is destroyed during the unwinding of an exception, it instead aborts this rank's communication
/// for good and notifies the other ranks.
class [[nodiscard]] Pending {
  public:
    /// Nothing to wait for.
    Pending() = default;
    Pending(Pending&& other) noexcept;
    Pending& operator=(Pending&& other) noexcept;
    ~Pending();

    /// Whether there is something to wait for.
    explicit operator bool() const { return owner_ != nullptr; }
    /// Later work on the stream sees the result; afterwards there is nothing to wait for.
    void wait(Stream stream);

  private:
    friend class Communicator;
    Pending(Communicator* owner, void* operation) : owner_(owner), operation_(operation) {}

    Communicator* owner_ = nullptr;
    void* operation_ = nullptr;
};

/// The ranks along one axis of the mesh, as one of them sees it. All ranks of the axis call the same
/// collectives in the same order, and the ranks of a world start the collectives of all their axes in one
/// order, from one thread per rank. Messages (send, receive) only have to be in order between their two
/// ranks. Tensors are packed and live on the communicator's device.
///
/// `start_x` enqueues the collective after the work that is on the stream and returns at once; `wait` makes
/// later work on the stream see its result; the plain name does both. An idle axis (of one rank, unless it
/// was made to copy) does nothing: gathering, scattering and all-to-all then need the caller to pass the same
/// memory twice.
///
/// On CPUs reductions are made in rank order, bf16 and f16 in fp32 with one rounding at the end, so that
/// results depend neither on timing nor on the transport, and `max` and `min` of a NaN and anything are a
/// NaN. On GPUs NCCL chooses the order, rounds every partial sum, and its `max` and `min` ignore a NaN.
///
/// Any call can throw: Error when this rank waited too long or the ranks disagree, PeerFailure when another
/// rank failed. After that, the world and all its communicators can only be destroyed.
class Communicator {
  public:
    Communicator(std::string axis, int size, int rank, Device device, bool idle = false);
    virtual ~Communicator() = default;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    int size() const { return size_; }
    /// Whether calls do nothing.
    bool idle() const { return idle_; }
    /// Within the axis.
    int rank() const { return rank_; }
    /// "tp", "data", …, for messages.
    const std::string& axis() const { return axis_; }

    /// x becomes the reduction over all ranks, everywhere.
    void all_reduce(Stream stream, const Tensor& x, Reduction reduction);
    /// whole[size·n, …] becomes the ranks' parts[n, …] one after the other. The part may lie at its own place
    /// in the whole.
    void all_gather(Stream stream, const Tensor& part, const Tensor& whole);
    /// part[n, …] becomes this rank's rows of the sum over ranks of whole[size·n, …], and may lie at its
    /// place in there.
    void reduce_scatter(Stream stream, const Tensor& whole, const Tensor& part);
    /// x becomes the root's x, everywhere.
    void broadcast(Stream stream, const Tensor& x, int root);
    /// Rank r gets the next rows_to[r] rows of `from`; the next rows_from[r] rows of `to` come from rank r
    /// (which must give the same number). `to` may have more rows than arrive. Every rank's rows have the
    /// same size.
    void all_to_all(Stream stream, const Tensor& from, std::span<const std::int64_t> rows_to,
                    const Tensor& to, std::span<const std::int64_t> rows_from);
    /// Done when the bytes may be overwritten, which can need the other rank to receive them.
    void send(Stream stream, const Tensor& x, int to);
    void receive(Stream stream, const Tensor& x, int from);
    /// Done when every rank has reached it.
    void barrier(Stream stream);

    Pending start_all_reduce(Stream stream, const Tensor& x, Reduction reduction);
    Pending start_all_gather(Stream stream, const Tensor& part, const Tensor& whole);
    Pending start_reduce_scatter(Stream stream, const Tensor& whole, const Tensor& part);
    Pending start_broadcast(Stream stream, const Tensor& x, int root);
    Pending start_all_to_all(Stream stream, const Tensor& from, std::span<const std::int64_t> rows_to,
                             const Tensor& to, std::span<const std::int64_t> rows_from);
    Pending start_send(Stream stream, const Tensor& x, int to);
    Pending start_receive(Stream stream, const Tensor& x, int from);
    Pending start_barrier(Stream stream);

    /// Later work on the stream sees the result. In any order; a Pending of nothing is allowed.
    void wait(Stream stream, Pending pending);

    /// Starts several collectives of this axis together, which on a GPU is cheaper than one by one. None may
    /// need another's result, or be waited for within `body`; work that `body` enqueues on the stream is done
    /// before any of them.
    template <class Body>
    void together(Stream stream, const Body& body) {
        begin_group();
        try {
            body();
        } catch (...) {
            cancel_group();
            throw;
        }
        end_group(stream);
    }
    /// Collectives started here from now on run after `earlier`, which may belong to another axis. They may
    /// use its result without a wait.
    void follow(const Pending& earlier);

    /// Throws what a call would throw after a failure. When communication is aborted, a GPU's stream
    /// continues with wrong data, so call this after every wait for the device, before the result is used.
    void check_unbroken() { do_check(); }

    /// Compares a call with the other ranks' (see WorldOptions::comm_debug) without performing it: for
    /// another transport whose communicator has the same axis and ranks.
    Pending start_comparison(CollectiveCall call);

  protected:
    /// Never called when idle; the call's spans are valid only during it. Returns the handle that the other
    /// two take.
    virtual void* do_start(Stream stream, const CollectiveCall& call) = 0;
    virtual void do_wait(Stream stream, void* operation) = 0;
    virtual void do_drop(void* operation) noexcept = 0;
    /// One thread performs the CPU's collectives in the order of their start, whatever their axis.
    virtual void do_follow(void*) {}
    virtual void do_check() {}
    virtual void begin_group() {}
    virtual void end_group(Stream) {}
    virtual void cancel_group() noexcept {}

  private:
    friend class Pending;
    Pending start(Stream stream, const CollectiveCall& call);
    void check_operand(const Tensor& x, std::string_view operation) const;
    void check_part(const Tensor& part, const Tensor& whole, std::string_view operation) const;

    std::string axis_;
    int size_;
    int rank_;
    Device device_;
    bool idle_;
    std::vector<std::int64_t> counts_;  // of the all_to_all being started; kept for its capacity
};

/// What an axis with one rank does when a collective is called.
enum class SingleRankAxis : std::uint8_t {
    idles,
    copies,  ///< the same work as with other ranks, from memory to memory: to measure the cost of sharding
             ///< itself
};

/// An idle axis with one rank.
std::unique_ptr<Communicator> make_self_communicator(std::string axis = "self");

}  // namespace drover
