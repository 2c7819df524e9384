#include "core/program_module.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <vector>

#include "core/this_process.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// The folder of the shared library that holds this code; empty when that is not a library, or unknown.
fs::path library_folder() {
    Dl_info place{};
    if (dladdr(reinterpret_cast<void*>(&library_folder), &place) == 0 || place.dli_fname == nullptr)
        return {};
    std::error_code unknown;
    const fs::path name = place.dli_fname;
    if (!name.has_parent_path()) return {};  // the program, as the shell found it
    const fs::path file = fs::canonical(name, unknown);
    return file == program_path() ? fs::path() : file.parent_path();
}

std::vector<fs::path> module_folders() {
    std::vector<fs::path> folders;
    const auto add = [&](const fs::path& own, std::string_view installed) {
        if (own.empty()) return;
        folders.push_back(own);
        folders.push_back((own / installed).lexically_normal());
    };
    // The library's own first: the program may be Python, in a folder that has another Drover's modules.
    add(library_folder(), "drover");
    add(program_path().parent_path(), DROVER_MODULES_FROM_PROGRAM);
    return folders;
}

std::string file_name_of(std::string_view module) {
    return fmt::format("drover_{}.so", module);
}

std::vector<fs::path> module_places(std::string_view module) {
    if (const char* given = std::getenv(module_variable(module).c_str()); given != nullptr && *given != '\0')
        return {given};
    std::vector<fs::path> places;
    for (const fs::path& folder : module_folders())
        if (const fs::path place = folder / file_name_of(module);
            std::find(places.begin(), places.end(), place) == places.end())
            places.push_back(place);
    return places;
}

}  // namespace

std::string module_variable(std::string_view name) {
    std::string variable = fmt::format("drover_{}_module", name);
    std::transform(variable.begin(), variable.end(), variable.begin(),
                   [](unsigned char c) { return std::toupper(c); });
    return variable;
}

fs::path find_module(std::string_view name) {
    std::error_code ignored;
    for (fs::path& place : module_places(name))
        if (fs::exists(place, ignored)) return std::move(place);
    return {};
}

LoadedModule load_module(std::string_view name) {
    std::vector<std::string> looked_at;
    for (const fs::path& place : module_places(name)) {
        looked_at.push_back(place.string());
        std::error_code ignored;
        if (!fs::exists(place, ignored)) continue;
        void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr)
            return {.reason = fmt::format("the module {} cannot be loaded ({})", place.string(), dlerror())};
        return {.handle = handle, .place = place.string()};
    }
    return {.reason = fmt::format("the module {} was not found (searched: {})", file_name_of(name),
                                  fmt::join(looked_at, ", "))};
}

Error ModuleUse::error(std::string_view reason) const {
    return Error(fmt::format("{}: {}.", impossible, reason), remedy);
}

void* ModuleUse::address(const char* function) const {
    const LoadedModule module = load_module(name);
    if (module.handle == nullptr) throw error(module.reason);
    const std::string version_function = fmt::format("drover_{}_module_version", name);
    const auto number = reinterpret_cast<int (*)()>(dlsym(module.handle, version_function.c_str()));
    void* const found = dlsym(module.handle, function);
    if (number == nullptr || found == nullptr || number() != version)
        throw error(fmt::format("the module {} belongs to another version of the program", module.place));
    return found;
}

}  // namespace drover
