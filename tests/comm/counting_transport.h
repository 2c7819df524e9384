#pragma once

#include <map>
#include <memory>

#include "comm/transport.h"

namespace drover::test {

/// Counts the bytes that a rank sends through another transport, by channel.
class CountingTransport final : public Transport {
  public:
    CountingTransport(std::unique_ptr<Transport> carrier, std::map<Channel, std::size_t>& sent)
        : carrier_(std::move(carrier)), sent_(sent) {}

    int rank() const override { return carrier_->rank(); }
    int size() const override { return carrier_->size(); }
    Request send(int to, Channel channel, const void* data, std::size_t bytes) override {
        sent_[channel] += bytes;
        return carrier_->send(to, channel, data, bytes);
    }
    Request receive(int from, Channel channel, void* data, std::size_t capacity) override {
        return carrier_->receive(from, channel, data, capacity);
    }
    std::optional<std::size_t> finished(Request request) override { return carrier_->finished(request); }
    void poll(std::chrono::microseconds at_most) override { carrier_->poll(at_most); }
    void wake() override { carrier_->wake(); }
    void send_note(int to, const Note& note) override { carrier_->send_note(to, note); }
    std::vector<ReceivedNote> take_notes() override { return carrier_->take_notes(); }
    const std::optional<FailedRank>& failed_rank() const override { return carrier_->failed_rank(); }
    void tell_failure(std::string_view reason) noexcept override { carrier_->tell_failure(reason); }
    void break_off() noexcept override { carrier_->break_off(); }
    void close() override { carrier_->close(); }

  private:
    std::unique_ptr<Transport> carrier_;
    std::map<Channel, std::size_t>& sent_;  // used only by the communication thread until it has ended
};

}  // namespace drover::test
