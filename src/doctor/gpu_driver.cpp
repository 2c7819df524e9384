#include "doctor/gpu_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "doctor/system_files.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// A library that stays open. What is not in it is a null pointer.
class OpenedLibrary {
  public:
    explicit OpenedLibrary(const char* name) : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
        if (handle_ == nullptr) reason_ = dlerror();
    }
    bool is_open() const { return handle_ != nullptr; }
    const std::string& reason() const { return reason_; }

    template <class Function>
    Function* find(const char* name) const {
        return reinterpret_cast<Function*>(handle_ == nullptr ? nullptr : dlsym(handle_, name));
    }
    /// Calls a function that returns a status; −1 when the library does not have it.
    template <class... Parameters>
    int call(const char* name, Parameters... values) const {
        auto* const function = find<int(Parameters...)>(name);
        return function == nullptr ? -1 : function(values...);
    }

  private:
    void* handle_;
    std::string reason_;
};

/// NVIDIA's display and compute controllers that the kernel found.
std::size_t gpus_on_bus(const fs::path& root) {
    std::size_t count = 0;
    std::error_code failure;
    for (fs::directory_iterator it(root / "sys/bus/pci/devices", failure), end; !failure && it != end;
         it.increment(failure))
        if (system_text(it->path() / "vendor").starts_with("0x10de") &&
            system_text(it->path() / "class").starts_with("0x03"))
            ++count;
    return count;
}

/// "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected".
std::string words_of(const OpenedLibrary& cuda, int status) {
    const char *name = nullptr, *text = nullptr;
    cuda.call("cuGetErrorName", status, &name);
    cuda.call("cuGetErrorString", status, &text);
    if (name == nullptr) return fmt::format("error {}", status);
    return text == nullptr ? name : fmt::format("{}: {}", name, text);
}

/// What NVML knows without a CUDA context, of which each would take hundreds of MiB and some time.
class ManagementLibrary {
  public:
    ManagementLibrary() : library_("libnvidia-ml.so.1"), started_(library_.call("nvmlInit_v2") == 0) {}
    ~ManagementLibrary() {
        if (started_) library_.call("nvmlShutdown");
    }
    ManagementLibrary(const ManagementLibrary&) = delete;
    ManagementLibrary& operator=(const ManagementLibrary&) = delete;

    std::string driver_version() const {
        std::array<char, 80> text{};
        if (!started_) return {};
        library_.call("nvmlSystemGetDriverVersion", text.data(), static_cast<unsigned>(text.size() - 1));
        return text.data();
    }
    std::optional<std::size_t> free_bytes(const std::string& bus_id) const {
        struct Memory {
            unsigned long long total, free, used;
        } memory{};
        void* device = nullptr;
        if (!started_ || library_.call("nvmlDeviceGetHandleByPciBusId_v2", bus_id.c_str(), &device) != 0 ||
            library_.call("nvmlDeviceGetMemoryInfo", device, &memory) != 0)
            return std::nullopt;
        return static_cast<std::size_t>(memory.free);
    }

  private:
    OpenedLibrary library_;
    bool started_;
};

GpuFacts facts_of(const OpenedLibrary& cuda, int device, const ManagementLibrary& management) {
    constexpr int capability_major = 75, capability_minor = 76, compute_mode = 20;
    constexpr int prohibited_mode = 2;
    std::array<char, 256> name{}, bus_id{};
    GpuFacts gpu;
    int mode = 0;
    cuda.call("cuDeviceGetName", name.data(), static_cast<int>(name.size() - 1), device);
    cuda.call("cuDeviceGetAttribute", &gpu.major, capability_major, device);
    cuda.call("cuDeviceGetAttribute", &gpu.minor, capability_minor, device);
    cuda.call("cuDeviceGetAttribute", &mode, compute_mode, device);
    cuda.call("cuDeviceTotalMem_v2", &gpu.bytes, device);
    cuda.call("cuDeviceGetPCIBusId", bus_id.data(), static_cast<int>(bus_id.size() - 1), device);
    gpu.name = name.data();
    gpu.bus_id = bus_id.data();
    gpu.prohibited = mode == prohibited_mode;
    gpu.free_bytes = management.free_bytes(gpu.bus_id);
    return gpu;
}

/// Of "90a", "80-real" or "75-virtual".
GpuCode code_of_architecture(std::string_view architecture, int major, int minor) {
    const std::string word(architecture);
    char* end = nullptr;
    const long number = std::strtol(word.c_str(), &end, 10);
    if (end == word.c_str()) return GpuCode::unknown;
    std::string_view kind(end);
    const long own_major = number / 10, own_minor = number % 10;
    const bool same_major = own_major == major && own_minor <= minor;
    // Code for one kind of GPU alone, or for those of one major version.
    if (kind.starts_with('a')) return same_major && own_minor == minor ? GpuCode::machine : GpuCode::none;
    if (kind.starts_with('f')) return same_major ? GpuCode::machine : GpuCode::none;
    if (kind != "-virtual" && same_major) return GpuCode::machine;
    return kind != "-real" && number <= major * 10 + minor ? GpuCode::ptx : GpuCode::none;
}

}  // namespace

std::string cuda_version_text(int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

GpuCode code_for(std::string_view architectures, int major, int minor) {
    GpuCode best = GpuCode::none;
    while (!architectures.empty()) {
        const std::size_t end = std::min(architectures.find(','), architectures.size());
        best = std::max(best, code_of_architecture(architectures.substr(0, end), major, minor));
        architectures.remove_prefix(std::min(end + 1, architectures.size()));
    }
    return best;
}

GpuDriver ask_gpu_driver(const fs::path& root) {
    GpuDriver driver{.gpus_on_bus = gpus_on_bus(root)};
    const OpenedLibrary cuda("libcuda.so.1");
    if (!cuda.is_open()) {
        driver.failure = cuda.reason();
        return driver;
    }
    driver.installed = true;
    const int status = cuda.call("cuInit", 0u);
    cuda.call("cuDriverGetVersion", &driver.cuda_version);
    int count = 0;
    if (status != 0)
        driver.failure = words_of(cuda, status);
    else if (const int counted = cuda.call("cuDeviceGetCount", &count); counted != 0)
        driver.failure = words_of(cuda, counted);
    else if (count == 0)
        driver.failure = "it has no GPU";
    const ManagementLibrary management;
    driver.version = management.driver_version();
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        int device = 0;
        if (cuda.call("cuDeviceGet", &device, ordinal) == 0)
            driver.gpus.push_back(facts_of(cuda, device, management));
    }
    return driver;
}

}  // namespace drover
