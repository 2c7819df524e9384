#include "run/machine_place.h"

#include <sched.h>

#include <algorithm>
#include <map>

#include "core/json.h"
#include "core/machine_identity.h"

namespace drover {
namespace {

RankOnMachine this_process() {
    RankOnMachine own{.machine = std::to_string(machine_identity()), .processors = {}};
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        for (int processor = 0; processor < CPU_SETSIZE; ++processor)
            if (CPU_ISSET(processor, &allowed)) own.processors.push_back(processor);
    return own;
}

bool share_a_processor(const std::vector<int>& a, const std::vector<int>& b) {
    return std::any_of(a.begin(), a.end(),
                       [&](int processor) { return std::binary_search(b.begin(), b.end(), processor); });
}

}  // namespace

double MachinePlace::own_share(int threads) const {
    const int busy = std::min(threads, allowed);
    return std::min(1.0, static_cast<double>(allowed) / (static_cast<double>(busy) * sharing));
}

MachinePlace place_on_machine(const std::vector<RankOnMachine>& ranks, int rank) {
    const RankOnMachine& own = ranks[static_cast<std::size_t>(rank)];
    MachinePlace place{.ranks = 0};
    std::map<std::string, int> counts;
    int blocks = 0;
    place.allowed = std::max(1, static_cast<int>(own.processors.size()));
    place.sharing = 0;
    for (std::size_t other = 0; other < ranks.size(); ++other) {
        ++counts[ranks[other].machine];
        if (other == 0 || ranks[other].machine != ranks[other - 1].machine) ++blocks;
        if (ranks[other].machine != own.machine) continue;
        ++place.ranks;
        if (static_cast<int>(other) < rank) ++place.rank;
        if (share_a_processor(own.processors, ranks[other].processors)) ++place.sharing;
    }
    place.machines = static_cast<int>(counts.size());
    place.even = blocks == place.machines &&
                 std::all_of(counts.begin(), counts.end(),
                             [&](const auto& count) { return count.second == place.ranks; });
    place.sharing = std::max(1, place.sharing);
    place.processors = std::max(1, place.allowed / place.sharing);
    return place;
}

MachinePlace find_machine_place(const ProcessGroup& ranks) {
    const RankOnMachine own = this_process();
    std::vector<RankOnMachine> all;
    for (const std::string& text :
         ranks.gather(Json{{"machine", own.machine}, {"processors", own.processors}}.dump())) {
        const Json told = Json::parse(text);
        all.push_back({told.at("machine"), told.at("processors").get<std::vector<int>>()});
    }
    return place_on_machine(all, ranks.rank());
}

}  // namespace drover
