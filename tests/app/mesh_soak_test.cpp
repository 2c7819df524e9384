#include <random>

#include "app/mesh_runs.h"
#include "support/soak.h"

namespace drover {
namespace {

/// A way to distribute a run over processes that share the batch of the command line.
struct SoakMode {
    int processes;
    int replicas;
    const char* flags;
    bool batch_is_global;
};

constexpr SoakMode soak_modes[] = {
    {1, 1, "", true},
    {2, 2, "", false},
    {3, 3, "--fsdp full_shard", false},
    {2, 2, "--use_zero1_optimizer", false},
    {4, 4, "--fsdp shard_grad_op", false},
    {4, 2, "--use_zero1_optimizer --tensor_parallel_size 2", false},
    {2, 1, "--tensor_parallel_size 2 --sequence_parallel", false},
    {2, 2, "--spmd_fsdp_sharding", true},
    {4, 4, "--spmd_fsdp_sharding --spmd_dcn_parallelism 2", true},
    {4, 2, "--spmd_2d_sharding 2 --spmd_grad_chkpt", true},
    {4, 2, "--spmd_2d_sharding 2 --sequence_parallel no", true},
    {4, 1, "--spmd_2d_sharding 4", true},
};

class ProcessSoak : public test::MeshRuns {
  protected:
    /// Trains to a random step in one random mode and to the end in another.
    void play(std::uint32_t seed) const {
        constexpr int rows = 12, steps = 6;  // divisible by any number of replicas above
        std::mt19937 generator(seed);
        const auto draw = [&](std::size_t end) { return generator() % end; };
        const std::string optimizer = draw(2) == 0 ? "adamw_torch" : "adafactor";
        const std::string model = draw(2) == 0 ? "llama" : "mixtral";
        const std::string common = fmt::format(
            " --config_name '{}' --max_train_samples 36 --gradient_accumulation_steps {} --optim {} "
            "--logging_steps 1 --learning_rate 3e-3 --lr_scheduler_type constant --save_steps 1 "
            "--max_steps {} ",
            test::golden_path("run_clm/configs/" + model + ".json").string(), 1 + draw(2), optimizer, steps);
        const std::string folder = fmt::format("seed-{}", seed);
        const auto run = [&](const SoakMode& mode, const std::string& output, const std::string& more) {
            const std::string flags =
                common + fmt::format("--per_device_train_batch_size {} {} {}",
                                     mode.batch_is_global ? rows : rows / mode.replicas, mode.flags, more);
            const test::Outcome outcome = train_on(mode.processes, folder + output, flags);
            EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        };
        const SoakMode first = soak_modes[draw(std::size(soak_modes))],
                       second = soak_modes[draw(std::size(soak_modes))];
        const auto step = static_cast<std::int64_t>(1 + draw(steps - 1));
        const std::string way =
            fmt::format("{}, {}: {} processes {}; from step {} on {} processes {}", model, optimizer,
                        first.processes, first.flags, step, second.processes, second.flags);
        SCOPED_TRACE(way);
        run(soak_modes[0], "/alone", "");
        run(first, "/first", "");
        if (HasFailure()) return;
        run(second, "/second",
            fmt::format("--resume_from_checkpoint '{}'", checkpoint(folder + "/first", step).string()));
        if (HasFailure()) return;
        expect_same_records(folder + "/first", folder + "/alone");
        // Totals of a resumed run count from where it resumed.
        expect_same_records(folder + "/second", folder + "/alone", {"train_loss"});
        std::filesystem::remove_all(folder_ / folder);
        if (std::getenv("DROVER_SOAK_SECONDS") != nullptr) fmt::print("seed {}: {}\n", seed, way);
    }
};

TEST_F(ProcessSoak, AnyModeGoesOnFromAnyOther) {
    test::soak("test_app", "ProcessSoak.AnyModeGoesOnFromAnyOther", [&](std::uint32_t seed) { play(seed); });
}

}  // namespace
}  // namespace drover
