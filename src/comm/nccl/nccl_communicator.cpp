#include "comm/nccl/nccl_communicator.h"

#include <fmt/format.h>

#include <exception>

namespace drover {
namespace {

LinkOperation& operation_of(void* operation) {
    return *static_cast<LinkOperation*>(operation);
}

}  // namespace

NcclCommunicator::NcclCommunicator(LinkWatch& watch, WatchedLink& link, Group group, Hosts hosts)
    : Communicator(group.axis, group.size(), group.rank, watch.gpu().device()),
      watch_(watch),
      link_(link),
      group_(std::move(group)),
      hosts_(std::move(hosts)) {}

void* NcclCommunicator::do_start(Stream stream, const CollectiveCall& call) {
    watch_.check();
    if (call.is_message()) return lane(call.peer, call.kind).start(stream, call);

    ++collectives_;
    if (watch_.world().options().comm_debug) hosts_.control->wait({}, hosts_.control->start_comparison(call));
    if (grouping_) {
        if (open_ == nullptr)
            open_ = watch_.take(group_, collectives_);
        else
            watch_.hold(*open_);
        open_->add(call);
        return open_;
    }
    LinkOperation* operation = watch_.take(group_, collectives_);
    operation->add(call);
    try {
        enqueue(stream, *operation);
    } catch (...) {
        watch_.release(*operation);
        throw;
    }
    return operation;
}

void NcclCommunicator::enqueue(Stream stream, LinkOperation& operation) {
    try {
        watch_.gpu().record(stream, operation.ready);
    } catch (...) {
        watch_.cancel(operation);
        throw;
    }
    watch_.enqueue(link_, operation);
}

MessageLane& NcclCommunicator::lane(int peer, CollectiveKind kind) {
    auto& made = lanes_[{peer, kind}];
    if (made == nullptr)
        made = std::make_unique<MessageLane>(watch_, group_, *hosts_.control, *hosts_.connection,
                                             *hosts_.answers, peer, kind);
    return *made;
}

void NcclCommunicator::do_wait(Stream stream, void* operation) {
    LinkOperation& waited = operation_of(operation);
    require(&waited != open_, "a collective is waited for before its group has ended");
    try {
        watch_.check();
        watch_.wait_enqueued(waited);
        watch_.hold_stream(stream, waited);
    } catch (...) {
        watch_.release(waited);
        throw;
    }
    watch_.release(waited);
}

void NcclCommunicator::do_drop(void* operation) noexcept {
    LinkOperation& dropped = operation_of(operation);
    if (&dropped != open_) {
        if (std::uncaught_exceptions() > 0 && !watch_.has_passed(dropped))
            watch_.fail(fmt::format("it left {} unfinished because of its own error.", dropped.text()));
        watch_.wait_passed(dropped);
    }
    watch_.release(dropped);
}

void NcclCommunicator::do_follow(void* operation) {
    watch_.follow(link_, operation_of(operation));
}

void NcclCommunicator::begin_group() {
    require(!grouping_, "a group of collectives within another");
    grouping_ = true;
}

void NcclCommunicator::end_group(Stream stream) {
    grouping_ = false;
    LinkOperation* group = std::exchange(open_, nullptr);
    if (group != nullptr) enqueue(stream, *group);
}

void NcclCommunicator::cancel_group() noexcept {
    grouping_ = false;
    LinkOperation* group = std::exchange(open_, nullptr);
    if (group != nullptr) watch_.cancel(*group);
}

}  // namespace drover
