#include "train/profile/profile_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "train/profile/gzip_text.h"
#include "train/profile/trace_events.h"
#include "train/profile/xplane.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// The system's words for what went wrong.
[[noreturn]] void throw_reason() {
    throw Error(std::generic_category().message(errno));
}

/// A file that is removed unless it was closed.
class NewFile {
  public:
    explicit NewFile(fs::path path) : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb")) {
        if (file_ == nullptr) throw_reason();
    }
    ~NewFile() {
        if (file_ == nullptr) return;
        std::fclose(file_);
        std::error_code ignored;
        fs::remove(path_, ignored);
    }
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;

    void write(std::string_view bytes) {
        if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) throw_reason();
    }
    void close() {
        if (std::fflush(file_) != 0 || fsync(fileno(file_)) != 0) throw_reason();
        std::fclose(std::exchange(file_, nullptr));  // everything is on the disk
    }

  private:
    fs::path path_;
    std::FILE* file_;
};

void write_file(const fs::path& path, std::string_view bytes) {
    NewFile file(path);
    file.write(bytes);
    file.close();
}

/// What went wrong, in a few words; empty: nothing.
template <class Write>
std::string attempt(const Write& write) {
    try {
        write();
    } catch (const std::exception& error) {
        return error.what();
    }
    return {};
}

void write_trace(const fs::path& path, const GzipPiece& events) {
    GzipText text;
    NewFile file(path);
    file.write(text.begin());
    file.write(text.add(compressed(trace_begin)));
    file.write(text.add(events));
    file.write(text.add(compressed(trace_end)));
    file.write(text.end());
    file.close();
}

/// The first rank receives the events of the others, which have compressed them at the same time, one rank
/// after the other, and writes them all. It receives them even if it cannot write.
std::string write_all_ranks(const fs::path& path, GzipPiece& events, Communicator& everyone) {
    std::array<std::int64_t, 3> sizes{std::ssize(events.bytes), events.text_bytes, events.checksum};
    const Tensor header = Tensor::of(sizes.data(), {std::ssize(sizes)});
    const auto bytes_of = [](GzipPiece& piece) {
        return Tensor(piece.bytes.data(), DType::u8, {std::ssize(piece.bytes)});
    };
    if (everyone.rank() > 0) {
        everyone.send({}, header, 0);
        everyone.send({}, bytes_of(events), 0);
        return {};
    }
    GzipText text;
    std::optional<NewFile> file;
    std::string error = attempt([&] {
        file.emplace(path);
        file->write(text.begin());
        file->write(text.add(compressed(trace_begin)));
        file->write(text.add(events));
    });
    const GzipPiece separator = compressed(trace_separator);
    for (int rank = 1; rank < everyone.size(); ++rank) {
        everyone.receive({}, header, rank);
        events = {.bytes = std::string(static_cast<std::size_t>(sizes[0]), '\0'),
                  .text_bytes = sizes[1],
                  .checksum = static_cast<std::uint32_t>(sizes[2])};
        everyone.receive({}, bytes_of(events), rank);
        if (error.empty())
            error = attempt([&] {
                file->write(text.add(separator));
                file->write(text.add(events));
            });
    }
    if (error.empty())
        error = attempt([&] {
            file->write(text.add(compressed(trace_end)));
            file->write(text.end());
            file->close();
        });
    return error;
}

/// The error of the first rank that has one.
std::string first_error(std::string own, Communicator& everyone) {
    constexpr std::size_t longest = 1000;
    const std::int64_t nobody = everyone.size();
    std::int64_t failed = own.empty() ? nobody : everyone.rank();
    if (!own.empty() && everyone.size() > 1) own += fmt::format(" (rank {})", everyone.rank());
    everyone.all_reduce({}, Tensor::of(&failed, {1}), Reduction::min);
    if (failed == nobody || everyone.size() == 1) return own;
    own.resize(longest, '\0');
    everyone.broadcast({}, Tensor(own.data(), DType::u8, {longest}), static_cast<int>(failed));
    return own.c_str();
}

void make_folder(const fs::path& folder) {
    std::error_code failure;
    fs::create_directories(folder, failure);
    if (failure) throw Error(failure.message());
}

/// Where TensorBoard looks for profiles.
fs::path runs_in(const fs::path& folder) {
    return folder / "plugins" / "profile";
}

}  // namespace

fs::path ProfilePlace::run() const {
    constexpr std::int64_t nanoseconds = 1'000'000'000;
    const std::time_t seconds = zero / nanoseconds + seconds_east;
    std::tm local{};
    gmtime_r(&seconds, &local);
    std::array<char, 32> date{};
    std::strftime(date.data(), date.size(), "%Y_%m_%d_%H_%M_%S", &local);
    return runs_in(folder) / date.data();
}

std::string prepare_profile_folder(const fs::path& folder, Communicator& everyone) {
    return first_error(attempt([&] {
                           make_folder(runs_in(folder));
                           if (access(runs_in(folder).c_str(), W_OK | X_OK) != 0) throw_reason();
                       }),
                       everyone);
}

ProfileFiles write_profile(const RankProfile& profile, const ProfilePlace& place, Communicator& everyone) {
    const fs::path run = place.run();
    const bool several = everyone.size() > 1;
    const std::string name =
        several ? fmt::format("{}-rank{}", profile.machine, profile.rank) : profile.machine;
    GzipPiece events = compressed(trace_events(profile));
    std::string error = attempt([&] {
        make_folder(run);
        write_file(run / (name + ".xplane.pb"), xplane_bytes(profile, place.zero));
        write_trace(run / (name + ".trace.json.gz"), events);
    });
    ProfileFiles files{.for_viewers = run / (name + ".trace.json.gz")};
    if (several) {
        files.for_viewers = run / "all_ranks.json.gz";
        const std::string of_all = write_all_ranks(files.for_viewers, events, everyone);
        if (error.empty()) error = of_all;
    }
    files.error = first_error(std::move(error), everyone);
    return files;
}

}  // namespace drover
