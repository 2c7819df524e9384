#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/stream.h"
#include "comm/collective_call.h"
#include "core/tensor.h"

namespace drover {

/// A point in a stream of the GPU.
using GpuEvent = void*;

/// The id by which the ranks of a link find each other; one of them creates it.
using LinkId = std::array<std::byte, 128>;

/// A connection among some ranks that performs collectives on their GPUs, with a stream of its own: NCCL's
/// communicator. Used by one thread at a time. No call waits for other ranks. Error when NCCL or the GPU
/// fails.
class GpuLink {
  public:
    /// Only after finish() has settled, or abort().
    virtual ~GpuLink() = default;

    /// Whether the last request (join, enqueue, finish) has been handed to the GPU, or is done. Until then
    /// nothing but abort() may be called. Error when it, or something on the GPU, has failed.
    virtual bool settled() = 0;

    /// The link's stream continues when the event has been passed.
    virtual void follow(GpuEvent event) = 0;
    /// Puts the event into the link's stream.
    virtual void record(GpuEvent event) = 0;
    /// Enqueues the calls as one group, unordered among each other.
    virtual void enqueue(std::span<const CollectiveCall> calls) = 0;

    /// The orderly shutdown, when everything enqueued is done on every rank.
    virtual void finish() = 0;
    /// Ends what is enqueued without a result, and the link. May wait for other links of this rank to be
    /// aborted.
    virtual void abort() noexcept = 0;
};

/// The GPU of this rank, for communication. May be called from any thread that has called
/// use_on_this_thread().
class GpuLinks {
  public:
    virtual ~GpuLinks() = default;

    virtual Device device() const = 0;
    /// Equal for two ranks that use the same GPU.
    virtual std::array<std::byte, 16> gpu_identity() const = 0;
    virtual void use_on_this_thread() = 0;

    virtual LinkId make_id() = 0;
    /// Begins to connect as `rank` of `size`; all of them must do so.
    virtual std::unique_ptr<GpuLink> join(const LinkId& id, int size, int rank) = 0;

    virtual GpuEvent make_event() = 0;
    /// An event with a timestamp.
    virtual GpuEvent make_timed_event() = 0;
    virtual void free_event(GpuEvent event) noexcept = 0;
    /// Puts the event into a stream.
    virtual void record(Stream stream, GpuEvent event) = 0;
    /// The stream continues when the event has been passed.
    virtual void wait(Stream stream, GpuEvent event) = 0;
    /// Whether the GPU has passed the event since it was last recorded.
    virtual bool passed(GpuEvent event) = 0;
    /// Between the moments at which the GPU passed two timed events.
    virtual double seconds_between(GpuEvent first, GpuEvent second) = 0;
};

}  // namespace drover
