#pragma once

#include "comm/carrier.h"
#include "comm/collective_checks.h"
#include "comm/nccl/nccl_communicators.h"
#include "core/stopwatch.h"

namespace drover::test {

/// Some collectives over all ranks, one by one and together, are counted and timed, and take no more time
/// than has passed; the calls of a group are one wait. Throws std::runtime_error describing what is wrong.
inline void check_times(const Carrier& at, NcclCommunicators& communicators) {
    const auto axis = at.make("data", all_ranks(at.world));
    std::vector<Buffer<float>> sums;
    for (int i = 0; i < 3; ++i) sums.emplace_back(at, std::vector<float>(1 << 18, 1.f));
    const auto wait_for_gpu = [&] {
        if (at.backend != nullptr) at.backend->synchronize(at.stream());
        axis->check_unbroken();
    };
    axis->barrier(at.stream());
    wait_for_gpu();

    const Stopwatch watch;
    const CommunicationTimes before = communicators.times();
    axis->all_reduce(at.stream(), sums[0], Reduction::sum);
    std::vector<Pending> pending;
    axis->together(at.stream(), [&] {
        for (const Buffer<float>& x : sums)
            pending.push_back(axis->start_all_reduce(at.stream(), x, Reduction::sum));
    });
    for (Pending& sum : pending) sum.wait(at.stream());
    wait_for_gpu();
    const CommunicationTimes after = communicators.times();
    const double seconds = watch.seconds(), busy = after.busy_seconds - before.busy_seconds,
                 waited = after.waited_seconds - before.waited_seconds;
    const bool right = after.collectives - before.collectives == 4 && busy > 0 && busy <= seconds &&
                       waited > 0 && waited <= seconds;
    if (!right)
        throw std::runtime_error(
            fmt::format("4 collectives in {} s: {} were counted, {} s under way, {} s "
                        "waited for",
                        seconds, after.collectives - before.collectives, busy, waited));
}

}  // namespace drover::test
