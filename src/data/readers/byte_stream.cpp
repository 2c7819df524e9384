#include "data/readers/byte_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "core/error.h"
#include "core/lfs_pointer.h"

namespace drover {
namespace {

constexpr std::size_t block_size = std::size_t{1} << 20;
constexpr std::size_t first_size = std::size_t{1} << 14;

class FileStream : public ByteStream {
  public:
    explicit FileStream(std::string path) : path_(std::move(path)) {
        file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
        if (file_ < 0) fail();
        struct stat status {};
        if (fstat(file_, &status) == 0 && S_ISREG(status.st_mode))
            size_ = static_cast<std::size_t>(status.st_size);
    }
    ~FileStream() override { close(file_); }
    FileStream(const FileStream&) = delete;
    FileStream& operator=(const FileStream&) = delete;

    std::size_t read(char* into, std::size_t size) override {
        for (;;) {
            const ssize_t count = ::read(file_, into, size);
            if (count == 0 && size > 0 && read_ < size_) fail_shortened(path_, read_, size_);
            read_ += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
            if (count >= 0) return static_cast<std::size_t>(count);
            if (errno != EINTR) fail();
        }
    }

    /// The first bytes; they are read again afterwards.
    std::string peek(std::size_t size) {
        std::string bytes(size, '\0');
        const ssize_t count = pread(file_, bytes.data(), size, 0);
        // A file without positions (a pipe) cannot be peeked at.
        bytes.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
        return bytes;
    }

  private:
    [[noreturn]] void fail() const {
        throw Error(fmt::format("Cannot read {}: {}.", path_, std::strerror(errno)),
                    "Check the path and its permissions.");
    }

    std::string path_;
    int file_;
    std::size_t size_ = 0;  ///< when it was opened; 0 if it has none, as a pipe
    std::size_t read_ = 0;
};

[[noreturn]] void fail_truncated(const std::string& path) {
    throw Error(fmt::format("The compressed data of {} stops before its end.", path),
                "Fetch or write the file again; it is not complete.");
}

[[noreturn]] void fail_damaged(const std::string& path, std::string_view reason) {
    throw Error(fmt::format("The compressed data of {} is damaged ({}).", path, reason),
                "Fetch or write the file again.");
}

/// Gzip members, one after the other.
class GzipStream : public ByteStream {
  public:
    GzipStream(std::unique_ptr<ByteStream> source, std::string path)
        : source_(std::move(source)), path_(std::move(path)), input_(block_size) {
        constexpr int gzip_only = 16 + MAX_WBITS;
        if (inflateInit2(&state_, gzip_only) != Z_OK) throw std::bad_alloc();
    }
    ~GzipStream() override { inflateEnd(&state_); }

    std::size_t read(char* into, std::size_t size) override {
        state_.next_out = reinterpret_cast<Bytef*>(into);
        state_.avail_out = static_cast<uInt>(std::min<std::size_t>(size, 1U << 30));
        const uInt wanted = state_.avail_out;
        while (state_.avail_out == wanted) {
            if (state_.avail_in == 0 && !refill()) {
                if (!between_members_) fail_truncated(path_);
                return 0;
            }
            if (between_members_ && state_.next_in[0] == 0) {  // padding after the last member
                ++state_.next_in;
                --state_.avail_in;
                continue;
            }
            between_members_ = false;
            const int status = inflate(&state_, Z_NO_FLUSH);
            if (status == Z_STREAM_END) {
                between_members_ = true;
                inflateReset(&state_);
            } else if (status != Z_OK && status != Z_BUF_ERROR) {
                fail_damaged(path_, state_.msg != nullptr ? state_.msg : "gzip");
            }
        }
        return wanted - state_.avail_out;
    }

  private:
    bool refill() {
        state_.next_in = reinterpret_cast<Bytef*>(input_.data());
        state_.avail_in = static_cast<uInt>(source_->read(input_.data(), input_.size()));
        return state_.avail_in > 0;
    }

    std::unique_ptr<ByteStream> source_;
    std::string path_;
    std::vector<char> input_;
    z_stream state_{};
    bool between_members_ = false;
};

/// Zstandard frames, one after the other.
class ZstdStream : public ByteStream {
  public:
    ZstdStream(std::unique_ptr<ByteStream> source, std::string path)
        : source_(std::move(source)),
          path_(std::move(path)),
          state_(ZSTD_createDStream()),
          buffer_(block_size) {
        if (state_ == nullptr) throw std::bad_alloc();
        ZSTD_DCtx_setParameter(state_, ZSTD_d_windowLogMax, 31);  // what `zstd --ultra --long=31` writes
    }
    ~ZstdStream() override { ZSTD_freeDStream(state_); }
    ZstdStream(const ZstdStream&) = delete;
    ZstdStream& operator=(const ZstdStream&) = delete;

    std::size_t read(char* into, std::size_t size) override {
        ZSTD_outBuffer output{into, size, 0};
        while (output.pos == 0) {
            if (input_.pos == input_.size && !input_ended_) {
                input_ = {buffer_.data(), source_->read(buffer_.data(), buffer_.size()), 0};
                input_ended_ = input_.size == 0;
            }
            if (input_ended_ && between_frames_) return 0;
            const std::size_t before = input_.pos;
            const std::size_t status = ZSTD_decompressStream(state_, &output, &input_);
            if (ZSTD_isError(status)) fail_damaged(path_, ZSTD_getErrorName(status));
            between_frames_ = status == 0;
            if (input_ended_ && output.pos == 0 && input_.pos == before && !between_frames_)
                fail_truncated(path_);
        }
        return output.pos;
    }

  private:
    std::unique_ptr<ByteStream> source_;
    std::string path_;
    ZSTD_DStream* state_;
    std::vector<char> buffer_;
    ZSTD_inBuffer input_{nullptr, 0, 0};
    bool input_ended_ = false;
    bool between_frames_ = true;
};

}  // namespace

void fail_shortened(const std::string& path, std::uintmax_t bytes, std::uintmax_t before) {
    throw Error(fmt::format("{} became shorter while it was read: it ends after {} of {} bytes.", path, bytes,
                            before),
                "Put the whole file back and start again.");
}

std::unique_ptr<ByteStream> open_byte_stream(const std::filesystem::path& path) {
    const std::string name = path.string();
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored))
        throw Error(fmt::format("Cannot read {}: it is a folder.", name), "Name a file.");
    auto file = std::make_unique<FileStream>(name);
    const std::string start = file->peek(32);
    refuse_lfs_pointer(start, name);
    if (start.starts_with("\x1f\x8b")) return std::make_unique<GzipStream>(std::move(file), name);
    if (start.starts_with("\x28\xb5\x2f\xfd")) return std::make_unique<ZstdStream>(std::move(file), name);
    const std::string suffix = path.extension().string();
    if (suffix == ".gz" || suffix == ".tgz" || suffix == ".zst")
        throw Error(fmt::format("{} is not {} data, although its name says so.", name,
                                suffix == ".zst" ? "Zstandard" : "gzip"),
                    "Fetch or write the file again, or give it its right name.");
    return file;
}

ByteWindow::ByteWindow(std::unique_ptr<ByteStream> stream)
    : stream_(std::move(stream)), buffer_(nullptr, &std::free), size_(0) {
    resize(first_size);
}

void ByteWindow::resize(std::size_t size) {
    void* const grown = std::realloc(buffer_.get(), size);
    if (grown == nullptr) throw std::bad_alloc();
    static_cast<void>(buffer_.release());  // realloc has freed it, or it is the same
    buffer_.reset(static_cast<char*>(grown));
    size_ = size;
}

bool ByteWindow::grow() {
    if (at_end_) return false;
    if (begin_ > 0) {
        std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    // Leftover bytes must not lead to small reads, and small files need no large buffer.
    if (filled_ && size_ < block_size) resize(block_size);
    if (size_ - end_ < size_ / 2) resize(size_ * 2);
    const std::size_t room = size_ - end_;
    const std::size_t count = stream_->read(buffer_.get() + end_, room);
    end_ += count;
    filled_ = count == room;
    at_end_ = count == 0;
    return !at_end_;
}

}  // namespace drover
