#include "train/profile/rank_clock.h"

#include <chrono>
#include <limits>

namespace drover {

double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_ahead_of_first(Communicator& everyone) {
    constexpr int rounds = 8;
    double time = 0, ahead = 0;
    const Tensor message = Tensor::of(&time, {1}), answer = Tensor::of(&ahead, {1});
    for (int rank = 1; rank < everyone.size(); ++rank) {
        if (everyone.rank() == 0) {
            // The shorter the way there and back, the less its middle can be off.
            double shortest = std::numeric_limits<double>::infinity();
            for (int round = 0; round < rounds; ++round) {
                const double left = steady_seconds();
                everyone.send({}, message, rank);
                everyone.receive({}, message, rank);
                const double arrived = steady_seconds();
                if (arrived - left >= shortest) continue;
                shortest = arrived - left;
                ahead = time - (left + arrived) / 2;
            }
            everyone.send({}, answer, rank);
        } else if (everyone.rank() == rank) {
            for (int round = 0; round < rounds; ++round) {
                everyone.receive({}, message, 0);
                time = steady_seconds();
                everyone.send({}, message, 0);
            }
            everyone.receive({}, answer, 0);
        }
    }
    return everyone.rank() == 0 ? 0 : ahead;
}

}  // namespace drover
