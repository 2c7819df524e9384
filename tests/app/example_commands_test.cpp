#include "app/mesh_runs.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::count_of;

/// The scripts of examples/commands, with a small model and two processes.
class ExampleCommands : public test::MeshRuns {
  protected:
    test::Outcome run(const std::string& script, const std::string& variables,
                      const std::string& flags) const {
        const fs::path data = test::golden_path("run_clm");
        return shell(fmt::format(
            "env DROVER='{}' MPIRUN='{}' NPROC=2 PJRT_DEVICE=CPU OUTPUT=out CACHE=cache PROFILE_LOGDIR=trace "
            "DATA='--train_file {}' {} '{}' {} --max_train_samples 8",
            DROVER_BINARY, mpirun(), (data / "train.txt").string(), variables,
            test::example_path("commands/" + script).string(), flags));
    }
    static std::string config(const std::string& name) {
        return test::golden_path("run_clm/configs/" + name + ".json").string();
    }
    static std::string tokenizer() { return test::example_path("tokenizers/shakespeare-4k").string(); }

    void expect_trained(const test::Outcome& outcome, int steps) const {
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
        EXPECT_EQ(count_of(outcome.output, fmt::format("Steps: {},", steps)), 1u) << outcome.output;
        EXPECT_TRUE(std::isfinite(history("out").back().at("train_loss").get<double>()));
    }
};

TEST_F(ExampleCommands, Llama2Spmd) {
    const std::string variables = fmt::format("CONFIG='{}' TOKENIZER='{}' GLOBAL_BATCH_SIZE=4 BLOCK_SIZE=32",
                                              config("llama"), tokenizer());
    const test::Outcome outcome = run("llama2_spmd.sh", variables, "");
    expect_trained(outcome, 2);
    EXPECT_NE(outcome.output.find("has 4 rows, 2 on each of 2 replicas"), std::string::npos)
        << outcome.output;
    expect_trained(run("llama2_spmd.sh", variables + " SHARDING='--spmd_2d_sharding 2'", "--spmd_defer_init"),
                   2);
}

TEST_F(ExampleCommands, MixtralFsdp) {
    const test::Outcome outcome =
        run("mixtral_fsdp.sh",
            fmt::format("CONFIG='{}' TOKENIZER='{}' GLOBAL_BATCH_SIZE=4 BLOCK_SIZE=32", config("mixtral"),
                        tokenizer()),
            "");
    expect_trained(outcome, 10);
    EXPECT_NE(outcome.output.find("ZeRO-3 (FSDP)"), std::string::npos) << outcome.output;
}

TEST_F(ExampleCommands, Llama3Sharded) {
    fs::create_directories(folder_ / "model");
    fs::copy(tokenizer(), folder_ / "model", fs::copy_options::recursive);
    fs::copy_file(config("llama"), folder_ / "model/config.json", fs::copy_options::overwrite_existing);

    const std::string variables = "MODEL=model SEQLEN=32 BS=1 JOB_NAME=job";
    for (const char* mode : {"native", "torchacc"})
        expect_trained(run("llama3_sharded.sh", variables, std::string(mode) + " --num_train_epochs 1"), 4);
    const double torchacc = history("out").back().at("train_loss");
    expect_trained(run("llama3_sharded.sh", variables, "deepspeed --num_train_epochs 1"), 4);
    // Three names for one mode.
    EXPECT_DOUBLE_EQ(history("out").back().at("train_loss").get<double>(), torchacc);
    EXPECT_TRUE(fs::exists(folder_ / "job.log"));
    // The file works for any number of processes and rows.
    expect_trained(
        run("llama3_sharded.sh", "MODEL=model SEQLEN=32 BS=2 JOB_NAME=job", "deepspeed --num_train_epochs 1"),
        2);
}

}  // namespace
}  // namespace drover
