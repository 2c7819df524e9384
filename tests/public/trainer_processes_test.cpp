#include <csignal>

#include "app/mesh_runs.h"
#include "io/safetensors.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::count_of;

/// C++ API programs on several processes started by mpirun, and on one.
class ApiProcesses : public test::MeshRuns {
  protected:
    void SetUp() override {
        test::MeshRuns::SetUp();
        make_model("model");
    }
    void make_model(const std::string& name) const {
        fs::create_directories(folder_ / name);
        for (const fs::path& from : {test::golden_path("run_clm/saved"),
                                     fs::path(DROVER_SOURCE_DIR) / "examples/tokenizers/shakespeare-4k"})
            fs::copy(from, folder_ / name,
                     fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    }
    static std::string quotes() {
        return (fs::path(DROVER_SOURCE_DIR) / "examples/data/quotes.jsonl").string();
    }

    std::string on(int processes, const std::string& command) const {
        return processes == 1 ? command : fmt::format("{} -n {} {}", mpirun(), processes, command);
    }
    /// The example: one epoch of eight updates.
    test::Outcome finetune(int processes, const std::string& output,
                           const std::string& model = "model") const {
        return shell(on(processes, fmt::format("{} {} '{}' {} 1", FINETUNE_QUOTES, model, quotes(), output)));
    }
    test::Outcome program(int processes, const std::string& scenario, const std::string& output) const {
        return shell(
            on(processes, fmt::format("{} {} model '{}' {}", TRAINER_PROGRAM, scenario, quotes(), output)));
    }
    static void expect_shown_once(const test::Outcome& outcome, const std::string& text, int exit_code) {
        EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
        EXPECT_EQ(count_of(outcome.output, text), 1u) << outcome.output;
        EXPECT_EQ(count_of(outcome.output, "drover: ") + count_of(outcome.output, "_quotes: ") +
                      count_of(outcome.output, "_program: "),
                  1u)
            << outcome.output;
    }
    /// Two numbers that the program prints after a word.
    static std::pair<double, double> numbers_behind(const std::string& word, const std::string& output) {
        const auto at = output.find("\n" + word + " ");
        double loss = 0, accuracy = 0;
        EXPECT_TRUE(at != std::string::npos &&
                    std::sscanf(output.c_str() + at + word.size() + 2, "%lf %lf", &loss, &accuracy) == 2)
            << output;
        return {loss, accuracy};
    }
    void expect_same_weights(const std::string& actual, const std::string& expected) const {
        const SafetensorsFile a(folder_ / actual / "model.safetensors"),
            b(folder_ / expected / "model.safetensors");
        ASSERT_EQ(a.header().entries.size(), b.header().entries.size());
        for (const SafetensorsEntry& entry : b.header().entries) {
            const Tensor one = a.tensor(entry.name), other = b.tensor(entry.name);
            ASSERT_EQ(one.shape(), other.shape()) << entry.name;
            double largest = 0;
            for (std::int64_t i = 0; i < one.numel(); ++i)
                largest = std::max<double>(largest, std::abs(one.data<float>()[i] - other.data<float>()[i]));
            EXPECT_LT(largest, 2e-5) << entry.name;
        }
    }
    /// Trains on one process and on several: records, evaluations, checkpoints and the saved model agree.
    void compare_with_one(int processes, const std::string& scenario,
                          const std::vector<std::string>& except = {}) const {
        const test::Outcome one = program(1, "train", "one"), several = program(processes, scenario, "out");
        ASSERT_EQ(one.exit_code, 0) << one.output;
        ASSERT_EQ(several.exit_code, 0) << several.output;
        expect_same_records("out", "one", except);
        for (const char* when : {"before", "after", "again"}) {
            const auto [loss, accuracy] = numbers_behind(when, several.output);
            const auto [expected_loss, expected_accuracy] = numbers_behind(when, one.output);
            EXPECT_NEAR(loss, expected_loss, 1e-4) << when;
            EXPECT_NEAR(accuracy, expected_accuracy, 1e-6) << when;
            EXPECT_EQ(count_of(several.output, fmt::format("\n{} ", when)), 1u) << several.output;
        }
        EXPECT_EQ(steps_in("out"), (std::vector<std::int64_t>{6, 12}));
        EXPECT_EQ(find_damage(checkpoint("out", 12)), std::nullopt);
        expect_same_weights("out", "one");
        EXPECT_EQ(read_text_file(folder_ / "out/config.json"), read_text_file(folder_ / "one/config.json"));
    }
};

TEST_F(ApiProcesses, TheExampleHasTheLossesOfOneProcess) {
    const test::Outcome one = finetune(1, "one");
    ASSERT_EQ(one.exit_code, 0) << one.output;
    ASSERT_EQ(history("one").size(), 9u);
    for (const int processes : {2, 4}) {
        const std::string output = fmt::format("out{}", processes);
        const test::Outcome several = finetune(processes, output);
        ASSERT_EQ(several.exit_code, 0) << several.output;
        expect_same_records(output, "one", {"grad_norm"});  // bf16 gradients round differently
        EXPECT_NE(several.output.find(fmt::format("{} processes on 1 machine, ZeRO-3 (FSDP):", processes)),
                  std::string::npos)
            << several.output;
        for (const char* said : {"***** Running training *****", "'train_loss'", "8 updates, mean loss"})
            EXPECT_EQ(count_of(several.output, said), 1u) << several.output;
        EXPECT_EQ(count_of(several.output, "{'loss'"), 8u) << several.output;
    }
}

TEST_F(ApiProcesses, TwoProcessesTrainEvaluateAndSaveAsOne) {
    compare_with_one(2, "train");
}

TEST_F(ApiProcesses, FourProcessesInTwoDimensionsTrainEvaluateAndSaveAsOne) {
    compare_with_one(4, "train_2d", {"total_flos"});  // rows are padded to an even length
}

TEST_F(ApiProcesses, ATrainedModelSpeaksAsItWasSaved) {
    struct Case {
        int processes;
        std::string scenario;
        bool spread;  ///< no process has all weights
    };
    for (const Case& one :
         {Case{2, "speak", true}, Case{4, "speak_2d", true}, Case{2, "speak_whole", false}}) {
        const test::Outcome outcome = program(one.processes, one.scenario, "out_" + one.scenario);
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
        const auto said = [&](int rank, const std::string& who) {
            const std::string before = fmt::format("rank {}, {}: ", rank, who);
            const auto at = outcome.output.find(before);
            if (at == std::string::npos) return "nothing by " + who;
            const auto begin = at + before.size();
            return outcome.output.substr(begin, outcome.output.find('\n', begin) - begin);
        };
        for (int rank = 0; rank < one.processes; ++rank) {
            EXPECT_EQ(said(rank, "trained"), said(rank, "saved")) << one.scenario << " " << outcome.output;
            EXPECT_NE(said(rank, "trained"), said(rank, "untrained")) << one.scenario;
            EXPECT_EQ(said(rank, "left"), said(rank, "saved")) << outcome.output;
        }
        if (!one.spread) {
            EXPECT_EQ(said(1, "alone"), said(1, "saved")) << outcome.output;
        }
    }
}

TEST_F(ApiProcesses, TwoTrainersTrainOneModelOneAfterTheOther) {
    const test::Outcome one = program(1, "twice", "one");
    ASSERT_EQ(one.exit_code, 0) << one.output;
    const test::Outcome several = program(2, "twice", "out");
    ASSERT_EQ(several.exit_code, 0) << several.output;
    for (const char* when : {"before", "between", "after", "again"}) {
        const auto [loss, accuracy] = numbers_behind(when, several.output);
        const auto [expected_loss, expected_accuracy] = numbers_behind(when, one.output);
        EXPECT_NEAR(loss, expected_loss, 1e-4) << when;
        EXPECT_NEAR(accuracy, expected_accuracy, 1e-6) << when;
    }
    expect_same_weights("out", "one");
    const auto loss = [&](const char* when) { return numbers_behind(when, one.output).first; };
    EXPECT_LT(loss("between"), loss("before") - 0.1);
    EXPECT_LT(loss("after"), loss("between") - 0.05);
    EXPECT_NEAR(loss("again"), loss("after"), 1e-3);  // there EOS is a target
}

TEST_F(ApiProcesses, WhatOneCallbackAsksForAllDo) {
    for (const int processes : {1, 2}) {
        const std::string output = fmt::format("out{}", processes);
        const test::Outcome outcome = program(processes, "ask", output);
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
        for (int rank = 0; rank < processes; ++rank)
            EXPECT_EQ(count_of(outcome.output, fmt::format("rank {} ended after step 7\n", rank)), 1u)
                << outcome.output;
        EXPECT_EQ(steps_in(output), (std::vector<std::int64_t>{2})) << outcome.output;
        EXPECT_EQ(find_damage(checkpoint(output, 2)), std::nullopt);
        EXPECT_EQ(count_of(outcome.output, "'eval_loss'"), 1u) << outcome.output;
    }
}

TEST_F(ApiProcesses, AnExceptionOfACallbackEndsAll) {
    expect_shown_once(program(2, "callback_error", "out"),
                      "drover: Rank 1: A callback of the program failed: enough of this", 1);
    expect_shown_once(program(2, "callback_errors", "out2"),
                      "drover: A callback of the program failed: enough of this", 1);
    expect_shown_once(program(2, "rows_error", "out3"),
                      "The train_dataset of the program failed: out of rows", 1);
    expect_shown_once(program(1, "callback_error", "out4"), "trainer_program: enough of this", 3);
}

/// The step is saved, the program goes on, and its own handler is there again; the run that was stopped and
/// continued ends as one that was not.
TEST_F(ApiProcesses, SigtermSavesWhereTheProgramAsksForIt) {
    for (const int processes : {1, 2}) {
        const std::string output = fmt::format("out{}", processes), whole = fmt::format("whole{}", processes);
        const test::Outcome outcome = program(processes, "sigterm", output);
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
        for (int rank = 0; rank < processes; ++rank) {
            const int late =
                rank == processes - 1 ? 1 : 0;  // the signal that came when nothing was left to stop
            for (const std::string& line : {std::string("step 5, interrupted 1, own signals 0"),
                                            fmt::format("step 12, interrupted 0, own signals {}", late),
                                            fmt::format("step 0, interrupted 0, own signals {}", late + 1)})
                EXPECT_EQ(count_of(outcome.output, fmt::format("rank {}: {}\n", rank, line)), 1u)
                    << line << "\n"
                    << outcome.output;
        }
        EXPECT_EQ(steps_in(output), (std::vector<std::int64_t>{5, 6, 12}));
        const test::Outcome unbroken = program(processes, "train", whole);
        ASSERT_EQ(unbroken.exit_code, 0) << unbroken.output;
        test::expect_equal_state(checkpoint(output, 12), checkpoint(whole, 12));
        EXPECT_EQ(test::timeless_history(checkpoint(output, 12) / "trainer_state.json"),
                  test::timeless_history(checkpoint(whole, 12) / "trainer_state.json"));
    }
}

/// The signal comes while the threads of OpenMP compute.
TEST_F(ApiProcesses, SigtermFromOutsideSaves) {
    setenv("OMP_NUM_THREADS", "3", 1);
    const test::Outcome outcome =
        shell(fmt::format("{{ {} until_signal model '{}' out > log & }}; "
                          "until grep -q 'well under way' log; do sleep 0.02; done; kill -TERM $!; wait $!; "
                          "echo \"status $?\"; cat log",
                          TRAINER_PROGRAM, quotes()));
    EXPECT_EQ(count_of(outcome.output, "status 0\n"), 1u) << outcome.output;
    const std::vector<std::int64_t> steps = steps_in("out");
    ASSERT_EQ(steps.size(), 1u) << outcome.output;
    EXPECT_EQ(count_of(outcome.output, fmt::format("interrupted 1 after step {}\n", steps[0])), 1u)
        << outcome.output;
    EXPECT_EQ(find_damage(checkpoint("out", steps[0])), std::nullopt);
}

TEST_F(ApiProcesses, SigtermIsLeftAloneOtherwise) {
    const test::Outcome outcome = program(1, "own_sigterm", "out");
    EXPECT_EQ(outcome.exit_code, 128 + SIGTERM) << outcome.output;
    EXPECT_EQ(count_of(outcome.output, "not ended"), 0u);
}

TEST_F(ApiProcesses, AModelFromAConfigHasTheWeightsOfTheCommand) {
    fs::copy_file(test::golden_path("run_clm/configs/llama.json"), folder_ / "model/config.json",
                  fs::copy_options::overwrite_existing);
    const test::Outcome outcome = program(1, "from_config", "fresh");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    // Without a learning rate the weights stay as they were made.
    const test::Outcome command = train("run", "--seed 7 --learning_rate 0 --max_steps 1");
    ASSERT_EQ(command.exit_code, 0) << command.output;
    EXPECT_EQ(read_text_file(folder_ / "fresh/model.safetensors"),
              read_text_file(folder_ / "run/model.safetensors"));
}

TEST_F(ApiProcesses, WhatAllCannotDoIsShownOnce) {
    expect_shown_once(finetune(3, "out", "absent"), "The tokenizer's model_id is \"absent\"", 1);
    const fs::path weights = folder_ / "model" / "model.safetensors";
    fs::resize_file(weights, fs::file_size(weights) / 2);
    expect_shown_once(finetune(3, "out"), "drover: model/model.safetensors ends inside", 1);
    setenv("DROVER_MPI_MODULE", "/nonexistent/drover_mpi.so", 1);
    expect_shown_once(finetune(2, "out"), "drover: MPI, through which the processes find each other", 1);
    unsetenv("DROVER_MPI_MODULE");
}

/// The same names on two machines, but one of the files is truncated: train() fails in one process only.
TEST_F(ApiProcesses, AFailureOfOneEndsAll) {
    make_model("a/model");
    make_model("b/model");
    const fs::path weights = folder_ / "b/model/model.safetensors";
    fs::resize_file(weights, fs::file_size(weights) / 2);
    const std::string words = fmt::format("{} model '{}' out 1", FINETUNE_QUOTES, quotes());
    expect_shown_once(shell(fmt::format("{0} -n 2 --wdir a {1} : -n 1 --wdir b {1}", mpirun(), words)),
                      "drover: Rank 2: model/model.safetensors ends inside", 1);
}

TEST_F(ApiProcesses, ProcessesThatDifferAreNamed) {
    expect_shown_once(program(3, "unlike", "out"),
                      "rank 0 differs from rank 1 in --learning_rate (0.001 there, 0.005 on rank 0).", 1);
    expect_shown_once(program(2, "save_on_one", "out"),
                      "different calls: rank 0 to save_model(\"out\"), rank 1 to the end of the program.", 1);
}

/// An exception of the program itself between two calls also ends the other processes.
TEST_F(ApiProcesses, AnEndWithAnotherStatusEndsAll) {
    expect_shown_once(program(3, "own_error", "out"), "something that rank 1 alone does not like", 3);
}

}  // namespace
}  // namespace drover
