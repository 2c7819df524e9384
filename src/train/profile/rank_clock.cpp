#include "train/profile/rank_clock.h"

#include <array>
#include <chrono>
#include <limits>

namespace drover {

double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ClockOffset compare_with_first(Communicator& everyone, const std::function<double()>& clock) {
    constexpr int rounds = 8;
    double time = 0;
    std::array<double, 2> offset{};  // as in ClockOffset
    const Tensor message = Tensor::of(&time, {1}), answer = Tensor::of(offset.data(), {2});
    for (int rank = 1; rank < everyone.size(); ++rank) {
        if (everyone.rank() == 0) {
            // The shorter the way there and back, the less its middle can be off.
            double shortest = std::numeric_limits<double>::infinity();
            for (int round = 0; round < rounds; ++round) {
                const double left = clock();
                everyone.send({}, message, rank);
                everyone.receive({}, message, rank);
                const double arrived = clock();
                if (arrived - left >= shortest) continue;
                shortest = arrived - left;
                offset = {time - (left + arrived) / 2, shortest / 2};
            }
            everyone.send({}, answer, rank);
        } else if (everyone.rank() == rank) {
            for (int round = 0; round < rounds; ++round) {
                everyone.receive({}, message, 0);
                time = clock();
                everyone.send({}, message, 0);
            }
            everyone.receive({}, answer, 0);
        }
    }
    if (everyone.rank() == 0) return {};
    return {.ahead = offset[0], .error = offset[1]};
}

}  // namespace drover
