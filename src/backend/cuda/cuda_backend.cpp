#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <typeindex>
#include <unordered_map>

#include "backend/backend.h"
#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cudnn_attention.h"
#include "backend/cuda/event_fence.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/graph_recorder.h"
#include "backend/cuda/grouped_gemm.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/kernels/attention_gradient.h"
#include "backend/cuda/marks.h"
#include "backend/cuda/module_interface.h"
#include "backend/cuda/open_gpu.h"
#include "backend/cuda/peaks.h"
#include "backend/cuda/ranges.h"
#include "core/console.h"
#include "core/number_text.h"

namespace drover::cuda {
namespace {

/// Upper bound on what cuBLASLt's and cuDNN's code and workspaces take once in use: attention's pieces of 4
/// GiB, and less than 1 GiB for all else (measured).
constexpr std::size_t library_bytes = std::size_t{5} << 30;

class CudaBackend final : public Backend {
  public:
    CudaBackend(int ordinal, const BackendSettings& settings)
        : settings_(settings),
          properties_(open_gpu(ordinal)),
          gpu_(describe_gpu(properties_, settings)),
          gemm_(gpu_),
          grouped_gemm_(settings.grouped_gemm),
          cudnn_attention_(gpu_.capability, settings.attention_piece_mb << 20) {
        for (cudaStream_t* stream : {&stream_, &copy_stream_})
            cuda::check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "a stream cannot be made");
        shows_ranges_ = tool_takes_ranges();
    }
    ~CudaBackend() override {
        cudaStreamDestroy(copy_stream_);
        cudaStreamDestroy(stream_);
    }

    Device device() const override { return Device::cuda; }
    std::string description() const override {
        return fmt::format("{}, {} multiprocessors, {}", properties_.name, properties_.multiProcessorCount,
                           bytes_text(properties_.totalGlobalMem));
    }

    std::size_t available_bytes() const override {
        std::size_t free_now = 0, total = 0;
        cuda::check(cudaMemGetInfo(&free_now, &total), "the GPU's memory cannot be read");
        return free_now > library_bytes ? free_now - library_bytes : 0;
    }
    MemoryBlock allocate(std::size_t bytes) override {
        void* memory = nullptr;
        cuda::check(cudaMalloc(&memory, bytes == 0 ? 1 : bytes), bytes_text(bytes));
        *allocated_ += bytes;
        expert_offsets_.forget();
        cuda::check(cudaMemsetAsync(memory, 0, bytes, stream_), "memory cannot be cleared");
        // The memory may outlive the backend.
        return MemoryBlock(memory, [allocated = allocated_, bytes](void* freed) {
            *allocated -= bytes;
            cudaFree(freed);
        });
    }
    MemoryBlock allocate_staging(std::size_t bytes) override {
        void* memory = nullptr;
        cuda::check(cudaMallocHost(&memory, bytes), "pinned host memory");
        return MemoryBlock(memory, [](void* freed) { cudaFreeHost(freed); });
    }
    /// Kernels reach pinned memory at the address that it has for the host.
    MemoryBlock allocate_shared(std::size_t bytes) override {
        void* memory = nullptr;
        if (cudaHostAlloc(&memory, bytes == 0 ? 1 : bytes, cudaHostAllocPortable | cudaHostAllocMapped) !=
            cudaSuccess) {
            cudaGetLastError();  // reported here, so the next launch must not report it again
            throw Error(
                fmt::format("The host refused {} of memory that the GPU can reach.", bytes_text(bytes)),
                "Look for a limit (ulimit -l, a container's memory), or train without offload.");
        }
        std::memset(memory, 0, bytes);
        return MemoryBlock(memory, [](void* freed) {
            cudaDeviceSynchronize();  // a kernel may still write there
            cudaFreeHost(freed);
        });
    }
    Stream main_stream() override { return {stream_}; }
    Stream copy_stream() override { return {copy_stream_}; }
    std::unique_ptr<Fence> make_fence() override { return std::make_unique<EventFence>(); }
    std::unique_ptr<Recorder> make_recorder() override {
        if (!settings_.cuda_graphs) return std::make_unique<Recorder>();
        return std::make_unique<GraphRecorder>(scratch_);
    }
    void synchronize(Stream stream) override {
        cuda::check(stream.handle == nullptr
                        ? cudaDeviceSynchronize()
                        : cudaStreamSynchronize(static_cast<cudaStream_t>(stream.handle)),
                    "an operation");
    }
    std::size_t mark(Stream stream) override { return marks_.put(static_cast<cudaStream_t>(stream.handle)); }
    double seconds_between(std::size_t first, std::size_t second) override {
        return marks_.seconds_between(first, second);
    }
    void forget_marks() override { marks_.forget(); }

    void use_tf32(bool tf32) override { gemm_.use_tf32(tf32); }
    MachinePeaks measure_peaks() override {
        MachinePeaks peaks = cuda::measure_peaks(launch(main_stream()), gemm_);
        peaks.rated_bf16_flops = rated_bf16_flops(properties_.name);
        return peaks;
    }

    std::size_t untracked_bytes() const override {
        std::size_t free_now = 0, total = 0;
        cuda::check(cudaMemGetInfo(&free_now, &total), "the GPU's memory cannot be read");
        return total - free_now - *allocated_;
    }
    std::size_t reserved_bytes() const override { return library_bytes; }

  protected:
    void execute_copy(Stream stream, const Tensor& from, const Tensor& to) override {
        require(from.bytes() == to.bytes() && from.packed() && to.packed(),
                "a copy of unequal or strided tensors");
        cuda::check(cudaMemcpyAsync(to.raw(), from.raw(), from.bytes(), cudaMemcpyDefault,
                                    static_cast<cudaStream_t>(stream.handle)),
                    "a copy");
        expert_offsets_.overwritten(to.raw(), to.bytes());
    }

    void begin_range(std::string_view name, int number) override { push_range(name, number); }
    void end_range() override { pop_range(); }

    void execute(Stream stream, const Gemm& op) override { gemm_.run(launch<Gemm>(stream), op); }
    void execute(Stream stream, const Fp8Gemm& op) override { gemm_.run(launch<Fp8Gemm>(stream), op); }
    void execute(Stream stream, const GroupedGemm& op) override {
        grouped_gemm_.run(launch<GroupedGemm>(stream), gemm_, expert_offsets_, op);
    }
    void execute(Stream stream, const GroupedFp8Gemm& op) override {
        grouped_gemm_.run(launch<GroupedFp8Gemm>(stream), gemm_, expert_offsets_, op);
    }

#define DROVER_EXECUTE(name, Listed)                         \
    void execute(Stream stream, const Listed& op) override { \
        run_kernel(cuda::name, launch<Listed>(stream), op);  \
    }
    DROVER_KERNEL_OPERATIONS(DROVER_EXECUTE)
#undef DROVER_EXECUTE

  private:
    template <class Operation>
    using Kernel = void (*)(const Launch&, const Operation&);

    template <class Operation>
    void run_kernel(Kernel<Operation> kernel, const Launch& launch, const Operation& op) {
        kernel(launch, op);
    }
    // Operations that need more than their kernel.
    void run_kernel(Kernel<Attention> kernel, const Launch& launch, const Attention& op) {
        run_with_cudnn_or(kernel, launch, op);
    }
    void run_kernel(Kernel<AttentionBackward> kernel, const Launch& launch, const AttentionBackward& op) {
        const std::int64_t most_bytes = settings_.attention_piece_mb << 20;
        if (settings_.attention_backward != AttentionBackwardMethod::cudnn && !settings_.plain_attention &&
            hopper_attention_backward_takes(launch, op, most_bytes))
            hopper_attention_backward(launch, op, most_bytes);
        else
            run_with_cudnn_or(kernel, launch, op);
    }
    void run_kernel(Kernel<SortByExpert> kernel, const Launch& launch, const SortByExpert& op) {
        kernel(launch, op);
        expert_offsets_.made(launch.stream, op.offsets);
    }
    void run_kernel(Kernel<Fill> kernel, const Launch& launch, const Fill& op) {
        kernel(launch, op);
        expert_offsets_.overwritten(op.x.raw(), op.x.bytes());
    }

    template <class Operation>
    void run_with_cudnn_or(Kernel<Operation> kernel, const Launch& launch, const Operation& op) {
        if (cudnn_takes(op))
            cudnn_attention_.run(launch, op);
        else
            kernel(launch, op);
    }

    template <class Operation = void>
    Launch launch(Stream stream) {
        return {.stream = static_cast<cudaStream_t>(stream.handle),
                .scratch = scratch_,
                .table = tables_[typeid(Operation)],
                .gpu = gpu_};
    }

    /// fp32 never goes to cuDNN. If cuDNN refuses a half precision, this is logged once, because the plain
    /// kernel is slow.
    template <class Operation>
    bool cudnn_takes(const Operation& op) {
        if (settings_.plain_attention) return false;
        if (cudnn_attention_.takes(op)) return true;
        if (op.q.dtype() != DType::f32 && !refusal_said_) {
            refusal_said_ = true;
            print_log(stderr, "Attention runs on the plain kernel, which is slower: {}\n",
                      cudnn_attention_.refusal());
        }
        return false;
    }

    const BackendSettings settings_;
    const cudaDeviceProp properties_;
    const Gpu gpu_;
    cudaStream_t stream_ = nullptr, copy_stream_ = nullptr;
    std::shared_ptr<std::size_t> allocated_ = std::make_shared<std::size_t>(0);
    Marks marks_;
    Scratch scratch_;
    std::unordered_map<std::type_index, DeviceTable> tables_;
    GemmEngine gemm_;
    ExpertOffsets expert_offsets_;
    GroupedGemmEngine grouped_gemm_;
    CudnnAttention cudnn_attention_;
    bool refusal_said_ = false;
};

}  // namespace
}  // namespace drover::cuda

int drover_cuda_module_version() {
    return drover::cuda_module_version;
}

drover::Backend* drover_make_cuda_backend(int ordinal, const drover::BackendSettings& settings) {
    return new drover::cuda::CudaBackend(ordinal, settings);
}
