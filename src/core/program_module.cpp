#include "core/program_module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace drover {
namespace {

/// The folder of the file that holds this code; empty when nobody knows.
std::filesystem::path own_folder() {
    Dl_info place{};
    if (dladdr(reinterpret_cast<void*>(&own_folder), &place) == 0 || place.dli_fname == nullptr) return {};
    std::error_code unknown;
    return std::filesystem::canonical(place.dli_fname, unknown).parent_path();
}

std::vector<std::filesystem::path> module_places(std::string_view file_name,
                                                 const char* environment_variable) {
    if (const char* given = std::getenv(environment_variable); given != nullptr && *given != '\0')
        return {given};
    std::vector<std::filesystem::path> places;
    std::error_code unknown;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", unknown);
    for (const std::filesystem::path& folder : {unknown ? std::filesystem::path() : program.parent_path(),
                                                own_folder(), std::filesystem::path(DROVER_MODULE_FOLDER)})
        if (const auto place = folder / file_name;
            !folder.empty() && std::find(places.begin(), places.end(), place) == places.end())
            places.push_back(place);
    return places;
}

}  // namespace

ProgramModule load_program_module(std::string_view file_name, const char* environment_variable) {
    std::vector<std::string> looked_at;
    for (const auto& place : module_places(file_name, environment_variable)) {
        looked_at.push_back(place.string());
        std::error_code ignored;
        if (!std::filesystem::exists(place, ignored)) continue;
        void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) return {.reason = fmt::format("its module cannot be loaded ({})", dlerror())};
        return {.handle = handle, .place = place.string()};
    }
    return {.reason = fmt::format("the module {} is not there (looked for: {})", file_name,
                                  fmt::join(looked_at, ", "))};
}

ModuleFunction load_module_function(std::string_view file_name, const char* environment_variable,
                                    const ModuleVersion& version, const char* name) {
    const ProgramModule module = load_program_module(file_name, environment_variable);
    if (module.handle == nullptr) return {.reason = module.reason};
    const auto number = reinterpret_cast<int (*)()>(dlsym(module.handle, version.function));
    void* const address = dlsym(module.handle, name);
    if (number == nullptr || address == nullptr || number() != version.expected)
        return {.reason = fmt::format("{} belongs to another version of the program", module.place)};
    return {.address = address};
}

}  // namespace drover
