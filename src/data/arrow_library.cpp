#include "data/arrow_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdlib>
#include <mutex>

#include "core/error.h"
#include "data/byte_stream.h"

namespace drover {
namespace {

constexpr std::string_view module_name = "drover_arrow.so";

std::vector<std::filesystem::path> module_places() {
    if (const char* given = std::getenv("DROVER_ARROW_MODULE"); given != nullptr && *given != '\0')
        return {given};
    std::vector<std::filesystem::path> places;
    std::error_code unknown;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", unknown);
    if (!unknown) places.push_back(program.parent_path() / module_name);
    const std::filesystem::path built = std::filesystem::path(DROVER_MODULE_FOLDER) / module_name;
    if (places.empty() || places.front() != built) places.push_back(built);
    return places;
}

[[noreturn]] void fail(std::string_view file, std::string_view why) {
    throw Error(
        fmt::format("{} needs Arrow C++, and {}.", file, why),
        "Run scripts/fetch_arrow.sh --again where python3, pip and a network are, build again, and keep "
        "drover_arrow.so beside the program; or convert the data to JSON lines.");
}

using Buffer = std::array<char, drover_arrow_message_size>;

}  // namespace

const DroverArrowModule& arrow_library(std::string_view file) {
    static std::mutex mutex;
    static const DroverArrowModule* loaded = nullptr;
    const std::lock_guard lock(mutex);
    if (loaded != nullptr) return *loaded;
    std::vector<std::string> looked_at;
    for (const auto& place : module_places()) {
        looked_at.push_back(place.string());
        std::error_code ignored;
        if (!std::filesystem::exists(place, ignored)) continue;
        void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) fail(file, fmt::format("its module cannot be loaded ({})", dlerror()));
        const auto table =
            reinterpret_cast<const DroverArrowModule* (*)()>(dlsym(library, "drover_arrow_module"));
        if (table == nullptr || table()->version != drover_arrow_version)
            fail(file, fmt::format("{} belongs to another version of the program", place.string()));
        loaded = table();
        return *loaded;
    }
    fail(file,
         fmt::format("the module {} is not there (looked for: {})", module_name, fmt::join(looked_at, ", ")));
}

bool have_arrow_library() {
    try {
        arrow_library("this check");
        return true;
    } catch (const Error&) {
        return false;
    }
}

ArrowFile::ArrowFile(const std::filesystem::path& path)
    : path_(path.string()), module_(arrow_library(path_)), file_(nullptr, module_.close) {
    open_byte_stream(path);  // says what is wrong with a path in the same words as for every format
    Buffer message{};
    file_.reset(module_.open(path_.c_str(), path.extension() == ".arrow" ? 0 : 1, message.data()));
    if (file_ == nullptr) fail(message.data());
    for (std::int32_t i = 0; i < module_.column_count(file_.get()); ++i)
        columns_.emplace_back(module_.column_name(file_.get(), i));
}

void ArrowFile::seek(std::size_t column, std::int64_t row) {
    Buffer message{};
    if (module_.seek(file_.get(), static_cast<std::int32_t>(column), row, message.data()) != 0)
        fail(message.data());
}

std::int64_t ArrowFile::read_text(std::int64_t count, DroverArrowTextSink sink, void* context) {
    Buffer message{};
    const std::int64_t given = module_.read_text(file_.get(), count, sink, context, message.data());
    if (given < 0) fail(message.data());
    return given;
}

DroverArrowTokens ArrowFile::read_tokens(std::int64_t row) {
    Buffer message{};
    DroverArrowTokens tokens{};
    if (module_.read_tokens(file_.get(), row, &tokens, message.data()) != 0)
        fail(fmt::format("row {}: {}", row, message.data()));
    return tokens;
}

void ArrowFile::fail(std::string_view message) const {
    throw Error(fmt::format("{} cannot be read: {}.", path_, message),
                "Check that the file is complete and of the kind that its name says.");
}

}  // namespace drover
