#pragma once

#include <memory>
#include <string_view>

#include "backend/backend_settings.h"
#include "run/machine_place.h"

namespace drover {

class Backend;
struct DeviceSettings;

/// "cpu", "cuda", or "auto": a GPU if a usable one exists. With auto, a GPU that cannot be used (for example,
/// in a build without CUDA) is reported in one line on stderr, and the CPU is used. `place` numbers the
/// processes of a machine, which take its GPUs in turn.
std::unique_ptr<Backend> make_chosen_backend(
    std::string_view device, int place = 0,
    const BackendSettings& settings = backend_settings_from_environment());

/// The backend for one process of a run. If the number of threads is not given and several processes are on
/// the machine, it takes this process's share of the processors.
std::unique_ptr<Backend> make_process_backend(const DeviceSettings& settings, const MachinePlace& machine);

}  // namespace drover
