#include "data/readers/arrow_library.h"

#include <fmt/format.h>

#include <array>

#include "core/error.h"
#include "core/program_module.h"
#include "data/readers/byte_stream.h"

namespace drover {
namespace {

using Buffer = std::array<char, drover_arrow_message_size>;

}  // namespace

const DroverArrowModule& arrow_library(std::string_view file) {
    const auto load = [&]() -> const DroverArrowModule& {
        const ModuleUse arrow{
            .name = "arrow",
            .version = drover_arrow_version,
            .impossible = fmt::format("{} needs Arrow C++", file),
            .remedy =
                "Run scripts/fetch_arrow.sh --again where python3, pip and a network are, build again, "
                "and keep drover_arrow.so beside the program; or convert the data to JSON lines."};
        return *arrow.function<decltype(drover_arrow_module)>("drover_arrow_module")();
    };
    static const DroverArrowModule& loaded = load();  // retried after an error
    return loaded;
}

ArrowFile::ArrowFile(const std::filesystem::path& path)
    : path_(path.string()), module_(arrow_library(path_)), file_(nullptr, module_.close) {
    open_byte_stream(path);  // reports a bad path in the same words as for every format
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

void ArrowFile::seek_columns(const std::vector<std::int32_t>& columns, std::int64_t row) {
    Buffer message{};
    if (module_.seek_columns(file_.get(), columns.data(), static_cast<std::int32_t>(columns.size()), row,
                             message.data()) != 0)
        fail(message.data());
}

std::int64_t ArrowFile::read_objects(std::int64_t count, DroverArrowTextSink sink, void* context) {
    Buffer message{};
    const std::int64_t given = module_.read_objects(file_.get(), count, sink, context, message.data());
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
