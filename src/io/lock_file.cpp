#include "io/lock_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <random>

#include "core/error.h"
#include "core/json.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

FileTime time_of(const struct stat& status) {
    return std::chrono::seconds(status.st_mtim.tv_sec) + std::chrono::nanoseconds(status.st_mtim.tv_nsec);
}

[[noreturn]] void fail(const fs::path& file, int error_number) {
    throw Error(
        fmt::format("The folder {} cannot be written to: {} cannot be made ({}).",
                    file.parent_path().string(), file.filename().string(), std::strerror(error_number)),
        "Check its permissions and the free space, or choose another folder.");
}

std::string random_name() {
    std::random_device random;
    return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

bool write_whole(int descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t count = write(descriptor, text.data(), text.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return false;
        text.remove_prefix(static_cast<std::size_t>(count));
    }
    return fsync(descriptor) == 0;
}

}  // namespace

BatchJob BatchJob::from_environment() {
    const char *id = std::getenv("SLURM_JOB_ID"), *restarts = std::getenv("SLURM_RESTART_COUNT");
    BatchJob job{.id = id == nullptr ? "" : id};
    if (restarts != nullptr) std::from_chars(restarts, restarts + std::strlen(restarts), job.restarts);
    return job;
}

LockRecord LockRecord::own(BatchJob job) {
    return {.process = ProcessIdentity::own(), .token = random_name(), .job = std::move(job)};
}

std::string LockRecord::text() const {
    const Json json = {{"host", process.host},
                       {"pid", process.pid},
                       {"boot_id", process.boot},
                       {"pid_namespace", process.pid_namespace},
                       {"process_started", process.started},
                       {"slurm_job", job.id},
                       {"slurm_restarts", job.restarts},
                       {"token", token}};
    std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
    text.resize(text.size() - 2);  // the end of the object
    return text + fmt::format(",\n  \"heartbeat\": {:20}\n}}\n", beat);
}

std::optional<LockRecord> LockRecord::parse(std::string_view text) {
    try {
        const Json json = Json::parse(text);
        return LockRecord{.process = {.host = json.at("host"),
                                      .boot = json.at("boot_id"),
                                      .pid_namespace = json.at("pid_namespace"),
                                      .pid = json.at("pid"),
                                      .started = json.at("process_started")},
                          .token = json.at("token"),
                          .job = {.id = json.at("slurm_job"), .restarts = json.at("slurm_restarts")},
                          .beat = json.at("heartbeat")};
    } catch (const nlohmann::json::exception&) {
        return std::nullopt;
    }
}

std::string FoundLock::holder() const {
    return record ? record->process.text() : "an unknown process";
}

std::string FoundLock::identity() const {
    return record ? record->token : inode_identity(inode);
}

std::string inode_identity(ino_t inode) {
    return fmt::format("inode-{}", inode);
}

std::optional<FoundLock> look_at_lock(const fs::path& file) {
    struct stat status {};
    FoundLock found;
    const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        // Perhaps another user's, closed to others.
        if (errno == ENOENT || lstat(file.c_str(), &status) != 0) return std::nullopt;
    } else {
        std::array<char, 4096> text{};
        const ssize_t count = read(descriptor, text.data(), text.size());
        const bool known = fstat(descriptor, &status) == 0;
        close(descriptor);
        if (!known) return std::nullopt;
        found.empty = count == 0;
        if (count > 0) found.record = LockRecord::parse({text.data(), static_cast<std::size_t>(count)});
    }
    found.inode = status.st_ino;
    found.written = time_of(status);
    return found;
}

bool is_absent(const fs::path& file) {
    struct stat status {};
    return lstat(file.c_str(), &status) != 0 && errno == ENOENT;
}

std::optional<int> open_exclusively(const fs::path& file, std::string_view text) {
    const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (descriptor < 0 && errno == EEXIST) return std::nullopt;
    if (descriptor < 0) fail(file, errno);
    if (write_whole(descriptor, text)) return descriptor;
    const int error_number = errno;
    close(descriptor);
    unlink(file.c_str());
    fail(file, error_number);
}

bool create_file_exclusively(const fs::path& file, std::string_view text) {
    const std::optional<int> descriptor = open_exclusively(file, text);
    if (descriptor) close(*descriptor);
    return descriptor.has_value();
}

std::optional<FileTime> time_of_open_file(int descriptor) {
    struct stat status {};
    if (fstat(descriptor, &status) != 0) return std::nullopt;
    return time_of(status);
}

fs::path beside_lock(const fs::path& file, std::string_view purpose, std::string_view identity) {
    return fmt::format("{}.{}-{}", file.string(), purpose, identity);
}

FileTime file_system_time(const fs::path& file) {
    const fs::path probe = beside_lock(file, "time", random_name());
    const int descriptor = open(probe.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor < 0) fail(probe, errno);
    struct stat status {};
    const bool known = write_whole(descriptor, "\n") && fstat(descriptor, &status) == 0;
    const int error_number = errno;
    close(descriptor);
    unlink(probe.c_str());
    if (!known) fail(probe, error_number);
    return time_of(status);
}

void remove_lock_leftovers(const fs::path& file, std::chrono::milliseconds age,
                           std::chrono::milliseconds mark_age) noexcept {
    try {
        const FileTime now = file_system_time(file);
        for (const fs::directory_entry& entry : fs::directory_iterator(file.parent_path())) {
            const std::string name = entry.path().filename().string();
            if (!name.starts_with(file.filename().string() + ".")) continue;
            const bool mark = name.starts_with(take_over_mark(file, "").filename().string());
            const std::optional<FoundLock> left = look_at_lock(entry.path());
            if (left && now - left->written >= (mark ? mark_age : age)) unlink(entry.path().c_str());
        }
    } catch (const std::exception&) {
        // They are harmless, and the next run tries again.
    }
}

}  // namespace drover
