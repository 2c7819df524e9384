#include <sstream>

#include "app/mesh_runs.h"
#include "core/json_text.h"

namespace drover {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

constexpr int processes = 4;
/// Program, libraries, MPI and small buffers of a process; a tiny model needs about half of it.
constexpr double base = 100;

/// Numbers are in MiB. The model is large compared with what every process needs anyway.
class MeshMemory : public test::MeshRuns {
  protected:
    void SetUp() override {
        MeshRuns::SetUp();
        if (sanitized) GTEST_SKIP() << "A sanitizer's memory is not the program's.";
        Json config =
            parse_json(read_text_file(test::golden_path("run_clm/configs/llama.json")), "llama.json");
        config["hidden_size"] = 512;
        config["intermediate_size"] = 1536;
        config["num_hidden_layers"] = 15;
        write_file_atomically(folder_ / "large.json", config.dump());
    }

    struct Measured {
        double planned = 0;
        double checkpoint = 0;      ///< the copy used for writing a checkpoint
        std::vector<double> peaks;  ///< of each process
        std::string output;
    };
    /// Trains on four processes with tiny rows and an optimizer without state.
    Measured measure(const std::string& output, const std::string& more) const {
        const test::Outcome outcome =
            train_on(processes, output,
                     "--optim sgd --block_size 16 --per_device_train_batch_size 1 --log_level info "
                     "--rank_log_dir logs " +
                         more);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        Measured measured{.planned = mebibytes_behind("\n  total ", outcome.output),
                          .checkpoint = mebibytes_behind("part of a checkpoint has about ", outcome.output),
                          .peaks = {},
                          .output = outcome.output};
        for (int rank = 0; rank < processes; ++rank)
            measured.peaks.push_back(mebibytes_behind(
                "This process had at most ",
                rank == 0 ? outcome.output
                          : read_text_file(folder_ / "logs" / fmt::format("rank-{}.log", rank))));
        return measured;
    }

    /// The MiB after `words`; 0 if they are missing.
    static double mebibytes_behind(const std::string& words, const std::string& text) {
        const std::size_t at = text.find(words);
        if (at == std::string::npos) return 0;
        std::istringstream rest(text.substr(at + words.size()));
        double amount = 0;
        std::string unit;
        rest >> amount >> unit;
        return amount * (unit.starts_with("KiB") ? 1.0 / 1024 : unit.starts_with("GiB") ? 1024 : 1);
    }

    const std::string new_model_ = fmt::format("--config_name '{}' ", (folder_ / "large.json").string());
    const std::string saves_nothing_ = "--max_steps 1 --save_strategy no --save_final_model no ";
};

/// New weights of either kind, trained, saved, loaded: a process has what its plan stated. If it also held
/// the whole model, it would exceed the bound.
TEST_F(MeshMemory, NoProcessEverHoldsTheWholeModel) {
    const std::string sharded = "--fsdp full_shard ";
    const std::vector<std::pair<std::string, std::string>> runs{
        {"saved", new_model_ + sharded + "--max_steps 2 --save_steps 1 "},
        {"counter", new_model_ + sharded + saves_nothing_ + "--init counter "},
        {"loaded", new_model_ + fmt::format("--model_name_or_path '{}' ", (folder_ / "saved").string()) +
                       sharded + saves_nothing_},
    };
    double most = 0;  // allowed for a sharded run
    for (const auto& [name, flags] : runs) {
        const Measured run = measure(name, flags);
        ASSERT_GT(run.planned, 0) << run.output;
        const double model = std::filesystem::file_size(folder_ / "saved" / "model.safetensors") / 1048576.0,
                     allowed = run.planned + run.checkpoint + base;
        ASSERT_LT(allowed, run.planned + model);
        ASSERT_LT(run.planned, 1.5 * model);
        for (const double peak : run.peaks) {
            EXPECT_GT(peak, run.planned / 2) << name << ": " << run.output;
            EXPECT_LT(peak, allowed) << name << ": " << run.output;
        }
        most = std::max(most, allowed);
    }
    // The bound is meaningful: without sharding it is exceeded.
    for (const double peak : measure("whole", new_model_ + "--fsdp no_shard " + saves_nothing_).peaks)
        EXPECT_GT(peak, most);
}

}  // namespace
}  // namespace drover
