#include "core/program_module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "core/path_inside.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// The folder of the program; empty when it is unknown.
fs::path program_folder() {
    std::error_code unknown;
    return fs::read_symlink("/proc/self/exe", unknown).parent_path();
}

/// The folder of the shared library that holds this code; empty when that is not a library, or unknown.
fs::path library_folder() {
    Dl_info place{};
    if (dladdr(reinterpret_cast<void*>(&library_folder), &place) == 0 || place.dli_fname == nullptr)
        return {};
    std::error_code unknown;
    const fs::path name = place.dli_fname;
    if (!name.has_parent_path()) return {};  // the program, as the shell found it
    const fs::path file = fs::canonical(name, unknown);
    return file == fs::read_symlink("/proc/self/exe", unknown) ? fs::path() : file.parent_path();
}

/// Where modules may be. The build folder counts only for what lies in it: an installed program must not
/// take up a module of another build.
std::vector<fs::path> module_folders() {
    std::vector<fs::path> folders;
    std::error_code absent;
    const fs::path build = fs::canonical(DROVER_BUILD_FOLDER, absent);
    const auto add = [&](const fs::path& own, std::string_view installed) {
        if (own.empty()) return;
        folders.push_back(own);
        folders.push_back((own / installed).lexically_normal());
        if (!build.empty() && lies_inside(own, build)) folders.push_back(build);
    };
    add(program_folder(), DROVER_MODULES_FROM_PROGRAM);
    add(library_folder(), "drover");
    return folders;
}

std::vector<fs::path> module_places(std::string_view file_name, const char* environment_variable) {
    if (const char* given = std::getenv(environment_variable); given != nullptr && *given != '\0')
        return {given};
    std::vector<fs::path> places;
    for (const fs::path& folder : module_folders())
        if (const fs::path place = folder / file_name;
            std::find(places.begin(), places.end(), place) == places.end())
            places.push_back(place);
    return places;
}

}  // namespace

ProgramModule load_program_module(std::string_view file_name, const char* environment_variable) {
    std::vector<std::string> looked_at;
    for (const auto& place : module_places(file_name, environment_variable)) {
        looked_at.push_back(place.string());
        std::error_code ignored;
        if (!fs::exists(place, ignored)) continue;
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
