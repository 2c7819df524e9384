#include <dlfcn.h>
#include <fmt/format.h>

#include "comm/nccl/module_interface.h"
#include "comm/nccl/nccl_communicators.h"
#include "core/program_module.h"

namespace drover {

std::unique_ptr<GpuLinks> load_nccl(Backend& backend) {
    require(backend.device() == Device::cuda, "NCCL for a backend without a GPU");
    const auto fail = [](std::string_view why) {
        throw Error(fmt::format("Several GPUs cannot work together: {}.", why),
                    "Install NCCL (libnccl2), or use a build with NCCL and keep drover_nccl.so beside the "
                    "program.");
    };
    const ProgramModule module = load_program_module(nccl_module_name, "DROVER_NCCL_MODULE");
    if (module.handle == nullptr) fail(module.reason);
    const auto version = reinterpret_cast<decltype(&drover_nccl_module_version)>(
        dlsym(module.handle, "drover_nccl_module_version"));
    const auto make =
        reinterpret_cast<decltype(&drover_make_nccl_links)>(dlsym(module.handle, "drover_make_nccl_links"));
    if (version == nullptr || make == nullptr || version() != nccl_module_version)
        fail(fmt::format("{} belongs to another version of the program", module.place));
    return std::unique_ptr<GpuLinks>(make(backend.main_stream().handle));
}

}  // namespace drover
