#include "comm/communication_thread.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/collectives.h"

namespace drover {
namespace {

using namespace std::chrono_literals;

/// The transport ends a wait when something happens, so these only bound how late a deadline is noticed.
constexpr std::chrono::microseconds busy_wait = 20ms;
constexpr std::chrono::microseconds idle_wait = 1s;

double seconds_since(Operation::Clock::time_point begin) {
    return std::chrono::duration<double>(Operation::Clock::now() - begin).count();
}

}  // namespace

std::string operation_text(const Group& group, const CollectiveCall& call, std::int64_t number) {
    const std::string operands =
        call.kind == CollectiveKind::barrier ? "" : fmt::format(" ({})", call.operands_text());
    if (!call.is_message())
        return fmt::format("{} number {} on axis {}{}", name_of(call.kind), number, group.axis, operands);
    return fmt::format("{} number {} {} rank {} on axis {}{}", name_of(call.kind), number,
                       call.kind == CollectiveKind::send ? "to" : "from", group.global(call.peer), group.axis,
                       operands);
}

CommunicationThread::CommunicationThread(MakeTransport make_transport, const WorldOptions& options)
    : options_(options) {
    thread_ = std::thread([this, make = std::move(make_transport)] { run(make); });
    pthread_setname_np(thread_.native_handle(), "drover-comm");
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return started_; });
    if (start_error_ != nullptr) {
        lock.unlock();
        thread_.join();
        std::rethrow_exception(start_error_);
    }
}

CommunicationThread::~CommunicationThread() {
    try {
        close();
    } catch (const Error&) {
        // Call close() first to learn of errors.
    }
    thread_.join();
}

void CommunicationThread::close() {
    std::unique_lock lock(mutex_);
    require(free_.size() == operations_.size(), "a world was closed before its collectives were waited for");
    closing_ = true;
    transport_->wake();
    changed_.wait(lock, [&] { return closed_ || broken_; });
    if (broken_) throw_broken();
}

Operation* CommunicationThread::start(const Group& group, const CollectiveCall& call, std::int64_t number) {
    Operation* operation = nullptr;
    {
        const std::lock_guard lock(mutex_);
        if (broken_) throw_broken();
        require(!closing_, "a collective was started in a closed world");
        if (free_.empty()) {
            operations_.push_back(std::make_unique<Operation>());
            free_.reserve(operations_.size());
            free_.push_back(operations_.back().get());
        }
        operation = free_.back();
        free_.pop_back();

        operation->group = &group;
        operation->call = call;
        operation->counts.assign(call.counts_to.begin(), call.counts_to.end());
        operation->counts.insert(operation->counts.end(), call.counts_from.begin(), call.counts_from.end());
        operation->call.counts_to = std::span(operation->counts).first(call.counts_to.size());
        operation->call.counts_from = std::span(operation->counts).last(call.counts_from.size());
        operation->number = number;
        operation->state = Operation::State::under_way;
        if (call.is_message())
            new_messages_.push_back(operation);
        else
            queue_.push_back(operation);
    }
    transport_->wake();
    return operation;
}

void CommunicationThread::wait(Operation* operation) {
    std::unique_lock lock(mutex_);
    if (operation->state == Operation::State::under_way) {
        const auto begin = Operation::Clock::now();
        changed_.wait(lock, [&] { return operation->state != Operation::State::under_way; });
        times_.waited_seconds += seconds_since(begin);
    }
    recycle(operation);
    if (operation->state == Operation::State::broken) throw_broken();
}

void CommunicationThread::drop(Operation* operation) noexcept {
    std::unique_lock lock(mutex_);
    if (operation->state == Operation::State::under_way && std::uncaught_exceptions() > 0 &&
        !failure_request_) {
        failure_request_ = {
            fmt::format("it left {} unfinished because of its own error.", operation->text())};
        transport_->wake();
    }
    changed_.wait(lock, [&] { return operation->state != Operation::State::under_way; });
    recycle(operation);
}

void CommunicationThread::fail(std::string_view reason) noexcept {
    std::unique_lock lock(mutex_);
    if (broken_ || closed_) return;
    if (!failure_request_) failure_request_ = {std::string(reason)};
    transport_->wake();
    changed_.wait(lock, [&] { return broken_ || closed_; });
}

void CommunicationThread::check() {
    const std::lock_guard lock(mutex_);
    if (broken_) throw_broken();
}

CommunicationTimes CommunicationThread::times() {
    const std::lock_guard lock(mutex_);
    return times_;
}

void CommunicationThread::observe(CollectiveObserver* observer) {
    const std::lock_guard lock(observer_mutex_);
    observer_ = observer;
}

void CommunicationThread::on_note(NoteHandler hear) {
    const std::lock_guard lock(note_mutex_);
    hear_note_ = std::move(hear);
}

void CommunicationThread::send_note(int to, const Note& note) {
    {
        const std::lock_guard lock(mutex_);
        if (broken_ || closing_) return;
        new_notes_.emplace_back(to, note);
    }
    transport_->wake();
}

void CommunicationThread::throw_broken() const {
    if (broken_->failed_peer >= 0) throw PeerFailure(broken_->failed_peer, broken_->cause);
    throw Error(broken_->cause, broken_->remedy);
}

void CommunicationThread::run(const MakeTransport& make_transport) {
    try {
        transport_ = make_transport();
        rank_ = transport_->rank();
        size_ = transport_->size();
        exchange_ = std::make_unique<Exchange>(
            *transport_, std::max(options_.scratch_bytes, least_scratch_bytes(size_)), [this] {
                check_deadline(*current_);
                attend();
            });
    } catch (...) {
        start_error_ = std::current_exception();
    }
    {
        const std::lock_guard lock(mutex_);
        started_ = true;
    }
    changed_.notify_all();
    if (start_error_ != nullptr) return;

    try {
        serve();
        transport_->close();
        check_peers();
        {
            const std::lock_guard lock(mutex_);
            closed_ = true;
        }
        changed_.notify_all();
    } catch (const PeerFailure& failure) {
        break_down({failure.cause(), {}, failure.rank()}, {});
    } catch (const FailureRequest& request) {
        break_down({fmt::format("This rank failed before: {}", request.reason), {}}, request.reason);
    } catch (const Error& error) {
        break_down({error.cause(), error.remedy()}, error.what());
    } catch (const std::exception& error) {
        break_down({fmt::format("Communication failed: {}.", error.what()), {}}, error.what());
    }
}

void CommunicationThread::serve() {
    while ((current_ = next_collective()) != nullptr) {
        perform(*current_);
        finish(*std::exchange(current_, nullptr));
    }
}

Operation* CommunicationThread::next_collective() {
    for (;;) {
        {
            const std::lock_guard lock(mutex_);
            if (!queue_.empty()) {
                Operation* next = queue_.front();
                queue_.pop_front();
                return next;
            }
            if (closing_) return nullptr;
        }
        attend();
    }
}

void CommunicationThread::perform(Operation& operation) {
    operation.began = Operation::Clock::now();
    exchange_->begin(*operation.group);
    if (options_.comm_debug)
        call_check_.check(*exchange_, *operation.group, operation.call, operation.number);
    if (!operation.call.only_compared) perform_collective(*exchange_, operation.call);
}

/// Everything but the current collective: requests of the other thread, failures of other ranks, messages.
/// Then waits.
void CommunicationThread::attend() {
    {
        const std::lock_guard lock(mutex_);
        if (failure_request_) throw *failure_request_;
        for (Operation* message : new_messages_) {
            message->began = Operation::Clock::now();
            message->request.reset();
            message->header_exchanged = !options_.comm_debug;
            message->bytes_in_flight = 0;
            message->bytes_moved = 0;
            messages_.push_back(message);
        }
        new_messages_.clear();
    }
    check_peers();
    move_notes();
    advance_messages();
    transport_->poll(current_ == nullptr && messages_.empty() ? idle_wait : busy_wait);
}

void CommunicationThread::check_peers() const {
    const auto& failed = transport_->failed_rank();
    if (!failed) return;
    const std::string where = current_ != nullptr ? " while this rank was in " + current_->text() : "";
    throw PeerFailure(failed->rank, fmt::format("Rank {} failed{}: {}", failed->rank, where, failed->reason));
}

void CommunicationThread::move_notes() {
    std::vector<std::pair<int, Note>> notes;
    {
        const std::lock_guard lock(mutex_);
        notes.swap(new_notes_);
    }
    for (const auto& [to, note] : notes) transport_->send_note(to, note);
    const std::lock_guard lock(note_mutex_);
    for (const ReceivedNote& received : transport_->take_notes())
        if (hear_note_) hear_note_(received.from, received.note);
}

void CommunicationThread::advance_messages() {
    for (std::size_t i = 0; i < messages_.size();) {
        Operation& message = *messages_[i];
        if (waits_for_earlier(message)) {
            ++i;
        } else if (!advance(message)) {
            check_deadline(message);
            ++i;
        } else {
            // Removed first: once it is finished, the other thread may reuse it.
            messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(i));
            finish(message);
        }
    }
}

/// Messages of one axis to, or from, the same rank move one after the other.
bool CommunicationThread::waits_for_earlier(const Operation& message) const {
    for (const Operation* earlier : messages_) {
        if (earlier == &message) return false;
        if (earlier->group == message.group && earlier->call.kind == message.call.kind &&
            earlier->call.peer == message.call.peer)
            return true;
    }
    return false;
}

/// Advances a message; true when it is done.
bool CommunicationThread::advance(Operation& message) {
    const Group& group = *message.group;
    const CollectiveCall& call = message.call;
    const bool sends = call.kind == CollectiveKind::send;
    for (;;) {
        if (message.request) {
            const auto bytes = transport_->finished(*message.request);
            if (!bytes) return false;
            message.request.reset();
            if (*bytes != message.bytes_in_flight)
                throw_size_mismatch(group, call.peer, *bytes, message.bytes_in_flight);
            if (message.header_exchanged) {
                message.bytes_moved += message.bytes_in_flight;
            } else {
                message.header_exchanged = true;
                if (!sends)
                    check_headers(group, header_of(group, call, message.number, call.peer), message.header,
                                  call.peer);
            }
        }
        const std::byte* from = sends ? call.from + message.bytes_moved : nullptr;
        std::byte* to = sends ? nullptr : call.to + message.bytes_moved;
        message.bytes_in_flight =
            call.only_compared ? 0 : std::min(call.bytes() - message.bytes_moved, largest_message_bytes);
        if (!message.header_exchanged) {
            if (sends) message.header = header_of(group, call, message.number, call.peer);
            from = to = reinterpret_cast<std::byte*>(&message.header);
            message.bytes_in_flight = sizeof(CallHeader);
        }
        if (message.bytes_in_flight == 0) return true;
        const int peer = group.global(call.peer);
        message.request = sends ? transport_->send(peer, group.messages, from, message.bytes_in_flight)
                                : transport_->receive(peer, group.messages, to, message.bytes_in_flight);
    }
}

void CommunicationThread::check_deadline(const Operation& operation) {
    const auto waited = Operation::Clock::now() - operation.began;
    if (waited < options_.deadline) return;
    throw Error(
        fmt::format("Rank {} waited {:.1f} s in {}; {}.", rank_,
                    std::chrono::duration<double>(waited).count(), operation.text(), missing(operation)),
        "Look for the reason in the output of these ranks; if they are only slow, allow a longer wait.");
}

std::string CommunicationThread::missing(const Operation& operation) const {
    if (!operation.call.is_message()) return exchange_->missing();
    const int peer = operation.group->global(operation.call.peer);
    return operation.call.kind == CollectiveKind::send ? fmt::format("rank {} received nothing", peer)
                                                       : fmt::format("received nothing from rank {}", peer);
}

void CommunicationThread::tell_observer(const Operation& operation) {
    const std::lock_guard lock(observer_mutex_);
    CollectiveObserver* const observer = observer_;
    if (observer == nullptr || operation.call.only_compared) return;
    const Group& group = *operation.group;
    observer->done({.axis = group.axis,
                    .kind = operation.call.kind,
                    .sent_bytes = sent_bytes(operation.call, group.size(), group.rank),
                    .ranks = group.size(),
                    .peer = operation.call.is_message() ? operation.call.peer : -1,
                    .begin = operation.began,
                    .end = Operation::Clock::now()});
}

void CommunicationThread::finish(Operation& operation) {
    if (observer_ != nullptr) tell_observer(operation);
    {
        const std::lock_guard lock(mutex_);
        operation.state = Operation::State::done;
        if (!operation.call.is_message()) {
            ++times_.collectives;
            times_.busy_seconds += seconds_since(operation.began);
        }
    }
    changed_.notify_all();
}

/// Callers may reuse the operands as soon as they learn of the failure, so the transport must release them
/// first.
void CommunicationThread::break_down(Broken broken, std::string_view reason_to_tell) {
    if (!reason_to_tell.empty()) transport_->tell_failure(reason_to_tell);
    transport_->break_off();
    {
        const std::lock_guard lock(mutex_);
        broken_ = std::move(broken);
        for (const auto& operation : operations_)
            if (operation->state == Operation::State::under_way) operation->state = Operation::State::broken;
    }
    changed_.notify_all();
}

}  // namespace drover
