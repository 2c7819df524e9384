#include "backend/backend.h"
#include "comm/nccl/module_interface.h"
#include "comm/nccl/nccl_communicators.h"
#include "core/program_module.h"

namespace drover {

std::unique_ptr<GpuLinks> load_nccl(Backend& backend) {
    require(backend.device() == Device::cuda, "NCCL for a backend without a GPU");
    const ModuleUse nccl{
        .name = "nccl",
        .version = nccl_module_version,
        .impossible = "Several GPUs cannot work together",
        .remedy =
            "Install NCCL (libnccl2), or use a build with NCCL and keep drover_nccl.so beside the "
            "program."};
    const auto make = nccl.function<decltype(drover_make_nccl_links)>("drover_make_nccl_links");
    return std::unique_ptr<GpuLinks>(make(backend.main_stream().handle));
}

}  // namespace drover
