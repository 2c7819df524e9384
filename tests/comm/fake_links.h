#pragma once

#include <atomic>
#include <memory>

#include "comm/nccl/gpu_links.h"

namespace drover::test {

class FakeNetwork;

/// State shared by ranks that are threads: their links find each other here.
std::shared_ptr<FakeNetwork> make_fake_network();

/// NCCL and a GPU simulated by threads: every link has a thread as its stream, which performs collectives in
/// host memory after the events it follows.
class FakeLinks final : public GpuLinks {
  public:
    explicit FakeLinks(std::shared_ptr<FakeNetwork> network) : network_(std::move(network)) {}

    Device device() const override { return Device::cpu; }
    std::array<std::byte, 16> gpu_identity() const override { return {}; }
    void use_on_this_thread() override {}
    LinkId make_id() override;
    std::unique_ptr<GpuLink> join(const LinkId& id, int size, int rank) override;
    GpuEvent make_event() override;
    GpuEvent make_timed_event() override;
    void free_event(GpuEvent event) noexcept override;
    void record(Stream stream, GpuEvent event) override;
    void wait(Stream stream, GpuEvent event) override;
    bool passed(GpuEvent event) override;
    double seconds_between(GpuEvent first, GpuEvent second) override;

    /// Links report an error from now on.
    void break_links() { *broken_ = true; }
    int links_made() const { return links_made_; }
    int timed_events_made() const { return timed_events_made_; }
    /// The number of calls of enqueue(), over all links.
    int enqueued() const { return *enqueued_; }

  private:
    std::shared_ptr<FakeNetwork> network_;
    std::shared_ptr<std::atomic<bool>> broken_ = std::make_shared<std::atomic<bool>>(false);
    std::shared_ptr<std::atomic<int>> enqueued_ = std::make_shared<std::atomic<int>>(0);
    std::atomic<int> links_made_ = 0;
    std::atomic<int> timed_events_made_ = 0;
};

}  // namespace drover::test
