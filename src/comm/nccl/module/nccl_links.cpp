#include <fmt/format.h>
#include <nccl.h>

#include <cstring>

#include "backend/cuda/cuda_error.h"
#include "comm/nccl/gpu_links.h"
#include "comm/nccl/module_interface.h"

namespace drover {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(LinkId));

cudaEvent_t event_of(GpuEvent event) {
    return static_cast<cudaEvent_t>(event);
}

/// Calls of non-blocking links may still be in progress when they return.
void check(ncclResult_t result, std::string_view what, ncclComm_t comm = nullptr) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    const char* details = ncclGetLastError(comm);
    throw Error(
        fmt::format("NCCL failed in {}: {}{}{}.", what, ncclGetErrorString(result),
                    details != nullptr && *details != '\0' ? ": " : "", details != nullptr ? details : ""),
        "Run again with NCCL_DEBUG=WARN, which shows the cause.");
}

ncclDataType_t type_of(DType dtype) {
    switch (dtype) {
        case DType::f64:
            return ncclFloat64;
        case DType::f32:
            return ncclFloat32;
        case DType::bf16:
            return ncclBfloat16;
        case DType::f16:
            return ncclFloat16;
        case DType::i64:
            return ncclInt64;
        case DType::i32:
            return ncclInt32;
        case DType::u16:
        case DType::u8:
        case DType::f8:
            break;
    }
    bug("reduction of a type that is not reduced");
}

ncclRedOp_t operator_of(Reduction reduction) {
    switch (reduction) {
        case Reduction::sum:
            return ncclSum;
        case Reduction::max:
            return ncclMax;
        case Reduction::min:
            return ncclMin;
    }
    bug("unknown reduction");
}

class NcclLink final : public GpuLink {
  public:
    NcclLink(const LinkId& id, int size, int rank) : size_(size) {
        int lowest = 0, highest = 0;
        cuda::check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "priorities cannot be read");
        // Computation waits for communication, not the other way round.
        cuda::check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest),
                    "a stream for communication cannot be made");
        cuda::check(cudaMalloc(&barrier_, sizeof(std::int32_t)), "a barrier's number");
        cuda::check(cudaMemsetAsync(barrier_, 0, sizeof(std::int32_t), stream_), "memory cannot be cleared");
        ncclUniqueId unique;
        std::memcpy(&unique, id.data(), sizeof unique);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        check(ncclCommInitRankConfig(&comm_, size, unique, rank, &config), "ncclCommInitRankConfig");
    }

    ~NcclLink() override {
        if (comm_ != nullptr) ncclCommDestroy(comm_);
        cudaStreamDestroy(stream_);
        cudaFree(barrier_);
    }

    bool settled() override {
        ncclResult_t state = ncclSuccess;
        check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
        check(state, "an operation of this link", comm_);
        return state == ncclSuccess;
    }

    void follow(GpuEvent event) override {
        cuda::check(cudaStreamWaitEvent(stream_, event_of(event)), "an event cannot be waited for");
    }
    void record(GpuEvent event) override {
        cuda::check(cudaEventRecord(event_of(event), stream_), "an event cannot be recorded");
    }

    void enqueue(std::span<const CollectiveCall> calls) override {
        check(ncclGroupStart(), "ncclGroupStart");
        ncclResult_t result = ncclSuccess;
        for (const CollectiveCall& call : calls) {
            result = add(call);
            if (result != ncclSuccess && result != ncclInProgress) {
                ncclGroupEnd();
                check(result, name_of(call.kind), comm_);
            }
        }
        check(ncclGroupEnd(), "ncclGroupEnd", comm_);
    }

    void finish() override { check(ncclCommFinalize(comm_), "ncclCommFinalize", comm_); }
    void abort() noexcept override {
        if (comm_ != nullptr) ncclCommAbort(comm_);
        comm_ = nullptr;
    }

  private:
    ncclResult_t add(const CollectiveCall& call) {
        const auto count = static_cast<std::size_t>(call.count);
        const std::size_t part = count / static_cast<std::size_t>(size_);
        switch (call.kind) {
            case CollectiveKind::all_reduce:
                return ncclAllReduce(call.from, call.to, count, type_of(call.dtype),
                                     operator_of(call.reduction), comm_, stream_);
            case CollectiveKind::reduce_scatter:
                return ncclReduceScatter(call.from, call.to, part, type_of(call.dtype),
                                         operator_of(call.reduction), comm_, stream_);
            case CollectiveKind::all_gather:
                return ncclAllGather(call.from, call.to, part * size_of(call.dtype), ncclUint8, comm_,
                                     stream_);
            case CollectiveKind::broadcast:
                return ncclBroadcast(call.from, call.to, call.bytes(), ncclUint8, call.peer, comm_, stream_);
            case CollectiveKind::all_to_all:
                return add_all_to_all(call);
            case CollectiveKind::barrier:
                return ncclAllReduce(barrier_, barrier_, 1, ncclInt32, ncclMax, comm_, stream_);
            case CollectiveKind::send:
                return count == 0 ? ncclSuccess
                                  : ncclSend(call.from, call.bytes(), ncclUint8, call.peer, comm_, stream_);
            case CollectiveKind::receive:
                return count == 0 ? ncclSuccess
                                  : ncclRecv(call.to, call.bytes(), ncclUint8, call.peer, comm_, stream_);
        }
        bug("unknown collective");
    }

    /// Both ends agree on which parts are empty.
    ncclResult_t add_all_to_all(const CollectiveCall& call) {
        const std::byte* from = call.from;
        std::byte* to = call.to;
        for (int peer = 0; peer < size_; ++peer) {
            const auto index = static_cast<std::size_t>(peer);
            const std::size_t sent = static_cast<std::size_t>(call.counts_to[index]) * size_of(call.dtype);
            const std::size_t received =
                static_cast<std::size_t>(call.counts_from[index]) * size_of(call.dtype);
            ncclResult_t result =
                sent == 0 ? ncclSuccess : ncclSend(from, sent, ncclUint8, peer, comm_, stream_);
            if (result != ncclSuccess && result != ncclInProgress) return result;
            if (received > 0) result = ncclRecv(to, received, ncclUint8, peer, comm_, stream_);
            if (result != ncclSuccess && result != ncclInProgress) return result;
            from += sent;
            to += received;
        }
        return ncclSuccess;
    }

    const int size_;
    cudaStream_t stream_ = nullptr;
    void* barrier_ = nullptr;  // the operand of barriers
    ncclComm_t comm_ = nullptr;
};

class NcclLinks final : public GpuLinks {
  public:
    explicit NcclLinks(cudaStream_t stream) {
        cuda::check(cudaStreamGetDevice(stream, &ordinal_), "the stream's GPU cannot be read");
    }

    Device device() const override { return Device::cuda; }
    std::array<std::byte, 16> gpu_identity() const override {
        cudaDeviceProp properties{};
        cuda::check(cudaGetDeviceProperties(&properties, ordinal_), "the GPU's properties cannot be read");
        std::array<std::byte, 16> identity;
        static_assert(sizeof properties.uuid == sizeof identity);
        std::memcpy(identity.data(), &properties.uuid, sizeof identity);
        return identity;
    }
    void use_on_this_thread() override {
        cuda::check(cudaSetDevice(ordinal_), fmt::format("device {} cannot be chosen", ordinal_));
    }

    LinkId make_id() override {
        ncclUniqueId unique;
        check(ncclGetUniqueId(&unique), "ncclGetUniqueId");
        LinkId id;
        std::memcpy(id.data(), &unique, sizeof unique);
        return id;
    }
    std::unique_ptr<GpuLink> join(const LinkId& id, int size, int rank) override {
        return std::make_unique<NcclLink>(id, size, rank);
    }

    GpuEvent make_event() override {
        cudaEvent_t event = nullptr;
        cuda::check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event cannot be made");
        return event;
    }
    GpuEvent make_timed_event() override {
        cudaEvent_t event = nullptr;
        cuda::check(cudaEventCreateWithFlags(&event, cudaEventDefault), "an event cannot be made");
        return event;
    }
    void free_event(GpuEvent event) noexcept override { cudaEventDestroy(event_of(event)); }
    void record(Stream stream, GpuEvent event) override {
        cuda::check(cudaEventRecord(event_of(event), static_cast<cudaStream_t>(stream.handle)),
                    "an event cannot be recorded");
    }
    void wait(Stream stream, GpuEvent event) override {
        cuda::check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.handle), event_of(event)),
                    "an event cannot be waited for");
    }
    bool passed(GpuEvent event) override {
        const cudaError_t status = cudaEventQuery(event_of(event));
        if (status == cudaErrorNotReady) {
            cudaGetLastError();  // an answer, not an error of the next launch
            return false;
        }
        cuda::check(status, "a collective");
        return true;
    }
    double seconds_between(GpuEvent first, GpuEvent second) override {
        float milliseconds = 0;
        cuda::check(cudaEventElapsedTime(&milliseconds, event_of(first), event_of(second)),
                    "the time of a collective cannot be read");
        return static_cast<double>(milliseconds) / 1e3;
    }

  private:
    int ordinal_ = 0;
};

}  // namespace
}  // namespace drover

int drover_nccl_module_version() {
    return drover::nccl_module_version;
}

drover::GpuLinks* drover_make_nccl_links(void* stream) {
    return new drover::NcclLinks(static_cast<cudaStream_t>(stream));
}
