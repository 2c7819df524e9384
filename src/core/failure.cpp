#include "core/failure.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <system_error>
#include <typeinfo>

#include "core/machine_memory.h"

namespace drover {
namespace {

std::string type_name(const std::exception& problem) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(typeid(problem).name(), nullptr, nullptr, &status), &std::free);
    return status == 0 ? name.get() : typeid(problem).name();
}

}  // namespace

Error explain_failure(const std::exception& problem, std::string_view doing) {
    if (dynamic_cast<const std::filesystem::filesystem_error*>(&problem) != nullptr)
        return Error(fmt::format("{}.", problem.what()), "Check the path and its permissions.");
    if (dynamic_cast<const std::bad_alloc*>(&problem) != nullptr)
        return Error(fmt::format("The memory was used up while {}: {}.", doing, memory_limits_text()),
                     "Use a smaller batch or model, or raise the limit.");
    const auto* refused = dynamic_cast<const std::system_error*>(&problem);
    if (refused != nullptr && refused->code() == std::errc::resource_unavailable_try_again)
        return Error(fmt::format("The system refused another thread while {}: {}.", doing, problem.what()),
                     "Raise the limit of processes (`ulimit -u`, or pids.max of the container) or of address "
                     "space (`ulimit -v`), or use fewer threads.");
    return Error(fmt::format("The program failed because of an internal error while {}: {} ({}).", doing,
                             problem.what(), type_name(problem)),
                 "Please report this line and the command; what was saved before can be used.");
}

}  // namespace drover
