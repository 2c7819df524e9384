#include "launch/machine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "backend/backend.h"
#include "core/error.h"

namespace drover {
namespace {

/// Returns "0,32" for both processors of a core, or the processor itself if the system does not tell.
std::string core_of(int processor) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", processor));
    std::string siblings;
    return std::getline(file, siblings) ? siblings : std::to_string(processor);
}

}  // namespace

int usable_cores() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    std::set<std::string> cores;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        for (int processor = 0; processor < CPU_SETSIZE; ++processor)
            if (CPU_ISSET(processor, &allowed)) cores.insert(core_of(processor));
    return std::max(1, static_cast<int>(cores.size()));
}

int count_processes(const ProcessCount& wanted) {
    using Kind = ProcessCount::Kind;
    switch (wanted.kind) {
        case Kind::number:
            return wanted.number;
        case Kind::hostfile_slots:
            return 0;
        case Kind::cpu:
            return usable_cores();
        case Kind::gpu:
            if (cuda_device_count() == 0)
                throw Error(
                    "--nproc_per_node is gpu, but the driver shows no GPU to this process.",
                    "nvidia-smi lists GPUs, and CUDA_VISIBLE_DEVICES hides them; cpu gives a process per "
                    "core.");
            return cuda_device_count();
        case Kind::automatic:
            return cuda_device_count() > 0 ? cuda_device_count() : usable_cores();
    }
    bug("a way of counting processes");
}

int threads_per_process(int processes) {
    return std::max(1, usable_cores() / std::max(1, processes));
}

}  // namespace drover
