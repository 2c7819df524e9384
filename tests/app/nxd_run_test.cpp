#include <cmath>
#include <cstring>
#include <map>
#include <regex>
#include <set>

#include "app/mesh_runs.h"
#include "core/json_text.h"
#include "core/program_module.h"
#include "data/datasets/arrow_tokens.h"
#include "support/background_run.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

struct Line {
    std::int64_t step;
    double loss, norm;
};

/// Scalars of a TensorBoard file by tag and step.
std::map<std::string, std::map<std::int64_t, double>> scalars_of(const fs::path& file) {
    const std::string bytes = read_text_file(file);
    std::map<std::string, std::map<std::int64_t, double>> scalars;
    const auto varint = [](const std::string& text, std::size_t& at) {
        std::uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            const auto byte = static_cast<unsigned char>(text[at++]);
            value |= static_cast<std::uint64_t>(byte & 127) << shift;
            if ((byte & 128) == 0) return value;
        }
    };
    /// Calls `field(number, contents, integer)` for the fields of a protobuf message.
    const auto each_field = [&](const std::string& message, const auto& field) {
        for (std::size_t at = 0; at < message.size();) {
            const std::uint64_t key = varint(message, at), kind = key & 7;
            std::string contents;
            std::uint64_t integer = 0;
            if (kind == 0) integer = varint(message, at);
            if (kind == 2) {
                const std::uint64_t size = varint(message, at);
                contents = message.substr(at, size);
            }
            if (kind == 1) contents = message.substr(at, 8);
            if (kind == 5) contents = message.substr(at, 4);
            at += contents.size();
            field(key >> 3, contents, integer);
        }
    };
    for (std::size_t at = 0; at + 12 < bytes.size();) {
        std::uint64_t size = 0;
        std::memcpy(&size, bytes.data() + at, 8);
        std::int64_t step = 0;
        each_field(bytes.substr(at + 12, size), [&](std::uint64_t number, const std::string& contents,
                                                    std::uint64_t integer) {
            if (number == 2) step = static_cast<std::int64_t>(integer);
            if (number != 5) return;
            each_field(contents, [&](std::uint64_t, const std::string& value, std::uint64_t) {
                std::string tag;
                each_field(value, [&](std::uint64_t inner, const std::string& text, std::uint64_t) {
                    float number_read = 0;
                    if (inner == 1) tag = text;
                    if (inner == 2) std::memcpy(&number_read, text.data(), 4);
                    if (inner == 2) scalars[tag][step] = static_cast<double>(number_read);
                });
            });
        });
        at += size + 16;
    }
    return scalars;
}

/// Runs of `drover run_llama_nxd` on the data of tools/oracle/nxd_run.py.
class NxdRun : public test::MeshRuns {
  protected:
    void SetUp() override {
        MeshRuns::SetUp();
        if (load_module("arrow").handle == nullptr) GTEST_SKIP() << "drover_arrow.so was not built";
    }
    static fs::path golden() { return test::golden_path("nxd_run"); }

    std::string nxd(int processes, const std::string& more) const {
        return fmt::format(
            "{} {} run_llama_nxd --device cpu --training_config '{}' --training_dir '{}' "
            "--tensor_parallel_size 1 "
            "--max_steps 10 --train_batch_size 4 --num_microbatches 2 --lr 1e-2 --min_lr 1e-3 --warmup_steps "
            "2 "
            "--weight_decay 0.1 --tb_dir tb {}",
            processes == 1 ? "" : fmt::format("{} -n {}", mpirun(), processes), DROVER_BINARY,
            golden().string(), (golden() / "data").string(), more);
    }
    std::vector<Line> train(int processes, const std::string& more) const {
        const test::Outcome outcome = shell(nxd(processes, more));
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        last_output_ = outcome.output;
        const std::regex form(
            "step (\\d+) step_time \\S+s throughput \\S+ seq/s step loss (\\S+) grad norm (\\S+)");
        std::vector<Line> lines;
        for (std::sregex_iterator match(last_output_.begin(), last_output_.end(), form), end; match != end;
             ++match)
            lines.push_back({std::stoll((*match)[1]), std::stod((*match)[2]), std::stod((*match)[3])});
        return lines;
    }
    fs::path event_file(const std::string& folder = "tb") const {
        for (const auto& entry : fs::recursive_directory_iterator(folder_ / folder))
            if (entry.path().filename().string().starts_with("events.out.tfevents.")) return entry.path();
        return {};
    }
    /// Blocks of 8 different tokens, in the folder "small".
    void make_small_data() const {
        std::vector<std::int32_t> block;
        int number = 0;
        write_arrow_token_dataset(folder_ / "small", [&]() -> std::span<const std::int32_t> {
            block.assign(16, 0);
            for (std::size_t i = 0; i < block.size(); ++i)
                block[i] = static_cast<std::int32_t>((i * i + static_cast<std::size_t>(number)) % 8);
            return number++ < 8 ? std::span<const std::int32_t>(block) : std::span<const std::int32_t>();
        });
    }
    static void expect_close(const std::vector<Line>& lines, const std::vector<Line>& expected) {
        ASSERT_EQ(lines.size(), expected.size());
        for (std::size_t i = 0; i < lines.size(); ++i) {
            EXPECT_EQ(lines[i].step, expected[i].step);
            EXPECT_NEAR(lines[i].loss, expected[i].loss, 2e-5) << "step " << lines[i].step;
            EXPECT_NEAR(lines[i].norm, expected[i].norm, 2e-4) << "step " << lines[i].step;
        }
    }
    static std::vector<Line> recorded(const Json& run) {
        std::vector<Line> lines;
        for (const Json& record : run.at("records"))
            lines.push_back({record.at("step"), record.at("step loss"), record.at("global_norm")});
        return lines;
    }

    mutable std::string last_output_;
};

TEST_F(NxdRun, LossesNormsTagsAndResultsAreTheScripts) {
    const std::map<std::string, std::pair<int, std::string>> flags{
        {"usual", {1, ""}},
        {"fp32_optimizer", {1, "--use_fp32_optimizer 1 --weight_decay 0.3"}},
        {"constant_steps", {1, "--constant_steps 4 --logging_interval 3 --weight_decay 0.01"}},
        {"two_ranks", {2, "--num_microbatches 4 --use_zero1_optimizer 1"}}};
    const Json runs = read_json_file(golden() / "expected.json").at("runs");
    EXPECT_EQ(runs.size(), flags.size());
    for (const auto& [name, run] : runs.items()) {
        SCOPED_TRACE(name);
        fs::create_directories(folder_ / name / "kept");
        const auto& [processes, more] = flags.at(name);
        expect_close(train(processes, fmt::format("{0} --tb_dir {1} --metrics_file {1}/r.json", more, name)),
                     recorded(run));
        EXPECT_TRUE(fs::exists(folder_ / name / "kept")) << "nothing in --tb_dir is deleted";
        const auto scalars = scalars_of(event_file(name));
        std::set<std::string> tags;
        for (const auto& [tag, values] : scalars) tags.insert(tag);
        EXPECT_EQ(tags, (std::set<std::string>{"global_norm", "input_ids", "iteration_time", "lr",
                                               "step loss", "throughput"}));
        for (const Json& record : run.at("records")) {
            const std::int64_t step = record.at("step");
            EXPECT_EQ(scalars.at("input_ids").at(step), record.at("input_ids").get<double>());
            EXPECT_NEAR(scalars.at("lr").at(step), record.at("lr").get<double>(), 1e-9);
            EXPECT_NEAR(scalars.at("step loss").at(step), record.at("step loss").get<double>(), 2e-5);
        }
        const Json results = read_json_file(folder_ / name / "r.json").at("results");
        EXPECT_EQ(results.at("parameters"), (Json{{"Model", "llama"},
                                                  {"World size", processes},
                                                  {"Data parallel degree", run.at("data_parallel")},
                                                  {"Batch size", 4},
                                                  {"Total steps", 10},
                                                  {"Seed", 1234},
                                                  {"Warmup steps", 2},
                                                  {"Dataset", "data"}}));
        const Json& last = results.at("metrics").at(0);
        EXPECT_NEAR(last.at("MeasuredValue").get<double>(), run.at("final_loss").get<double>(), 2e-5);
        EXPECT_EQ(last.at("AdditionalData"), (Json{{"Epoch", run.at("epoch")}, {"Global step", 10}}));
    }
    EXPECT_FALSE(fs::exists(folder_ / "trainer_output")) << "only what was asked for is written";
}

/// Also a tensor split wider than the key/value heads, so that each is on two ranks.
TEST_F(NxdRun, EveryMeshHasTheLossesOfOneProcess) {
    const Json runs = read_json_file(golden() / "expected.json").at("runs");
    for (const std::string mesh :
         {"--tensor_parallel_size 2 --pipeline_parallel_size 2 --use_zero1_optimizer 1 "
          "--use_selective_checkpoint 1",
          "--tensor_parallel_size 4 --kv_replicator 2 --qkv_linear 1 --use_sequence_parallel 0"}) {
        SCOPED_TRACE(mesh);
        expect_close(train(4, mesh), recorded(runs.at("usual")));
    }
    expect_close(train(2, "--num_layer 4 --pipeline_parallel_size 2 --virtual_pipeline_size 2"),
                 train(1, "--num_layer 4"));
    for (const std::string mesh : {"--pipeline_parallel_size 2", "--tensor_parallel_size 2"}) {
        SCOPED_TRACE("data and " + mesh);
        expect_close(train(4, mesh + " --num_microbatches 4 --use_zero1_optimizer 1"),
                     recorded(runs.at("two_ranks")));
    }
}

TEST_F(NxdRun, ContinuesFromEveryFormOfLoadingStep) {
    const std::vector<Line> whole = train(1, "");
    const std::string saving = "--checkpoint_dir ck --checkpoint_freq 4 --async_checkpoint_saving 1 ";
    train(1, saving + "--max_steps 10");
    const auto folders = [&] {
        std::set<std::string> names;
        for (const auto& entry : fs::directory_iterator(folder_ / "ck"))
            names.insert(entry.path().filename());
        return names;
    };
    EXPECT_EQ(folders(), (std::set<std::string>{"step_4", "step_8"})) << "and no other file";
    EXPECT_EQ(find_damage(folder_ / "ck/step_8"), std::nullopt);

    const auto expect_tail = [&](const std::vector<Line>& lines, std::size_t from) {
        ASSERT_EQ(lines.size(), whole.size() - from) << last_output_;
        for (std::size_t i = 0; i < lines.size(); ++i) {
            EXPECT_EQ(lines[i].step, whole[from + i].step);
            EXPECT_EQ(lines[i].loss, whole[from + i].loss);
        }
    };
    expect_tail(train(1, "--checkpoint_dir ck --loading_step 4"), 4);
    expect_tail(train(1, "--checkpoint_dir ck --loading_step latest_if_exists"), 8);
    expect_tail(train(1, saving + "--loading_step -1 --num_kept_checkpoint 1"), 0);
    EXPECT_EQ(folders(), (std::set<std::string>{"step_8"}));
    expect_tail(train(1, "--checkpoint_dir none --loading_step latest_if_exists"), 0);
    const test::Outcome absent = shell(nxd(1, "--checkpoint_dir ck --loading_step 5"));
    EXPECT_EQ(absent.exit_code, 1);
    EXPECT_NE(absent.output.find("there is no ck/step_5"), std::string::npos) << absent.output;
}

/// Saved on four ranks for neuronx-distributed, with master copies and repeated heads; continued on other
/// meshes. On the same mesh it goes on to the bit.
TEST_F(NxdRun, WritesWhatNeuronxDistributedWouldAndContinuesFromIt) {
    const std::string mesh =
        "--tensor_parallel_size 4 --kv_replicator 2 --qkv_linear 1 --use_zero1_optimizer 1 --dtype bfloat16 ";
    const std::string saving = mesh + "--checkpoint_dir ck --checkpoint_freq 4 --checkpoint_format nxd ";
    const std::vector<Line> whole = train(4, saving + "--async_checkpoint_saving 1");
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / "ck/step_8"))
        names.insert(entry.path().filename());
    for (const char* name : {"model", "optim", "checkpoint", "done", "scheduler.pt", "user_content.pt"})
        EXPECT_TRUE(names.contains(name)) << name;
    for (const std::string& name : names) EXPECT_FALSE(name.ends_with(".safetensors")) << name;
    EXPECT_TRUE(fs::exists(folder_ / "ck/step_8/model/dp_rank_00_tp_rank_03_pp_rank_00.pt.tensors"));
    EXPECT_TRUE(fs::exists(folder_ / "ck/step_8/optim/dp_rank_00_tp_rank_03_pp_rank_00.pt"));

    const std::vector<Line> same = train(4, saving + "--loading_step 4 --checkpoint_freq -1");
    ASSERT_EQ(same.size(), 6u) << last_output_;
    for (std::size_t i = 0; i < same.size(); ++i) EXPECT_EQ(same[i].loss, whole[i + 4].loss);
    const std::vector<Line> alone =
        train(1, "--dtype bfloat16 --checkpoint_dir ck --loading_step latest_if_exists --checkpoint_freq -1");
    ASSERT_EQ(alone.size(), 2u) << last_output_;
    for (std::size_t i = 0; i < alone.size(); ++i)
        EXPECT_NEAR(alone[i].loss, whole[i + 8].loss, 0.02) << "bfloat16 rounds differently on one process";

    const std::string in_float32 =
        "--pipeline_parallel_size 2 --use_zero1_optimizer 1 --num_microbatches 4 --save_load_xser 0 "
        "--checkpoint_format nxd --checkpoint_dir f32 ";
    const std::vector<Line> both = train(4, in_float32 + "--checkpoint_freq 5");
    EXPECT_TRUE(fs::exists(folder_ / "f32/step_5/optim/dp_rank_01_tp_rank_00_pp_rank_01.pt"));
    const std::vector<Line> tail(both.begin() + 5, both.end());
    expect_close(train(2, "--num_microbatches 4 --checkpoint_dir f32 --loading_step 5"), tail);
}

/// Kills fall into any moment of saves in the background; what is complete is continued to the bit.
TEST_F(NxdRun, AKillDuringASaveLosesNothingThatWasComplete) {
    const std::string more =
        "--max_steps 40 --checkpoint_dir ck --checkpoint_freq 1 --async_checkpoint_saving 1 "
        "--loading_step latest_if_exists --num_kept_checkpoint 3";
    const std::vector<Line> whole = train(1, "--max_steps 40");
    const std::string words = nxd(1, more);
    for (const int saves : {2, 5, 9}) {
        test::BackgroundRun run(words.substr(words.find("run_llama_nxd")), folder_ / "log",
                                "env -C " + folder_.path().string());
        ASSERT_TRUE(run.wait_until([&] { return fs::exists(folder_ / fmt::format("ck/step_{}", saves)); }))
            << run.output();
        run.send(SIGKILL);
        run.exit_code();
    }
    const std::vector<Line> rest = train(1, more);
    ASSERT_FALSE(rest.empty());
    EXPECT_GE(rest.front().step, 9) << "it continued";
    for (const Line& line : rest) EXPECT_EQ(line.loss, whole.at(static_cast<std::size_t>(line.step)).loss);
    EXPECT_EQ(rest.back().step, 39);
}

TEST_F(NxdRun, StartsFromShardsOfAnyRanks) {
    const fs::path shards = test::golden_path("nxd/gqa_trn1");
    make_small_data();
    const std::string config = fmt::format("--training_config '{}' --training_dir small ", shards.string());
    const std::string converted = fmt::format(
        "convert --convert_to_full_model --input_dir '{0}/model' --config '{0}/config.json' --qkv_linear "
        "True "
        "--kv_size_multiplier 2 --output_format safetensors --output_dir full",
        shards.string());
    const test::Outcome made = test::run_in(folder_.path().string(), converted);
    ASSERT_EQ(made.exit_code, 0) << made.output;
    const std::vector<Line> whole = train(1, config + "--pretrained_weight_dir full");
    expect_close(train(1, config + fmt::format("--pretrained_weight_dir '{}'", shards.string())), whole);
    fs::create_directories(folder_ / "ck");
    fs::copy(shards, folder_ / "ck/pretrained_weight", fs::copy_options::recursive);
    // These weights are no trained model's: losses of other meshes soon drift apart.
    const Line split =
        train(2, config + "--tensor_parallel_size 2 --checkpoint_dir ck --pretrained_weight 1 --max_steps 1")
            .at(0);
    EXPECT_NEAR(split.loss, whole.at(0).loss, 1e-4);
    EXPECT_NEAR(split.norm, whole.at(0).norm, 1e-4 * split.norm);
    EXPECT_GT(std::abs(train(1, config).front().loss - whole.front().loss), 1e-3) << "new weights are others";
}

/// As a checkpoint of ours made of it does; tests of drover convert compare that with the run that was cut.
TEST_F(NxdRun, ContinuesWhatNeuronxDistributedBegan) {
    make_small_data();
    for (const std::string name : {"zero1", "whole"}) {
        SCOPED_TRACE(name);
        const fs::path run = test::golden_path("nxd_runs") / name;
        const Json cut = read_json_file(run / "case.json");
        const fs::path model =
            test::golden_path("trainer_checkpoint") / cut.at("run").get<std::string>() / "checkpoint-4";
        const test::Outcome made =
            test::run_in(folder_.path().string(),
                         fmt::format("convert --convert_to_full_state --input_dir '{}/step_4' --config '{}' "
                                     "--kv_size_multiplier {} --output_format resumable --output_dir made_{}",
                                     run.string(), model.string(), cut.value("kv_size_multiplier", 1), name));
        ASSERT_EQ(made.exit_code, 0) << made.output;
        fs::rename(folder_ / ("made_" + name) / "checkpoint-4", folder_ / ("made_" + name) / "step_4");
        const std::string words =
            fmt::format("--training_config '{}' --training_dir small --max_steps 8 ", model.string());
        const std::vector<Line> expected =
            train(1, fmt::format("{} --checkpoint_dir made_{} --loading_step 4", words, name));
        ASSERT_EQ(expected.size(), 4u) << last_output_;
        EXPECT_EQ(expected.front().step, 4);
        fs::create_directories(folder_ / name);
        fs::copy(run / "step_4", folder_ / name / "step_4", fs::copy_options::recursive);
        const std::string given = fmt::format("{} --checkpoint_dir {} ", words, name);
        for (const std::string step : {"4", "latest_if_exists"}) {
            const std::vector<Line> lines = train(1, given + "--loading_step " + step);
            ASSERT_EQ(lines.size(), expected.size()) << last_output_;
            for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i].loss, expected[i].loss);
        }
        expect_close(train(2, given + "--loading_step 4 --tensor_parallel_size 2 --use_zero1_optimizer 1"),
                     expected);
    }
    fs::remove(folder_ / "whole/step_4/done");
    const test::Outcome partial = shell(nxd(1, "--checkpoint_dir whole --loading_step 4"));
    EXPECT_NE(partial.output.find("it has no file \"done\""), std::string::npos) << partial.output;
}

TEST_F(NxdRun, ASignalSavesTheStepOnlyWhereCheckpointsAreWritten) {
    for (const bool saves : {true, false}) {
        const std::string words =
            nxd(1, saves ? "--max_steps 100000 --checkpoint_dir ck" : "--max_steps 100000");
        test::BackgroundRun run(words.substr(words.find("run_llama_nxd")), folder_ / "log",
                                "env -C " + folder_.path().string());
        ASSERT_TRUE(run.wait_until([&] { return run.output().find("step 3 ") != std::string::npos; }))
            << run.output();
        run.send(SIGTERM);
        EXPECT_EQ(run.exit_code(), 128 + SIGTERM) << run.output();
        const std::string said = saves ? "which is saved in ck/step_" : "which is not saved";
        EXPECT_NE(run.output().find(said), std::string::npos) << run.output();
        EXPECT_EQ(run.output().find("finished"), std::string::npos);
    }
}

TEST_F(NxdRun, RefusesWhatCannotBeTrained) {
    const auto expect_refusal = [&](int processes, const std::string& more, const std::string& part) {
        const test::Outcome outcome = shell(nxd(processes, more));
        EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
        EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
    };
    expect_refusal(1, "--tensor_parallel_size 8", "--tensor_parallel_size 8 does not divide the 1 process");
    expect_refusal(1, "--seq_len 64", "has rows of 32 tokens, but --seq_len is 64");
    expect_refusal(1, "--train_batch_size 30", "has 29 rows, too few for an update of 30");
    expect_refusal(1, "--training_dir none", "none");
}

TEST_F(NxdRun, ATrialWritesNoCheckpoint) {
    setenv("NEURON_EXTRACT_GRAPHS_ONLY", "1", 1);
    const std::vector<Line> lines =
        train(1, "--max_steps 500 --checkpoint_dir ck --checkpoint_freq 1 --loading_step 7");
    unsetenv("NEURON_EXTRACT_GRAPHS_ONLY");
    EXPECT_EQ(lines.size(), 10u);
    EXPECT_FALSE(fs::exists(folder_ / "ck"));
    EXPECT_FALSE(fs::exists(folder_ / "results.json"));
}

}  // namespace
}  // namespace drover
