#include "comm/communicator.h"

#include <fmt/format.h>

#include <utility>

namespace drover {

Pending::Pending(Pending&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), operation_(other.operation_) {}

Pending& Pending::operator=(Pending&& other) noexcept {
    if (this != &other) {
        if (owner_ != nullptr) owner_->do_drop(operation_);
        owner_ = std::exchange(other.owner_, nullptr);
        operation_ = other.operation_;
    }
    return *this;
}

void Pending::wait(Stream stream) {
    if (owner_ != nullptr) owner_->wait(stream, std::move(*this));
}

Pending::~Pending() {
    if (owner_ != nullptr) owner_->do_drop(operation_);
}

namespace {

std::byte* bytes_of(const Tensor& tensor) {
    return static_cast<std::byte*>(tensor.raw());
}

/// Aborts with the operation's name; the message is built only if needed.
void check(bool holds, std::string_view operation, std::string_view what,
           CodePlace where = CodePlace::here()) {
    if (!holds) bug(fmt::format("{}: {}", operation, what), where);
}

void check_reduces(DType dtype, std::string_view operation) {
    check(dtype != DType::u8 && dtype != DType::u16 && dtype != DType::f8, operation,
          "elements of this type are not added");
}

bool overlap(const Tensor& a, const Tensor& b) {
    return a.bytes() > 0 && b.bytes() > 0 && bytes_of(a) < bytes_of(b) + b.bytes() &&
           bytes_of(b) < bytes_of(a) + a.bytes();
}

}  // namespace

Communicator::Communicator(std::string axis, int size, int rank, Device device, bool idle)
    : axis_(std::move(axis)), size_(size), rank_(rank), device_(device), idle_(idle) {
    require(size >= 1 && rank >= 0 && rank < size, "a communicator's rank lies outside its axis");
}

void Communicator::check_operand(const Tensor& x, std::string_view operation) const {
    check(x.packed() && (x.raw() != nullptr || x.numel() == 0), operation, "a tensor is absent or strided");
    check(x.device() == device_ || idle_, operation, "a tensor lies on another device");
}

/// `whole` is as long as all ranks' parts, and `part` lies outside it or in its own place there.
void Communicator::check_part(const Tensor& part, const Tensor& whole, std::string_view operation) const {
    check_operand(part, operation);
    check_operand(whole, operation);
    check(part.dtype() == whole.dtype() && whole.numel() == part.numel() * size_, operation, "sizes differ");
    const bool in_place = bytes_of(part) == bytes_of(whole) + part.bytes() * static_cast<std::size_t>(rank_);
    check(!idle_ || part.numel() == 0 || in_place, operation, "over one rank it needs one tensor");
    check(in_place || !overlap(part, whole), operation, "the part overlaps other ranks' places");
}

Pending Communicator::start(Stream stream, const CollectiveCall& call) {
    if (idle_) return {};
    return {this, do_start(stream, call)};
}

void Communicator::wait(Stream stream, Pending pending) {
    if (!pending) return;
    require(pending.owner_ == this, "a collective is waited for at another communicator");
    pending.owner_ = nullptr;
    do_wait(stream, pending.operation_);
}

void Communicator::follow(const Pending& earlier) {
    if (earlier && !idle_) do_follow(earlier.operation_);
}

Pending Communicator::start_comparison(CollectiveCall call) {
    call.only_compared = true;
    return start({}, call);
}

Pending Communicator::start_all_reduce(Stream stream, const Tensor& x, Reduction reduction) {
    check_operand(x, "all_reduce");
    check_reduces(x.dtype(), "all_reduce");
    return start(stream, {.kind = CollectiveKind::all_reduce,
                          .reduction = reduction,
                          .dtype = x.dtype(),
                          .count = x.numel(),
                          .from = bytes_of(x),
                          .to = bytes_of(x)});
}

Pending Communicator::start_all_gather(Stream stream, const Tensor& part, const Tensor& whole) {
    check_part(part, whole, "all_gather");
    return start(stream, {.kind = CollectiveKind::all_gather,
                          .dtype = whole.dtype(),
                          .count = whole.numel(),
                          .from = bytes_of(part),
                          .to = bytes_of(whole)});
}

Pending Communicator::start_reduce_scatter(Stream stream, const Tensor& whole, const Tensor& part) {
    check_part(part, whole, "reduce_scatter");
    check_reduces(whole.dtype(), "reduce_scatter");
    return start(stream, {.kind = CollectiveKind::reduce_scatter,
                          .dtype = whole.dtype(),
                          .count = whole.numel(),
                          .from = bytes_of(whole),
                          .to = bytes_of(part)});
}

Pending Communicator::start_broadcast(Stream stream, const Tensor& x, int root) {
    check_operand(x, "broadcast");
    require(root >= 0 && root < size_, "broadcast from a rank outside the axis");
    return start(stream, {.kind = CollectiveKind::broadcast,
                          .dtype = x.dtype(),
                          .count = x.numel(),
                          .peer = root,
                          .from = bytes_of(x),
                          .to = bytes_of(x)});
}

Pending Communicator::start_all_to_all(Stream stream, const Tensor& from,
                                       std::span<const std::int64_t> rows_to, const Tensor& to,
                                       std::span<const std::int64_t> rows_from) {
    check_operand(from, "all_to_all");
    check_operand(to, "all_to_all");
    require(from.rank() >= 1 && from.rank() == to.rank() && from.dtype() == to.dtype(),
            "all_to_all: tensors of different kinds");
    std::int64_t row = 1;  // elements; not numel / rows, because there may be no rows
    for (int i = 1; i < from.rank(); ++i) {
        require(from.size(i) == to.size(i), "all_to_all: rows of different sizes");
        row *= from.size(i);
    }
    require(rows_to.size() == static_cast<std::size_t>(size_) && rows_from.size() == rows_to.size(),
            "all_to_all needs a number of rows for every rank");
    std::int64_t sent = 0, received = 0;
    for (std::size_t r = 0; r < rows_to.size(); ++r) {
        require(rows_to[r] >= 0 && rows_from[r] >= 0, "all_to_all of a negative number of rows");
        sent += rows_to[r];
        received += rows_from[r];
    }
    require(sent <= from.size(0) && received <= to.size(0), "all_to_all of more rows than the tensors have");
    require(rows_to[static_cast<std::size_t>(rank_)] == rows_from[static_cast<std::size_t>(rank_)],
            "all_to_all: a rank sends itself another number of rows than it gets");
    if (size_ == 1) {
        require(sent == 0 || bytes_of(from) == bytes_of(to), "all_to_all over one rank needs one tensor");
        return {};
    }
    require(!overlap(from, to), "all_to_all cannot work in place");

    counts_.clear();
    for (const std::int64_t rows : rows_to) counts_.push_back(rows * row);
    for (const std::int64_t rows : rows_from) counts_.push_back(rows * row);
    const std::span<const std::int64_t> both(counts_);
    return start(stream, {.kind = CollectiveKind::all_to_all,
                          .dtype = from.dtype(),
                          .count = sent * row,
                          .from = bytes_of(from),
                          .to = bytes_of(to),
                          .counts_to = both.first(rows_to.size()),
                          .counts_from = both.last(rows_from.size())});
}

Pending Communicator::start_send(Stream stream, const Tensor& x, int to) {
    check_operand(x, "send");
    require(to >= 0 && to < size_ && to != rank_, "send to a rank outside the axis, or to oneself");
    return start(stream, {.kind = CollectiveKind::send,
                          .dtype = x.dtype(),
                          .count = x.numel(),
                          .peer = to,
                          .from = bytes_of(x)});
}

Pending Communicator::start_receive(Stream stream, const Tensor& x, int from) {
    check_operand(x, "receive");
    require(from >= 0 && from < size_ && from != rank_,
            "receive from a rank outside the axis, or from oneself");
    return start(stream, {.kind = CollectiveKind::receive,
                          .dtype = x.dtype(),
                          .count = x.numel(),
                          .peer = from,
                          .to = bytes_of(x)});
}

Pending Communicator::start_barrier(Stream stream) {
    return start(stream, {.kind = CollectiveKind::barrier});
}

void Communicator::all_reduce(Stream stream, const Tensor& x, Reduction reduction) {
    wait(stream, start_all_reduce(stream, x, reduction));
}

void Communicator::all_gather(Stream stream, const Tensor& part, const Tensor& whole) {
    wait(stream, start_all_gather(stream, part, whole));
}

void Communicator::reduce_scatter(Stream stream, const Tensor& whole, const Tensor& part) {
    wait(stream, start_reduce_scatter(stream, whole, part));
}

void Communicator::broadcast(Stream stream, const Tensor& x, int root) {
    wait(stream, start_broadcast(stream, x, root));
}

void Communicator::all_to_all(Stream stream, const Tensor& from, std::span<const std::int64_t> rows_to,
                              const Tensor& to, std::span<const std::int64_t> rows_from) {
    wait(stream, start_all_to_all(stream, from, rows_to, to, rows_from));
}

void Communicator::send(Stream stream, const Tensor& x, int to) {
    wait(stream, start_send(stream, x, to));
}

void Communicator::receive(Stream stream, const Tensor& x, int from) {
    wait(stream, start_receive(stream, x, from));
}

void Communicator::barrier(Stream stream) {
    wait(stream, start_barrier(stream));
}

namespace {

class SelfCommunicator final : public Communicator {
  public:
    explicit SelfCommunicator(std::string axis) : Communicator(std::move(axis), 1, 0, Device::cpu, true) {}

  private:
    void* do_start(Stream, const CollectiveCall&) override { bug("a collective over one rank was started"); }
    void do_wait(Stream, void*) override {}
    void do_drop(void*) noexcept override {}
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(std::string axis) {
    return std::make_unique<SelfCommunicator>(std::move(axis));
}

}  // namespace drover
