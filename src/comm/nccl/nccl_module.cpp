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
    const ModuleFunction found =
        load_module_function(nccl_module_name, "DROVER_NCCL_MODULE",
                             {"drover_nccl_module_version", nccl_module_version}, "drover_make_nccl_links");
    if (found.address == nullptr) fail(found.reason);
    const auto make = reinterpret_cast<decltype(&drover_make_nccl_links)>(found.address);
    return std::unique_ptr<GpuLinks>(make(backend.main_stream().handle));
}

}  // namespace drover
