#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "launch/loop.h"

namespace drover {

/// A file that gets a copy of the output. Error if it cannot be written.
class LaunchLog {
  public:
    explicit LaunchLog(const std::filesystem::path& file);
    void write(std::string_view bytes);

  private:
    FileDescriptor descriptor_;
};

/// Writes as much as the other side accepts.
void write_all(int descriptor, std::string_view bytes);

/// Reads a pipe whenever the loop finds data in it and passes it on, until the end.
class PipeReader {
  public:
    PipeReader(LaunchLoop& loop, FileDescriptor& pipe, std::function<void(std::string_view)> take);
    ~PipeReader();
    PipeReader(const PipeReader&) = delete;
    PipeReader& operator=(const PipeReader&) = delete;

    /// Passes on the next piece. Returns whether there was one.
    bool read_on();

  private:
    LaunchLoop& loop_;
    FileDescriptor& pipe_;
    std::function<void(std::string_view)> take_;
};

}  // namespace drover
