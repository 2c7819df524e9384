#include "comm/counting_communicator.h"

#include "comm/collectives.h"

namespace drover {
namespace {

class CountingCommunicator final : public Communicator {
  public:
    CountingCommunicator(std::string axis, int size, int rank, Device device, SentCounts& counts)
        : Communicator(std::move(axis), size, rank, device), counts_(counts) {}

  private:
    void* do_start(Stream, const CollectiveCall& call) override {
        SentCount& count = counts_[{axis(), call.kind}];
        ++count.calls;
        count.bytes += sent_bytes(call, size(), rank());
        return nullptr;
    }
    void do_wait(Stream, void*) override {}
    void do_drop(void*) noexcept override {}

    SentCounts& counts_;
};

}  // namespace

std::unique_ptr<Communicator> make_counting_communicator(std::string axis, int size, int rank, Device device,
                                                         SentCounts& counts) {
    if (size == 1) return make_self_communicator(std::move(axis));
    return std::make_unique<CountingCommunicator>(std::move(axis), size, rank, device, counts);
}

}  // namespace drover
