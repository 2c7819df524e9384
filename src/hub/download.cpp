#include "hub/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "core/error.h"
#include "core/file_lock.h"
#include "hub/blob_hash.h"
#include "hub/cache.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// Marks files that this program continues; those of others may still be growing.
constexpr std::string_view own_mark = ".drover";
constexpr std::string_view partial_end = ".incomplete";

/// A file that grows while it is fetched. It stays when the transfer ends early.
class PartialDownload {
  public:
    /// Continues a file that an earlier process left, or begins one.
    PartialDownload(const fs::path& beside, const RepositoryFile& file)
        : file_(file), hash_(file.hash, file.size) {
        path_ = unique_beside(beside.string() + std::string(own_mark), partial_end);
        adopt(beside);
        if (descriptor_ < 0) descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (descriptor_ < 0) fail_to_write(path_, std::strerror(errno));
        flock(descriptor_, LOCK_EX | LOCK_NB);  // so that no other process continues it
    }
    ~PartialDownload() {
        if (descriptor_ >= 0) close(descriptor_);
    }
    PartialDownload(const PartialDownload&) = delete;
    PartialDownload& operator=(const PartialDownload&) = delete;

    std::uint64_t size() const { return size_; }

    /// False, with the reason in error(), when the disk does not take it or it is more than the file has.
    bool append(std::string_view bytes) {
        if (size_ + bytes.size() > file_.size) {
            too_long_ = true;
            return false;
        }
        hash_.add(bytes);
        while (!bytes.empty()) {
            const ssize_t count = pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) {
                write_error_ = count < 0 ? errno : ENOSPC;
                return false;
            }
            size_ += static_cast<std::uint64_t>(count);
            bytes.remove_prefix(static_cast<std::size_t>(count));
        }
        return true;
    }

    void start_over() {
        if (ftruncate(descriptor_, 0) != 0) fail_to_write(path_, std::strerror(errno));
        size_ = 0;
        too_long_ = false;
        hash_ = BlobHash(file_.hash, file_.size);
    }

    bool too_long() const { return too_long_; }
    void check_disk() const {
        if (write_error_ != 0) fail_to_write(path_, std::strerror(write_error_));
    }
    bool is_whole() const { return size_ == file_.size; }
    /// Of a whole file; afterwards it is moved or started over.
    bool is_right() { return hash_.matches(); }

    /// False when another process took the file away, which can only be where locks do not work.
    bool move_to(const fs::path& destination) {
        if (fsync(descriptor_) != 0) fail_to_write(path_, std::strerror(errno));
        if (rename(path_.c_str(), destination.c_str()) == 0) return true;
        if (errno != ENOENT) fail_to_write(destination, std::strerror(errno));
        return false;
    }

    void remove() { unlink(path_.c_str()); }

  private:
    void adopt(const fs::path& beside) {
        const std::string start = beside.filename().string() + std::string(own_mark) + ".";
        std::error_code ignored;
        for (const fs::directory_entry& entry : fs::directory_iterator(beside.parent_path(), ignored)) {
            const std::string name = entry.path().filename().string();
            if (!name.starts_with(start) || !name.ends_with(partial_end)) continue;
            const int found = open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
            if (found < 0) continue;
            struct stat status {};
            // The new name makes sure that only one process continues the file.
            if (flock(found, LOCK_EX | LOCK_NB) == 0 && fstat(found, &status) == 0 &&
                static_cast<std::uint64_t>(status.st_size) <= file_.size &&
                rename(entry.path().c_str(), path_.c_str()) == 0) {
                descriptor_ = found;
                size_ = static_cast<std::uint64_t>(status.st_size);
                if (!add_file(hash_, path_, size_)) start_over();
                return;
            }
            close(found);
        }
    }

    const RepositoryFile& file_;
    BlobHash hash_;
    fs::path path_;
    int descriptor_ = -1;
    std::uint64_t size_ = 0;
    int write_error_ = 0;
    bool too_long_ = false;
};

/// Whether an answer of 206 begins at this byte: "bytes 100-199/200".
bool continues_at(const HttpAnswer& answer, std::uint64_t offset) {
    std::string_view range = answer.header("content-range");
    if (!range.starts_with("bytes ")) return false;
    range.remove_prefix(6);
    std::uint64_t first = 0;
    const auto [end, error] = std::from_chars(range.data(), range.data() + range.size(), first);
    return error == std::errc() && end != range.data() + range.size() && *end == '-' && first == offset;
}

/// Fetches until the file is whole, or the Hub gives it up.
void fill(HubClient& client, const Download& download, PartialDownload& partial,
          const ArrivedBytes& arrived) {
    BackOff back_off(client.settings().retry);
    while (!partial.is_whole()) {
        const std::uint64_t before = partial.size();
        bool restarted = false, wrong_range = false, ended = false;
        HttpRequest request{.url = download.url};
        if (before > 0) request.headers.emplace_back("Range", fmt::format("bytes={}-", before));
        if (before > 0 && !download.version.empty())
            request.headers.emplace_back("If-Range", download.version);
        request.receive = [&](const HttpAnswer& answer, std::string_view piece) {
            if (answer.status == 200 && partial.size() > 0 && !restarted && before > 0) {
                // The server does not know ranges and sends the whole file.
                try {
                    arrived(-static_cast<std::int64_t>(partial.size()));
                    partial.start_over();
                } catch (const Error&) {
                    return false;
                }
            }
            restarted = restarted || answer.status == 200;
            wrong_range = answer.status == 206 && partial.size() == before && !continues_at(answer, before);
            if (wrong_range || !partial.append(piece)) return false;
            ended = !arrived(static_cast<std::int64_t>(piece.size()));
            return !ended;
        };
        const HttpAnswer answer = client.send_once(std::move(request));
        partial.check_disk();
        if (ended) throw Error("The transfer was ended.", "Start it again.");
        if (partial.is_whole() && !partial.too_long()) return;
        if (wrong_range || partial.too_long() || answer.status == 416) {
            arrived(-static_cast<std::int64_t>(partial.size()));
            partial.start_over();
        } else if (partial.size() > before) {
            back_off.progress();
        }
        // What was complete and is too short, or continues elsewhere, is as good as a broken connection.
        const bool good = answer.complete() && (answer.status == 200 || answer.status == 206);
        if (!good && answer.status != 416 && !BackOff::may_help(answer))
            client.fail(answer, download.repository, download.file.path);
        if (!back_off.again(answer)) {
            if (!good) client.fail(answer, download.repository, download.file.path);
            throw HubError(
                HubError::Reason::unreachable,
                fmt::format("{} does not arrive whole: the server sends another number of bytes than the {} "
                            "that it announced.",
                            download.url, download.file.size),
                "Try again later.");
        }
    }
}

}  // namespace

void download_file(HubClient& client, const Download& download, const ArrivedBytes& arrived) {
    std::error_code ignored;
    const FileLock lock(download.lock, FileLock::Afterwards::left);
    if (fs::exists(download.destination, ignored)) {
        arrived(static_cast<std::int64_t>(download.file.size));
        return;
    }
    for (int damaged = 0;;) {
        PartialDownload partial(download.partial, download.file);
        if (partial.size() > 0) arrived(static_cast<std::int64_t>(partial.size()));
        fill(client, download, partial, arrived);
        if (partial.is_right()) {
            if (partial.move_to(download.destination) || fs::exists(download.destination, ignored)) return;
        } else {
            partial.remove();
            if (++damaged == 2)
                throw Error(
                    fmt::format("{} of the {} arrives with another content than the Hub lists (its checksum "
                                "is wrong).",
                                download.file.path, download.repository.shown()),
                    "Something between the Hub and this machine changes files; nothing of it was kept.");
        }
        arrived(-static_cast<std::int64_t>(download.file.size));
    }
}

}  // namespace drover
