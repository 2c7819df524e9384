#pragma once

#include <cstdint>
#include <filesystem>

namespace drover {

/// A file that is written under another name and renamed when it is complete: until commit() a reader sees
/// what was there before, and an abandoned PartialFile leaves nothing behind. Every failure is an Error that
/// names the file.
class PartialFile {
  public:
    /// Creates `<path>.partial` and reserves `bytes` on the disk where the file system can, so that a full
    /// disk is noticed immediately.
    PartialFile(const std::filesystem::path& path, std::uint64_t bytes);
    ~PartialFile();
    PartialFile(PartialFile&& other) noexcept;
    PartialFile(const PartialFile&) = delete;
    PartialFile& operator=(const PartialFile&) = delete;

    void write(std::uint64_t offset, const void* data, std::uint64_t bytes);

    /// Waits until the contents are on the disk; nothing can be written afterwards.
    void finish();
    /// Moves the finished file to its place.
    void commit();

  private:
    [[noreturn]] void fail(int error_number) const;

    std::filesystem::path path_;
    std::filesystem::path partial_path_;
    int descriptor_ = -1;
};

/// Waits until the names in `folder` (files created, renamed or removed) are on the disk.
void sync_folder(const std::filesystem::path& folder);

}  // namespace drover
