#include "doctor/modules.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "backend/cuda/module_interface.h"
#include "comm/mpi/module_interface.h"
#include "comm/nccl/module_interface.h"
#include "data/readers/arrow_module.h"
#include "doctor/gpu_driver.h"
#include "doctor/sections.h"
#include "hub/curl_module.h"

namespace drover {
namespace {

/// Calls a function of the module, or of a library that it is linked with.
template <class Function, class... Values>
auto call_in(const LoadedModule& module, const char* name, Values... values)
    -> std::optional<decltype(std::declval<Function*>()(values...))> {
    auto* const function = reinterpret_cast<Function*>(dlsym(module.handle, name));
    if (function == nullptr) return std::nullopt;
    return function(values...);
}

std::string mpi_version(const LoadedModule& module) {
    std::array<char, 8192> text{};  // more than any MPI_MAX_LIBRARY_VERSION_STRING
    int length = 0;
    if (!call_in<int(char*, int*)>(module, "MPI_Get_library_version", text.data(), &length)) return {};
    // "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, …"
    std::string version(text.data());
    version = version.substr(0, version.find_first_of(",\n"));
    if (const std::size_t letter = version.find(" v"); letter != std::string::npos)
        version.erase(letter + 1, 1);
    return version;
}

/// "libcurl 7.88.1" of "libcurl/7.88.1 OpenSSL/3.0.17 …".
std::string curl_version(const LoadedModule& module) {
    const auto text = call_in<const char*()>(module, "curl_version");
    if (!text || *text == nullptr) return {};
    std::string version = std::string(*text).substr(0, std::string(*text).find(' '));
    if (const std::size_t slash = version.find('/'); slash != std::string::npos) version[slash] = ' ';
    return version;
}

std::string nccl_version(const LoadedModule& module) {
    int version = 0;
    if (!call_in<int(int*)>(module, "ncclGetVersion", &version)) return {};
    return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string cuda_versions(const LoadedModule& module, Json& facts) {
    const auto built = call_in<CudaModuleFacts()>(module, "drover_cuda_module_facts");
    if (!built) return {};
    facts = {{"architectures", built->architectures},
             {"runtime_version", built->runtime_version},
             {"cudnn_version", built->cudnn_version}};
    const int cudnn = built->cudnn_version;
    return fmt::format("CUDA {} for {}, cuDNN {}.{}.{}", cuda_version_text(built->runtime_version),
                       built->architectures, cudnn / 10000, cudnn / 100 % 100, cudnn % 100);
}

void ask_libraries(ExaminedModule& module, const LoadedModule& loaded) {
    const std::string_view name = module.kind.use.name;
    if (name == "mpi") module.library = mpi_version(loaded);
    if (name == "curl") module.library = curl_version(loaded);
    if (name == "nccl") module.library = nccl_version(loaded);
    if (name == "cuda") module.library = cuda_versions(loaded, module.facts);
}

ExaminedModule examine_module(const ModuleKind& kind, const BuildFacts& build) {
    const char* const given = std::getenv(module_variable(kind.use.name).c_str());
    ExaminedModule module{.kind = kind,
                          .file = find_module(kind.use.name).string(),
                          .named = given != nullptr && *given != '\0'};
    const LoadedModule loaded = load_module(kind.use.name);
    if (loaded.handle == nullptr) {
        module.failure = kind.use.error(loaded.reason).cause();
        module.remedy = missing_library_advice(loaded.reason, build);
    } else if (kind.use.version != 0) {  // the loopback module has no version: mpirun loads it
        try {
            kind.use.address(fmt::format("drover_{}_module_version", kind.use.name).c_str());
            module.loaded = true;
        } catch (const Error& error) {
            module.failure = error.cause();
            module.remedy = "Keep the modules beside the program that they were built with.";
        }
    } else {
        module.loaded = true;
    }
    if (module.loaded) ask_libraries(module, loaded);
    if (module.remedy.empty())
        module.remedy = module.named ? fmt::format("Unset {}, or name the module's file with it.",
                                                   module_variable(kind.use.name))
                                     : std::string(kind.use.remedy);
    return module;
}

/// "libmpi.so.40" of "… (libmpi.so.40: cannot open shared object file: No such file or directory)".
std::string missing_library(std::string_view reason) {
    const std::size_t end = reason.find(": cannot open shared object file");
    if (end == std::string_view::npos) return {};
    const std::size_t before = reason.find_last_of(" (", end);
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    return std::string(reason.substr(begin, end - begin));
}

/// "13-0" of the build's CUDA 13.0, as in the names of packages.
std::string package_version(const BuildFacts& build) {
    std::string version = build.cuda;
    for (char& letter : version)
        if (letter == '.') letter = '-';
    return version;
}

}  // namespace

const std::vector<ModuleKind>& module_kinds() {
    static const std::vector<ModuleKind> kinds{
        {.use = {.name = "cuda",
                 .version = cuda_module_version,
                 .impossible = "No GPU can be used",
                 .remedy = "Build with CUDA and cuDNN, and keep drover_cuda.so beside the program."},
         .needs = "CUDA and cuDNN",
         .purpose = "GPUs"},
        {.use = {.name = "nccl",
                 .version = nccl_module_version,
                 .impossible = "Several GPUs cannot work together",
                 .remedy = "Build with NCCL, and keep drover_nccl.so beside the program."},
         .needs = "NCCL",
         .purpose = "several GPUs"},
        {.use = {.name = "mpi",
                 .version = mpi_module_version,
                 .impossible = "Several processes cannot work together",
                 .remedy = "Keep drover_mpi.so beside the program."},
         .needs = "Open MPI",
         .purpose = "several processes"},
        {.use = {.name = "curl",
                 .version = curl_module_version,
                 .impossible = "Nothing can be fetched from the network or sent there",
                 .remedy = "Keep drover_curl.so beside the program."},
         .needs = "libcurl",
         .purpose = "downloads and uploads"},
        {.use = {.name = "arrow",
                 .version = drover_arrow_version,
                 .impossible = "Parquet and Arrow files cannot be read",
                 .remedy =
                     "Run scripts/fetch_arrow.sh --again where python3, pip and a network are, and build "
                     "again; or convert the data to JSON lines."},
         .needs = "Arrow C++",
         .purpose = "Parquet and Arrow files"},
        {.use = {.name = "loopback",
                 .version = 0,
                 .impossible = "mpirun listens on all networks of this machine, not only on its loopback "
                               "interface",
                 .remedy = "Keep drover_loopback.so beside the program."},
         .needs = {},
         .purpose = "drover launch on one machine"}};
    return kinds;
}

std::vector<ExaminedModule> examine_modules(const BuildFacts& build) {
    std::vector<ExaminedModule> modules;
    for (const ModuleKind& kind : module_kinds()) modules.push_back(examine_module(kind, build));
    return modules;
}

std::string missing_library_advice(std::string_view reason, const BuildFacts& build) {
    if (reason.find("version `GLIBC") != std::string_view::npos)
        return "It was built on a newer system than this one: build it here.";
    const std::string library = missing_library(reason);
    const std::string cuda_version = package_version(build);
    const auto nvidia = [&](std::string_view what, const std::string& package) {
        return fmt::format(
            "Install {} (NVIDIA's apt repository: apt-get install {}), or add the folder that has "
            "{} to LD_LIBRARY_PATH.",
            what, package, library);
    };
    if (library.starts_with("libcudnn"))
        return nvidia("cuDNN", fmt::format("cudnn9-cuda-{}", cuda_version.substr(0, cuda_version.find('-'))));
    if (library.starts_with("libcudart") || library.starts_with("libcublas") ||
        library.starts_with("libnvrtc"))
        return nvidia(fmt::format("the libraries of CUDA {}", build.cuda),
                      fmt::format("cuda-libraries-{}", cuda_version));
    if (library.starts_with("libnccl")) return nvidia("NCCL", "libnccl2");
    if (library.starts_with("libmpi"))
        return fmt::format(
            "Install Open MPI (Debian, Ubuntu: apt-get install openmpi-bin), or load the cluster's "
            "module of it, whose library must be {}.",
            library);
    if (library.starts_with("libcurl")) return "Install libcurl (Debian, Ubuntu: apt-get install libcurl4).";
    if (library.starts_with("libarrow") || library.starts_with("libparquet"))
        return "Install the program with its modules, as `cmake --install` does, or build it here; Arrow's "
               "libraries "
               "belong beside drover_arrow.so.";
    if (!library.empty()) return fmt::format("Install the library {}.", library);
    return {};
}

ReportSection modules_section(const DoctorSettings&, const std::vector<ExaminedModule>& modules,
                              const GpuDriver& driver) {
    ReportSection section{.key = "modules", .title = "Modules"};
    for (const ExaminedModule& module : modules) {
        const std::string_view name = module.kind.use.name;
        section.facts[std::string(name)] = {{"file", module.file},
                                            {"loaded", module.loaded},
                                            {"library", module.library},
                                            {"failure", module.failure}};
        if (module.loaded) {
            section.ok(fmt::format("{} ({}): {}{}{}", name, module.kind.purpose, module.library,
                                   module.library.empty() ? "" : "; ", module.file));
            continue;
        }
        // A build may leave modules out, and a machine without a GPU needs no CUDA libraries. What somebody
        // named, or what is there and does not work, is another matter.
        const bool for_gpus = name == "cuda" || name == "nccl";
        const bool wanted = module.named || (!module.file.empty() && (!for_gpus || !driver.gpus.empty())) ||
                            (name == "cuda" && !driver.gpus.empty()) ||
                            (name == "nccl" && driver.gpus.size() > 1);
        if (wanted)
            section.problem(module.failure, module.remedy);
        else
            section.note(module.failure, module.remedy);
    }
    for (const ExaminedModule& module : modules)
        if (module.kind.use.name == "arrow")
            section.abilities.push_back({"arrow", "read Parquet and Arrow", module.loaded,
                                         module.loaded ? "Arrow C++" : "the module arrow cannot be used"});
    return section;
}

}  // namespace drover
