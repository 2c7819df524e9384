#include "core/this_process.h"

#include <unistd.h>

#include <ctime>
#include <sstream>
#include <string>
#include <system_error>

#include "core/text_file.h"

namespace drover {

std::filesystem::path program_path() {
    std::error_code unknown;
    return std::filesystem::read_symlink("/proc/self/exe", unknown);
}

double seconds_since_process_start() {
    // After the command's name, which is in parentheses and may contain anything: field 3 and on. Field 22 is
    // the start.
    const std::string text = read_text_file("/proc/self/stat");
    std::istringstream fields(text.substr(text.rfind(')') + 2));
    std::string field;
    for (int number = 3; number <= 22; ++number) fields >> field;
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
           std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::int64_t peak_resident_bytes() {
    // Not getrusage(): its maximum is inherited from the program that started this one.
    std::istringstream lines(read_text_file("/proc/self/status"));
    for (std::string word; lines >> word;)
        if (word == "VmHWM:") {
            std::int64_t kibibytes = 0;
            lines >> kibibytes;
            return kibibytes * 1024;
        }
    return 0;
}

}  // namespace drover
