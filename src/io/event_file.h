#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace drover {

/// CRC-32C (Castagnoli) of `bytes`.
std::uint32_t crc32c(std::string_view bytes);

/// One record of a TFRecord file: length and contents, each with a masked CRC-32C.
std::string tf_record(std::string_view contents);

/// A file of TensorBoard: `events.out.tfevents.<seconds>.<host>.<process>` with one record per event. Every
/// event is in the file when its function returns.
class EventFile {
  public:
    using Scalar = std::pair<std::string, double>;

    /// Creates the file, in a folder that is made if needed. `seconds` is the time since 1970. This and the
    /// functions below throw an Error when the file cannot be written; the file then ends with its last whole
    /// event, and later events are attempted again.
    EventFile(const std::filesystem::path& folder, double seconds);

    void add_scalars(double seconds, std::int64_t step, std::span<const Scalar> scalars);
    /// Shown under "Text".
    void add_text(double seconds, std::int64_t step, std::string_view tag, std::string_view text);

    const std::filesystem::path& path() const { return path_; }

  private:
    void write(std::string_view event);

    std::filesystem::path path_;
    std::ofstream file_;
    std::uintmax_t bytes_ = 0;  // of whole events
};

}  // namespace drover
