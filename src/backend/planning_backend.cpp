#include "backend/planning_backend.h"

#include "backend/backend.h"

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
    MachinePeaks measure_peaks() override { bug("the speed of a plan was asked for"); }

  protected:
    void execute_copy(Stream, const Tensor& from, const Tensor& to) override {
        require(from.packed() && to.packed(), "copy: operand is strided");
        require(from.dtype() == to.dtype() && from.numel() == to.numel(),
                "copy: operands differ in size or type");
    }
#define DROVER_PLANNED(name, Operation) \
    void execute(Stream, const Operation&) override {}
    DROVER_OPERATIONS(DROVER_PLANNED)
#undef DROVER_PLANNED

  private:
    Device device_;
};

}  // namespace

std::unique_ptr<Backend> make_planning_backend(Device device) {
    return std::make_unique<PlanningBackend>(device);
}

}  // namespace drover
