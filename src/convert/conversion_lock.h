#pragma once

#include <filesystem>

namespace drover {

/// Keeps other conversions out of a folder while this object lives. The system ends it with the process,
/// however that ends. On file systems without such locks nothing is kept out.
class ConversionLock {
  public:
    static constexpr std::string_view file_name = "convert.lock";

    /// Error when another process converts into the folder, or the folder cannot be written to.
    explicit ConversionLock(const std::filesystem::path& folder);
    ~ConversionLock();
    ConversionLock(const ConversionLock&) = delete;
    ConversionLock& operator=(const ConversionLock&) = delete;

  private:
    std::filesystem::path file_;
    int descriptor_;
};

}  // namespace drover
