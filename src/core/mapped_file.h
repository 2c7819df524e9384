#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace drover {

/// A regular file mapped into memory, read only.
class MappedFile {
  public:
    /// Error when there is no such file, it is a folder or a device, or may not be read.
    explicit MappedFile(const std::filesystem::path& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;

    std::string_view bytes() const { return {static_cast<const char*>(map_), size_}; }
    /// For views whose type has no const; writing through it crashes the program.
    std::byte* data() const { return static_cast<std::byte*>(map_); }

    /// Lets the memory of pages that were read be used for something else; they are read again when needed.
    void forget() const;

  private:
    void* map_ = nullptr;
    std::size_t size_ = 0;
};

/// From now on, if a mapped file is truncated while it is read, the program ends with a message that names
/// the file and exit code 1 instead of SIGBUS. Only for our own programs: it sets the process's handler of
/// that signal. Any other SIGBUS ends the program as before.
void name_shortened_files();

}  // namespace drover
