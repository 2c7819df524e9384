#include "train/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <chrono>

#include "backend/backend.h"
#include "core/error.h"
#include "core/host_spans.h"
#include "core/text_file.h"
#include "io/checkpoint_manifest.h"
#include "io/model_folder.h"

namespace drover {
namespace {

constexpr std::uint64_t smallest_buffer = std::uint64_t{1} << 20;
constexpr std::uint64_t largest_piece = std::uint64_t{64} << 20;
constexpr std::size_t longest_error = 1000;

std::int64_t milliseconds_now() {
    using namespace std::chrono;
    return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

CheckpointWriter::CheckpointWriter(Backend& backend, const Mesh& mesh, std::uint64_t buffer_bytes)
    : backend_(backend), mesh_(mesh), buffer_bytes_(std::max(buffer_bytes, smallest_buffer)) {}

CheckpointWriter::~CheckpointWriter() {
    if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::begin(CheckpointJob job) {
    require(!busy(), "a checkpoint is begun while another is being written");
    job_ = std::move(job);
    error_.clear();
    done_ = false;
    staged_.emplace(job_.place == CheckpointJob::Place::own_folder ? job_.folder
                                                                   : staging_of_model(job_.folder));
    stage_ = Stage::writing;
    if (is_first()) {
        try {
            create_staging();
        } catch (const std::exception& failure) {
            error_ = failure.what();
        }
    }
    // The first rank creates the files; they must exist before the others write. If that failed, no rank
    // writes.
    if (sum_over_ranks(error_.empty() ? 0 : 1) > 0) {
        done_ = true;
        return;
    }
    if (job_.tensors.part_bytes() <= buffer_bytes_) {
        try {
            const HostSpan span("checkpoint snapshot");
            take_snapshot();
        } catch (const std::exception& failure) {
            error_ = failure.what();
        }
        start([this] {
            if (error_.empty()) write_snapshot();
        });
    } else {
        try {
            stream();
        } catch (const std::exception& failure) {
            error_ = failure.what();
        }
        start([this] {
            if (!error_.empty()) return;
            staged_->flush();
            if (mesh_.everyone().size() == 1) publish();
        });
    }
}

void CheckpointWriter::start(std::function<void()> work) {
    if (thread_.joinable()) thread_.join();
    done_ = false;
    thread_ = std::thread([this, work = std::move(work), rank = HostThread::rank()] {
        const HostThread here(rank, "checkpoint writing");
        const HostSpan span("checkpoint write");
        try {
            work();
        } catch (const std::exception& failure) {
            error_ = failure.what();
        }
        done_ = true;
    });
}

void CheckpointWriter::create_staging() {
    staged_->create();
    create_files(*staged_, job_.tensors);
}

void CheckpointWriter::copy_to_host(const Tensor& source, std::uint64_t offset, std::byte* to,
                                    std::uint64_t bytes) {
    const Shape shape{static_cast<std::int64_t>(bytes)};
    backend_.copy(backend_.main_stream(),
                  Tensor(static_cast<std::byte*>(source.raw()) + offset, DType::u8, shape, source.device()),
                  Tensor(to, DType::u8, shape));
}

/// An offloaded optimizer's state is in host memory, and host-to-host copies need not be ordered by a stream.
void CheckpointWriter::wait_for_update() {
    backend_.synchronize(backend_.main_stream());
}

void CheckpointWriter::take_snapshot() {
    wait_for_update();
    buffer_.resize(std::max<std::size_t>(buffer_.size(), job_.tensors.part_bytes()));
    std::uint64_t used = 0;
    for (const TensorFiles::Part& part : job_.tensors.parts()) {
        copy_to_host(part.source, 0, buffer_.data() + used, part.place.bytes());
        used += part.place.bytes();
    }
    backend_.synchronize(backend_.main_stream());
}

void CheckpointWriter::write_snapshot() {
    std::uint64_t used = 0;
    for (const TensorFiles::Part& part : job_.tensors.parts()) {
        staged_->write(part.file, part.place, buffer_.data() + used);
        used += part.place.bytes();
    }
    staged_->flush();
    if (mesh_.everyone().size() == 1) publish();
}

void CheckpointWriter::stream() {
    wait_for_update();
    const std::uint64_t piece_bytes = std::min(buffer_bytes_, largest_piece);
    buffer_.resize(std::max<std::size_t>(buffer_.size(), piece_bytes));
    for (const TensorFiles::Part& part : job_.tensors.parts()) {
        // Pieces of whole rows; a row that is longer than a piece is cut.
        const RowsInFile& place = part.place;
        const std::uint64_t row_bytes = std::min(place.row_bytes, piece_bytes);
        for (std::uint64_t row = 0; row < place.rows;) {
            const std::uint64_t rows =
                place.row_bytes > piece_bytes ? 1 : std::min(place.rows - row, piece_bytes / place.row_bytes);
            for (std::uint64_t begin = 0; begin < place.row_bytes; begin += row_bytes) {
                const std::uint64_t length = std::min(row_bytes, place.row_bytes - begin);
                copy_to_host(part.source, row * place.row_bytes + begin, buffer_.data(), rows * length);
                backend_.synchronize(backend_.main_stream());
                staged_->write(part.file,
                               {.offset = place.offset + row * place.stride + begin,
                                .row_bytes = length,
                                .rows = rows,
                                .stride = place.stride},
                               buffer_.data());
            }
            row += rows;
        }
    }
}

void CheckpointWriter::publish() {
    for (const auto& [name, text] : job_.texts) write_file_atomically(staged_->staging() / name, text);
    if (job_.more_files) job_.more_files(staged_->staging());
    if (job_.rewrite) {
        job_.rewrite(staged_->staging());
        return staged_->publish();
    }
    CheckpointManifest manifest{
        .state = job_.state, .saved_at = milliseconds_now(), .files = staged_->seal()};
    if (job_.place == CheckpointJob::Place::existing_folder) return staged_->publish_files_into(job_.folder);
    write_file_atomically(staged_->staging() / CheckpointManifest::file_name, manifest.text());
    staged_->publish();
}

std::optional<CheckpointOutcome> CheckpointWriter::poll(bool wait) {
    while (busy()) {
        if (wait && thread_.joinable()) thread_.join();
        const std::int64_t ranks = mesh_.everyone().size();
        // The second stage runs on the first rank only.
        const bool done = done_ || (stage_ == Stage::publishing && !is_first());
        if (sum_over_ranks(done ? 1 : 0) < ranks) return std::nullopt;
        if (thread_.joinable()) thread_.join();
        const bool failed = sum_over_ranks(error_.empty() ? 0 : 1) > 0;
        if (failed || stage_ == Stage::publishing || ranks == 1) return finish(failed);
        stage_ = Stage::publishing;
        if (is_first()) start([this] { publish(); });
    }
    return std::nullopt;
}

CheckpointOutcome CheckpointWriter::finish(bool failed_somewhere) {
    if (failed_somewhere && is_first()) staged_->discard();
    if (failed_somewhere) error_ = first_error();
    staged_.reset();
    stage_ = Stage::idle;
    return {.folder = std::move(job_.folder), .error = std::move(error_)};
}

/// The message of the first rank that failed.
std::string CheckpointWriter::first_error() {
    Communicator& everyone = mesh_.everyone_on_host();
    if (everyone.size() == 1) return error_;
    const std::int64_t nobody = everyone.size();
    const auto failed =
        static_cast<int>(over_ranks(error_.empty() ? nobody : everyone.rank(), Reduction::min));
    std::string text = error_;
    text.resize(longest_error, '\0');
    everyone.broadcast({}, Tensor(text.data(), DType::u8, {static_cast<std::int64_t>(longest_error)}),
                       failed);
    return text.substr(0, text.find('\0'));
}

std::int64_t CheckpointWriter::over_ranks(std::int64_t value, Reduction reduction) {
    mesh_.everyone_on_host().all_reduce({}, Tensor::of(&value, {1}), reduction);
    return value;
}

}  // namespace drover
