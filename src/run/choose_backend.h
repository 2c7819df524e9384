#pragma once

#include <memory>
#include <string_view>

#include "backend/backend.h"
#include "run/machine_place.h"
#include "run/settings/run_settings.h"

namespace drover {

/// "cpu", "cuda", or "auto": a GPU when there is one that can be used. With auto, a GPU that cannot be used
/// (a build without CUDA, say) is told of in one line on stderr, and the CPU is taken. `place` numbers the
/// processes of a machine, which take its GPUs in turn.
std::unique_ptr<Backend> make_chosen_backend(
    std::string_view device, int place = 0,
    const BackendSettings& settings = backend_settings_from_environment());

/// The backend of a process of a run. Where no number of threads is asked for and several processes are on
/// the machine, it takes this one's part of the processors.
std::unique_ptr<Backend> make_process_backend(const DeviceSettings& settings, const MachinePlace& machine);

}  // namespace drover
