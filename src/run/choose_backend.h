#pragma once

#include <memory>
#include <string_view>

#include "args/arguments.h"
#include "backend/backend.h"
#include "run/machine_place.h"

namespace drover {

/// "cpu", "cuda", or "auto": a GPU when there is one that can be used. With auto, a GPU that cannot be used
/// (a build without CUDA, say) is told of in one line on stderr, and the CPU is taken. `place` numbers the
/// processes of a machine, which take its GPUs in turn.
std::unique_ptr<Backend> make_chosen_backend(
    std::string_view device, int place = 0,
    const BackendSettings& settings = backend_settings_from_environment());

/// The backend of a process of a run: --device, --threads (else, where several processes are on the machine,
/// this one's part of the processors) and --tf32.
std::unique_ptr<Backend> make_process_backend(const Arguments& arguments, const MachinePlace& machine);

}  // namespace drover
