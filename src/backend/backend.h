#pragma once

#include <memory>
#include <string>

#include "backend/backend_settings.h"
#include "backend/fence.h"
#include "backend/machine_peaks.h"
#include "backend/operation_observer.h"
#include "backend/ops/list.h"
#include "backend/ops/operands.h"
#include "backend/recorder.h"
#include "backend/stream.h"
#include "core/arena.h"
#include "core/error.h"

namespace drover {

/// Runs the operations of ops/list.h. `backend.run(stream, RmsNorm{…})` checks the operands once and enqueues
/// the work; the operands must stay alive until the stream has passed it. Not thread-safe: one rank owns one
/// backend.
class Backend {
  public:
    virtual ~Backend() = default;

    virtual Device device() const = 0;
    /// For the start-up report: "CPU, AVX-512, 2 threads".
    virtual std::string description() const = 0;

    /// Bytes that allocations may still take: on a CPU what this process may use, on a GPU what is free,
    /// minus what its libraries will allocate.
    virtual std::size_t available_bytes() const = 0;
    /// Zeroed device memory.
    virtual MemoryBlock allocate(std::size_t bytes) = 0;
    /// Host memory that the device reads and writes fastest. A copy from it may still be reading when copy()
    /// returns.
    virtual MemoryBlock allocate_staging(std::size_t bytes) { return allocate_host_memory(bytes); }
    /// Zeroed host memory that operations on the device can use directly: slower, but there may be more of
    /// it.
    virtual MemoryBlock allocate_shared(std::size_t bytes) { return allocate(bytes); }
    virtual Stream main_stream() = 0;
    /// A second stream, for copies to and from staging memory that overlap with work on the main stream.
    virtual Stream copy_stream() = 0;
    virtual std::unique_ptr<Fence> make_fence() = 0;
    /// For sequences that run on this backend. Their operands must live as long as the recorder.
    virtual std::unique_ptr<Recorder> make_recorder() { return std::make_unique<Recorder>(); }
    /// Waits until everything enqueued on the stream is done, or everything on the device for a stream
    /// without a handle.
    virtual void synchronize(Stream stream) = 0;
    /// Puts a mark into the stream; the time between two marks can be read when both have been passed. Marks
    /// are kept until forget_marks().
    virtual std::size_t mark(Stream stream) = 0;
    virtual double seconds_between(std::size_t first, std::size_t second) = 0;
    virtual void forget_marks() = 0;
    /// Copies packed bytes between host and this device, or within it, in stream order. From pageable host
    /// memory the bytes are taken before the call returns; bytes copied to the host are there once the stream
    /// has passed the copy.
    void copy(Stream stream, const Tensor& from, const Tensor& to) {
        if (observer_ == nullptr) return execute_copy(stream, from, to);
        observer_->begin_copy(to.bytes(), stream);
        execute_copy(stream, from, to);
        observer_->end_copy(to.bytes(), stream);
    }

    /// Whether fp32 matrix products may use TF32 (10 bits of mantissa), where the device has it. Off by
    /// default.
    virtual void use_tf32(bool) {}

    /// Device bytes in use now that were not allocated through the backend: by its libraries, and by other
    /// programs.
    virtual std::size_t untracked_bytes() const { return 0; }
    /// The most that its libraries will allocate; available_bytes() already subtracts it.
    virtual std::size_t reserved_bytes() const { return 0; }

    /// Measures the device's peak rates; takes a few tenths of a second.
    virtual MachinePeaks measure_peaks() = 0;

    /// From now on `observer` is notified of every operation; it must outlive its use here. nullptr: no
    /// observer.
    void observe(OperationObserver* observer) { observer_ = observer; }

    /// For Scope.
    bool shows_scopes() const { return observer_ != nullptr || shows_ranges_; }
    void begin_scope(Stream stream, std::string_view name, int number) {
        if (observer_ != nullptr) observer_->begin_scope(name, number, stream);
        if (shows_ranges_) begin_range(name, number);
    }
    /// A device that has failed says so at the next operation.
    void end_scope(Stream stream) noexcept {
        try {
            if (shows_ranges_) end_range();
            if (observer_ != nullptr) observer_->end_scope(stream);
        } catch (const Error&) {
        }
    }

    template <class Operation>
    void run(Stream stream, const Operation& operation) {
        operation.check(Operands(operation_name(operation), device()));
        if (observer_ == nullptr) return execute(stream, operation);
        const OperationCost what = operation.cost();
        observer_->begin(what, stream);
        execute(stream, operation);
        observer_->end(what, stream);
    }

    /// The recorder's run(), except that with an observer each operation is enqueued individually, so that
    /// the observer is notified of it.
    void run_recorded(Recorder& recorder, Stream stream, const RecordingKey& key,
                      const std::function<void()>& enqueue) {
        if (observer_ == nullptr)
            recorder.run(stream, key, enqueue);
        else
            enqueue();
    }

  protected:
#define DROVER_EXECUTE(name, Listed) virtual void execute(Stream, const Listed&) = 0;
    DROVER_OPERATIONS(DROVER_EXECUTE)
#undef DROVER_EXECUTE

    virtual void execute_copy(Stream stream, const Tensor& from, const Tensor& to) = 0;

    /// Where a tool of the device's vendor is attached: it is told of the host's scopes.
    virtual void begin_range(std::string_view /*name*/, int /*number*/) {}
    virtual void end_range() {}
    bool shows_ranges_ = false;

  private:
    OperationObserver* observer_ = nullptr;
};

/// The CPU backend, with the best kernels for this processor unless the settings say otherwise. Error on a
/// processor without AVX2, or without what the settings ask for.
std::unique_ptr<Backend> make_cpu_backend(
    const BackendSettings& settings = backend_settings_from_environment());

/// The CUDA backend on device `ordinal` (counted within CUDA_VISIBLE_DEVICES); Error when this build or this
/// machine has none. It lives in the module drover_cuda.so, so that the program starts on machines without
/// CUDA's libraries.
std::unique_ptr<Backend> make_cuda_backend(
    int ordinal, const BackendSettings& settings = backend_settings_from_environment());

/// GPUs that this process may use, as the driver counts them; 0 where there is no driver. Loads no CUDA
/// library.
int cuda_device_count();

}  // namespace drover
