#include "train/profile/profile_files.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/text_file.h"
#include "train/profile/trace_events.h"
#include "train/profile/xplane.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

/// A compressed text file, written piece by piece.
class GzipFile {
  public:
    explicit GzipFile(fs::path path) : path_(std::move(path)), file_(gzopen(path_.c_str(), "wb")) {
        if (file_ == nullptr) fail();
    }
    ~GzipFile() {
        if (file_ != nullptr) gzclose(file_);
    }
    GzipFile(const GzipFile&) = delete;
    GzipFile& operator=(const GzipFile&) = delete;

    void write(std::string_view text) {
        constexpr std::size_t piece = 1 << 20;
        for (std::size_t at = 0; at < text.size(); at += piece) {
            const auto bytes = static_cast<unsigned>(std::min(piece, text.size() - at));
            if (gzwrite(file_, text.data() + at, bytes) != static_cast<int>(bytes)) fail();
        }
    }
    void close() {
        if (gzclose(std::exchange(file_, nullptr)) != Z_OK) fail();
    }

  private:
    [[noreturn]] void fail() {
        if (file_ != nullptr) gzclose(std::exchange(file_, nullptr));
        std::error_code ignored;
        fs::remove(path_, ignored);
        throw Error(fmt::format("Cannot write the trace {}.", path_.string()),
                    "Check the folder and the free space.");
    }

    fs::path path_;
    gzFile file_;
};

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

void write_trace(const fs::path& path, std::string_view events) {
    GzipFile file(path);
    file.write(trace_begin);
    file.write(events);
    file.write(trace_end);
    file.close();
}

/// The first rank receives the events of the others, one rank after the other, and writes them all. It
/// receives them even if it cannot write.
std::string write_all_ranks(const fs::path& path, std::string& events, Communicator& everyone) {
    const auto text_of = [](std::string& text) {
        return Tensor(text.data(), DType::u8, {static_cast<std::int64_t>(text.size())});
    };
    auto bytes = static_cast<std::int64_t>(events.size());
    const Tensor count = Tensor::of(&bytes, {1});
    if (everyone.rank() > 0) {
        everyone.send({}, count, 0);
        everyone.send({}, text_of(events), 0);
        return {};
    }
    std::unique_ptr<GzipFile> file;
    std::string error = attempt([&] {
        file = std::make_unique<GzipFile>(path);
        file->write(trace_begin);
        file->write(events);
    });
    for (int rank = 1; rank < everyone.size(); ++rank) {
        everyone.receive({}, count, rank);
        events.resize(static_cast<std::size_t>(bytes));
        everyone.receive({}, text_of(events), rank);
        if (error.empty())
            error = attempt([&] {
                file->write(trace_separator);
                file->write(events);
            });
    }
    if (error.empty())
        error = attempt([&] {
            file->write(trace_end);
            file->close();
        });
    return error;
}

/// The error of the first rank that has one.
std::string first_error(std::string own, Communicator& everyone) {
    constexpr std::size_t longest = 1000;
    const std::int64_t nobody = everyone.size();
    std::int64_t failed = own.empty() ? nobody : everyone.rank();
    everyone.all_reduce({}, Tensor::of(&failed, {1}), Reduction::min);
    if (failed == nobody || everyone.size() == 1) return own;
    own.resize(longest, '\0');
    everyone.broadcast({}, Tensor(own.data(), DType::u8, {longest}), static_cast<int>(failed));
    return own.c_str();
}

}  // namespace

fs::path ProfilePlace::run() const {
    constexpr std::int64_t nanoseconds = 1'000'000'000;
    const std::time_t seconds = zero / nanoseconds;
    std::tm local{};
    localtime_r(&seconds, &local);
    std::array<char, 32> date{};
    std::strftime(date.data(), date.size(), "%Y_%m_%d_%H_%M_%S", &local);
    return folder / "plugins" / "profile" / date.data();
}

ProfileFiles write_profile(const RankProfile& profile, const ProfilePlace& place, Communicator& everyone) {
    const fs::path run = place.run();
    const bool several = everyone.size() > 1;
    const std::string name =
        several ? fmt::format("{}-rank{}", profile.machine, profile.rank) : profile.machine;
    std::string events = trace_events(profile);
    std::string error = attempt([&] {
        fs::create_directories(run);
        write_file_atomically(run / (name + ".xplane.pb"), xplane_bytes(profile, place.zero));
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
