#include "comm/threads/thread_world.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/threads/mailbox_transport.h"

namespace drover {

ThreadWorld::ThreadWorld(int size, const WorldOptions& options)
    : mailboxes_(std::make_shared<Mailboxes>(size)), options_(options) {}

std::unique_ptr<World> ThreadWorld::join(int rank) {
    return std::make_unique<World>(
        [mailboxes = mailboxes_, rank] { return make_mailbox_transport(mailboxes, rank); }, options_);
}

void run_as_threads(int size, const WorldOptions& options, const std::function<void(World&)>& work) {
    ThreadWorld shared(size, options);
    std::mutex mutex;
    std::exception_ptr first_failure, first_consequence;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            std::exception_ptr* place = nullptr;
            std::exception_ptr thrown;
            try {
                const std::unique_ptr<World> world = shared.join(rank);
                run_rank(*world, work);
            } catch (const PeerFailure&) {
                place = &first_consequence;
                thrown = std::current_exception();
            } catch (...) {
                place = &first_failure;
                thrown = std::current_exception();
            }
            const std::lock_guard lock(mutex);
            if (place != nullptr && *place == nullptr) *place = thrown;
        });
    }
    for (std::thread& thread : threads) thread.join();
    if (first_failure != nullptr) std::rethrow_exception(first_failure);
    if (first_consequence != nullptr) std::rethrow_exception(first_consequence);
}

}  // namespace drover
