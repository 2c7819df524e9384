#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "core/json.h"
#include "io/tensor_files.h"
#include "parallel/mesh.h"

namespace drover {

class Backend;

/// A folder to write.
struct CheckpointJob {
    enum class Place : std::uint8_t {
        own_folder,       ///< a checkpoint: it appears whole, with a drover_state.json
        existing_folder,  ///< a model: its files are moved into a folder that may hold others
    };

    std::filesystem::path folder;
    Place place = Place::own_folder;
    TensorFiles tensors;
    std::map<std::string, std::string> texts{};  ///< small files by name
    /// Writes more files into the given staging folder. Called by one rank, on another thread.
    std::function<void(const std::filesystem::path&)> more_files{};
    Json state = Json::object();  ///< for drover_state.json
    /// Turns the files in the given staging folder, which are complete, into another program's checkpoint,
    /// which has no drover_state.json. Called as `more_files`, after it.
    std::function<void(const std::filesystem::path&)> rewrite{};
};

/// The result; the same on every rank.
struct CheckpointOutcome {
    std::filesystem::path folder;
    std::string error{};  ///< empty: the folder is complete and on the disk
};

/// Writes folders in the background, all ranks together: each writes its parts of the tensors at their
/// positions in the files. Whatever fits the buffer is copied there immediately and written by another
/// thread; the rest is streamed through the buffer before begin() returns.
class CheckpointWriter {
  public:
    /// Backend and mesh must outlive the writer. It uses at most `buffer_bytes` of host memory, but never
    /// less than one small piece.
    CheckpointWriter(Backend& backend, const Mesh& mesh, std::uint64_t buffer_bytes);
    /// Waits for the thread; with one rank, a folder that was begun is then complete.
    ~CheckpointWriter();

    bool busy() const { return stage_ != Stage::idle; }
    /// Collective; must not be called while busy. The tensors may change as soon as it returns.
    void begin(CheckpointJob job);
    /// Collective while busy: returns the outcome once there is one; with `wait`, waits for it.
    std::optional<CheckpointOutcome> poll(bool wait);
    /// Waits for this rank's thread; poll() then has the outcome.
    void finish_writing() {
        if (thread_.joinable()) thread_.join();
    }

  private:
    enum class Stage : std::uint8_t { idle, writing, publishing };

    void start(std::function<void()> work);
    void create_staging();
    void wait_for_update();
    void take_snapshot();
    void write_snapshot();
    void stream();
    void publish();
    void copy_to_host(const Tensor& source, std::uint64_t offset, std::byte* to, std::uint64_t bytes);
    bool is_first() const { return mesh_.everyone().rank() == 0; }
    std::string first_error();
    std::int64_t over_ranks(std::int64_t value, Reduction reduction);
    std::int64_t sum_over_ranks(std::int64_t value) { return over_ranks(value, Reduction::sum); }
    CheckpointOutcome finish(bool failed_somewhere);

    Backend& backend_;
    const Mesh& mesh_;
    std::uint64_t buffer_bytes_;
    std::vector<std::byte> buffer_;

    Stage stage_ = Stage::idle;
    CheckpointJob job_;
    std::optional<StagedFolder> staged_;
    std::thread thread_;
    std::atomic<bool> done_ = false;
    std::string error_;  // of this rank; read when done_
};

}  // namespace drover
