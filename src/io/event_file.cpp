#include "io/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/machine_identity.h"
#include "io/protobuf_fields.h"

namespace drover {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
    constexpr std::uint32_t castagnoli = 0x82F63B78;  // reflected
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? castagnoli : 0);
        table[byte] = crc;
    }
    return table;
}

/// The file holds checksums of data that may itself hold checksums, so they are masked.
std::uint32_t masked(std::uint32_t crc) {
    constexpr std::uint32_t offset = 0xA282EAD8;
    return std::rotr(crc, 15) + offset;
}

std::string event(double seconds, std::int64_t step, std::string_view summary) {
    // Zero is the default of a missing number, so it is not written.
    return double_field(1, seconds) + (step == 0 ? "" : integer_field(2, step)) + bytes_field(5, summary);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
    static constexpr auto table = make_crc_table();
    std::uint32_t crc = 0xFFFFFFFF;
    for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
    return ~crc;
}

std::string tf_record(std::string_view contents) {
    const std::string length = little_endian(static_cast<std::uint64_t>(contents.size()));
    std::string record = length + little_endian(masked(crc32c(length)));
    record += contents;
    return record += little_endian(masked(crc32c(contents)));
}

EventFile::EventFile(const std::filesystem::path& folder, double seconds)
    : path_(folder / fmt::format("events.out.tfevents.{}.{}.{}", static_cast<std::int64_t>(seconds),
                                 host_name(), getpid())) {
    std::error_code ignored;  // opening the file reports the error
    std::filesystem::create_directories(folder, ignored);
    write(double_field(1, seconds) + bytes_field(3, "brain.Event:2"));
}

void EventFile::add_scalars(double seconds, std::int64_t step, std::span<const Scalar> scalars) {
    for (const auto& [tag, value] : scalars)
        write(event(seconds, step,
                    bytes_field(1, bytes_field(1, tag) + float_field(2, static_cast<float>(value)))));
}

void EventFile::add_text(double seconds, std::int64_t step, std::string_view tag, std::string_view text) {
    constexpr std::int64_t string_type = 7;
    const std::string tensor = integer_field(1, string_type) +
                               bytes_field(2, bytes_field(2, integer_field(1, 1))) + bytes_field(8, text);
    const std::string metadata = bytes_field(1, bytes_field(1, "text"));
    write(event(seconds, step,
                bytes_field(1, bytes_field(1, fmt::format("{}/text_summary", tag)) + bytes_field(8, tensor) +
                                   bytes_field(9, metadata))));
}

void EventFile::write(std::string_view event) {
    errno = 0;
    if (!file_.is_open()) file_.open(path_, std::ios::binary | std::ios::app);
    const std::string record = tf_record(event);
    file_ << record << std::flush;
    if (file_) {
        bytes_ += record.size();
        return;
    }
    const std::string reason = std::strerror(errno != 0 ? errno : EIO);
    // Readers treat half an event as the end of the file and ignore what follows.
    file_.close();
    file_.clear();
    std::error_code ignored;
    if (bytes_ > 0) std::filesystem::resize_file(path_, bytes_, ignored);
    throw Error(fmt::format("TensorBoard's file {} cannot be written: {}.", path_.string(), reason),
                "Choose another --logging_dir, or leave out --report_to.");
}

}  // namespace drover
