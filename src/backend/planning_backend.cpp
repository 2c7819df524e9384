#include "backend/planning_backend.h"

#include "backend/no_fence.h"

namespace drover {
namespace {

class PlanningBackend final : public Backend {
  public:
    explicit PlanningBackend(Device device) : device_(device) {}

    Device device() const override { return device_; }
    std::string description() const override { return "a plan"; }
    std::size_t available_bytes() const override { return 0; }
    MemoryBlock allocate(std::size_t) override { bug("memory was asked of a plan"); }
    MemoryBlock allocate_staging(std::size_t bytes) override { return allocate_host_memory(bytes); }
    Stream main_stream() override { return {}; }
    Stream copy_stream() override { return {}; }
    std::unique_ptr<Fence> make_fence() override { return std::make_unique<NoFence>(); }
    void synchronize(Stream) override {}
    std::size_t mark(Stream) override { return 0; }
    double seconds_between(std::size_t, std::size_t) override { return 0; }
    void forget_marks() override {}
    void copy(Stream, const Tensor& from, const Tensor& to) override {
        require(from.packed() && to.packed(), "copy: operand is strided");
        require(from.dtype() == to.dtype() && from.numel() == to.numel(),
                "copy: operands differ in size or type");
    }
    MachinePeaks measure_peaks() override { bug("the speed of a plan was asked for"); }

  protected:
#define DROVER_PLANNED(Operation) \
    void execute(Stream, const Operation&) override {}
    DROVER_PLANNED(Gemm)
    DROVER_PLANNED(BiasGradient)
    DROVER_PLANNED(Embedding)
    DROVER_PLANNED(EmbeddingBackward)
    DROVER_PLANNED(RmsNorm)
    DROVER_PLANNED(RmsNormBackward)
    DROVER_PLANNED(Rope)
    DROVER_PLANNED(Swiglu)
    DROVER_PLANNED(SwigluBackward)
    DROVER_PLANNED(Attention)
    DROVER_PLANNED(AttentionBackward)
    DROVER_PLANNED(CachedAttention)
    DROVER_PLANNED(CrossEntropyStatistics)
    DROVER_PLANNED(CrossEntropyRescale)
    DROVER_PLANNED(CrossEntropyGradient)
    DROVER_PLANNED(JitterTokens)
    DROVER_PLANNED(Router)
    DROVER_PLANNED(RouterBackward)
    DROVER_PLANNED(BalanceLoss)
    DROVER_PLANNED(SortByExpert)
    DROVER_PLANNED(TokensToRows)
    DROVER_PLANNED(RowsToTokens)
    DROVER_PLANNED(WeightRows)
    DROVER_PLANNED(GroupedGemm)
    DROVER_PLANNED(SumOfSquares)
    DROVER_PLANNED(ClipFactor)
    DROVER_PLANNED(AdamW)
    DROVER_PLANNED(Sgd)
    DROVER_PLANNED(Adagrad)
    DROVER_PLANNED(Rmsprop)
    DROVER_PLANNED(AdafactorSums)
    DROVER_PLANNED(AdafactorFactors)
    DROVER_PLANNED(AdafactorSquares)
    DROVER_PLANNED(AdafactorUpdate)
    DROVER_PLANNED(Fill)
    DROVER_PLANNED(Cast)
    DROVER_PLANNED(Add)
    DROVER_PLANNED(Sum)
#undef DROVER_PLANNED

  private:
    Device device_;
};

}  // namespace

std::unique_ptr<Backend> make_planning_backend(Device device) {
    return std::make_unique<PlanningBackend>(device);
}

}  // namespace drover
