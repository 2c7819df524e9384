#include <fmt/format.h>
#include <omp.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/fp8_gemm.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/grouped_gemm.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/peaks.h"
#include "backend/cpu/tile_engine.h"
#include "backend/cpu/tiles/amx_probe.h"
#include "core/error.h"
#include "core/machine_memory.h"
#include "core/number_text.h"
#include "core/stopwatch.h"

namespace drover {
namespace cpu {
namespace {

/// A level of instructions that the kernels were compiled for.
struct InstructionSet {
    std::string_view name;  ///< as in DROVER_CPU_ISA
    std::string_view title;
    const Kernels& kernels;
    bool supported;
    std::optional<tiles::TileUnit> bf16_tiles{};  ///< the unit that multiplies bf16; absent: done in fp32
};

/// One for each of CpuInstructions, in their order.
std::vector<InstructionSet> instruction_sets() {
    using tiles::TileUnit;
    const bool avx2 = __builtin_cpu_supports("x86-64-v3") != 0,
               avx512 = __builtin_cpu_supports("x86-64-v4") != 0,
               bf16 = avx512 && __builtin_cpu_supports("avx512bf16") != 0;
    return {{"avx2", "AVX2", avx2::kernels, avx2},
            {"avx512", "AVX-512", avx512::kernels, avx512,
             bf16 ? std::optional(TileUnit::vectors) : std::nullopt},
            {"amx", "AMX", avx512::kernels, bf16 && tiles::amx_usable(), TileUnit::amx}};
}

/// The best level that the processor has, or the requested one.
InstructionSet choose_instruction_set(std::optional<CpuInstructions> asked) {
    const std::vector<InstructionSet> sets = instruction_sets();
    if (!sets[0].supported)
        throw Error("This processor has no AVX2 and FMA instructions, which the CPU backend needs.",
                    "Use an x86-64 processor from 2013 or later.");
    if (!asked) return sets[2].supported ? sets[2] : sets[1].supported ? sets[1] : sets[0];
    const InstructionSet& set = sets[static_cast<std::size_t>(*asked)];
    if (!set.supported)
        throw Error(
            fmt::format("DROVER_CPU_ISA is \"{}\", but this processor has no {}.", set.name, set.title),
            "Leave the variable unset, or set it to avx2.");
    return set;
}

class CpuBackend final : public Backend {
  public:
    explicit CpuBackend(const BackendSettings& settings)
        : instructions_(choose_instruction_set(settings.cpu_instructions)), gemm_(settings) {
        if (instructions_.bf16_tiles) tiles_.emplace(*instructions_.bf16_tiles);
    }

    Device device() const override { return Device::cpu; }
    std::string description() const override {
        return fmt::format("CPU, {}, {}", instructions_.title, counted(omp_get_max_threads(), "thread"));
    }
    std::size_t available_bytes() const override { return usable_memory(); }
    MemoryBlock allocate(std::size_t bytes) override { return allocate_host_memory(bytes); }
    MachinePeaks measure_peaks() override { return cpu::measure_peaks(kernels(), instructions_.bf16_tiles); }
    Stream main_stream() override { return {}; }
    Stream copy_stream() override { return {}; }
    std::unique_ptr<Fence> make_fence() override { return std::make_unique<NoFence>(); }
    void synchronize(Stream) override {}
    std::size_t mark(Stream) override {
        marks_.push_back(watch_.seconds());
        return marks_.size() - 1;
    }
    double seconds_between(std::size_t first, std::size_t second) override {
        return marks_[second] - marks_[first];
    }
    void forget_marks() override { marks_.clear(); }

  protected:
    void execute_copy(Stream, const Tensor& from, const Tensor& to) override {
        require(from.device() == Device::cpu && to.device() == Device::cpu,
                "copy: operand on another device");
        require(from.packed() && to.packed(), "copy: operand is strided");
        require(from.dtype() == to.dtype() && from.numel() == to.numel(),
                "copy: operands differ in size or type");
        if (from.bytes() > 0) std::memcpy(to.raw(), from.raw(), from.bytes());
    }

    void execute(Stream, const Gemm& op) override {
        if (tiles_ && tiles_->takes(op))
            tiles_->run(op);
        else
            gemm_.run(op);
    }
    void execute(Stream stream, const Fp8Gemm& op) override {
        fp8_gemm_.run(op, [&](const Gemm& product) { execute(stream, product); });
    }
    void execute(Stream stream, const GroupedFp8Gemm& op) override {
        fp8_gemm_.run(op, [&](const Gemm& product) { execute(stream, product); });
    }
    void execute(Stream stream, const GroupedGemm& op) override {
        for_each_product(op, [&](const Gemm& product) { execute(stream, product); });
    }

#define DROVER_EXECUTE(name, Listed)                  \
    void execute(Stream, const Listed& op) override { \
        run_kernel(kernels().name, op);               \
    }
    DROVER_KERNEL_OPERATIONS(DROVER_EXECUTE)
#undef DROVER_EXECUTE

  private:
    template <class Operation>
    void run_kernel(void (*kernel)(const Operation&), const Operation& op) {
        kernel(op);
    }
    // Operations that need more than their kernel.
    void run_kernel(void (*kernel)(const Attention&), const Attention& op) {
        run_in_tiles_or(kernel, op);
    }
    void run_kernel(void (*kernel)(const AttentionBackward&), const AttentionBackward& op) {
        run_in_tiles_or(kernel, op);
    }
    void run_kernel(void (*kernel)(const GroupedEmbeddingBackward&), const EmbeddingBackward& op) {
        kernel(grouped(op));
    }

    template <class Operation>
    void run_in_tiles_or(void (*kernel)(const Operation&), const Operation& op) {
        if (tiles_ && tiles_->takes(op))
            tiles_->run(op);
        else
            kernel(op);
    }

    const Kernels& kernels() const {
        return instructions_.kernels;
    }

    GroupedEmbeddingBackward grouped(const EmbeddingBackward& op) {
        const std::int64_t tokens = op.ids.size(0), held = op.dweight.size(0);
        const auto* ids = op.ids.data<const std::int32_t>();
        first_token_.assign(static_cast<std::size_t>(held), -1);
        next_token_.resize(static_cast<std::size_t>(tokens));
        // Backwards, so that each chain is in ascending order.
        for (std::int64_t token = tokens - 1; token >= 0; --token) {
            const std::int64_t row = ids[token] - op.first_id;
            if (ids[token] == op.padding_id || row < 0 || row >= held) continue;
            auto& first = first_token_[static_cast<std::size_t>(row)];
            next_token_[static_cast<std::size_t>(token)] = first;
            first = static_cast<std::int32_t>(token);
        }
        return {.operation = op, .first = first_token_.data(), .next = next_token_.data()};
    }

    InstructionSet instructions_;
    Stopwatch watch_;
    std::vector<double> marks_;
    GemmEngine gemm_;
    Fp8GemmEngine fp8_gemm_;
    std::optional<TileEngine> tiles_;
    // Chains of EmbeddingBackward: they grow to the largest vocabulary and micro-batch seen, and never
    // shrink.
    std::vector<std::int32_t> first_token_;
    std::vector<std::int32_t> next_token_;
};

}  // namespace

void unexpected_dtype() {
    bug("kernel called with a dtype that it has no code for");
}

}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(const BackendSettings& settings) {
    return std::make_unique<cpu::CpuBackend>(settings);
}

}  // namespace drover
