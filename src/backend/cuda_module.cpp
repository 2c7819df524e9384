#include <dlfcn.h>

#include "backend/backend.h"
#include "backend/cuda/module_interface.h"
#include "core/program_module.h"

namespace drover {

namespace {

/// The library that comes with the driver; nullptr where there is none.
void* driver_library() {
    static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library;
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(int ordinal, const BackendSettings& settings) {
    ModuleUse cuda{.name = "cuda",
                   .version = cuda_module_version,
                   .impossible = "The GPU cannot be used",
                   .remedy =
                       "Use a build with CUDA and keep drover_cuda.so beside the program, or train on "
                       "the CPU (--device cpu)."};
    if (driver_library() == nullptr) {
        cuda.remedy = "Install NVIDIA's driver, or train on the CPU (--device cpu).";
        throw cuda.error("NVIDIA's driver is not installed (there is no libcuda.so.1)");
    }
    if (cuda_device_count() == 0) {
        cuda.remedy = "Mend what hides it, or train on the CPU (--device cpu).";
        throw cuda.error(
            "the driver shows no GPU to this process (nvidia-smi lists them, CUDA_VISIBLE_DEVICES hides "
            "them)");
    }
    const auto make = cuda.function<decltype(drover_make_cuda_backend)>("drover_make_cuda_backend");
    return std::unique_ptr<Backend>(make(ordinal, settings));
}

int cuda_device_count() {
    // Queried once.
    static const int count = [] {
        void* const driver = driver_library();
        if (driver == nullptr) return 0;
        const auto initialize = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
        const auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
        int devices = 0;
        if (initialize == nullptr || get_count == nullptr || initialize(0) != 0 || get_count(&devices) != 0)
            return 0;
        return devices;
    }();
    return count;
}

}  // namespace drover
