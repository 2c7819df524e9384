#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "app/mesh_runs.h"
#include "core/json.h"
#include "core/json_text.h"
#include "support/golden.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

#define EXPECT_MENTIONS(text, part) EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, text)

std::string golden_file(const std::string& name) {
    return test::golden_path(name).string();
}

/// A model of tests/golden/generate as the one that is trained.
std::string base_flags(const std::string& model = "llama") {
    return fmt::format(
        " --config_name {0} --model_name_or_path {0} --tokenizer_name {1} --max_steps 6 "
        "--learning_rate 1e-2 --lr_scheduler_type constant ",
        golden_file("generate/" + model), golden_file("trainer_checkpoint/tokenizer"));
}

std::set<std::string> files_in(const fs::path& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
    return names;
}

Json printed_json(const std::string& command) {
    const test::Outcome outcome = test::run_drover(command + " 2>/dev/null");
    EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.output;
    return outcome.exit_code == 0 ? parse_python_json(outcome.output, command) : Json();
}

std::vector<double> printed_logits(const std::string& flags) {
    const Json found = printed_json(
        "generate --prompt_ids 256,40,68,75 --max_new_tokens 1 --dtype float32 --json "
        "--logits " +
        flags);
    return found.is_null() ? std::vector<double>{} : found.at("logits").get<std::vector<double>>();
}

void expect_close(const std::vector<double>& ours, const std::vector<double>& theirs, double tolerance) {
    ASSERT_EQ(ours.size(), theirs.size());
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
        difference += (ours[i] - theirs[i]) * (ours[i] - theirs[i]);
        norm += theirs[i] * theirs[i];
    }
    EXPECT_LE(std::sqrt(difference / norm), tolerance);
}

class LoraRun : public test::MeshRuns {
  protected:
    std::string out(const std::string& name) const { return (folder_ / name).string(); }
    std::string bytes(const std::string& file) const { return read_text_file(folder_ / file); }
};

TEST_F(LoraRun, SavesWhatPeftAndTheTrainerSave) {
    const test::Outcome run =
        train("out", base_flags() + "--use_peft --lora_r 4 --save_steps 3 --do_eval --validation_file " +
                         golden_file("run_clm/train.txt"));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_MENTIONS(run.output,
                    "LoRA r 4 on 2 modules × 2 blocks: 448 of 12,624 parameters are trained (3.55 %)");
    const std::set<std::string> checkpoint = files_in(folder_ / "out/checkpoint-3");
    for (const char* name : {"adapter_model.safetensors", "adapter_config.json", "README.md",
                             "trainer_state.json", "tokenizer.json", "training_args.json"})
        EXPECT_TRUE(checkpoint.contains(name)) << name;
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
        EXPECT_FALSE(checkpoint.contains(name)) << name;
        EXPECT_FALSE(fs::exists(folder_ / "out" / name)) << name;
    }
    EXPECT_NE(bytes("out/adapter_model.safetensors"), bytes("out/checkpoint-3/adapter_model.safetensors"));
    const std::string card = bytes("out/README.md");
    EXPECT_MENTIONS(card, "library_name: peft\n");
    EXPECT_MENTIONS(card, fmt::format("- base_model:adapter:{}\n", golden_file("generate/llama")));
    const Json config = read_json_file(folder_ / "out/adapter_config.json");
    EXPECT_EQ(config.at("target_modules"), Json::array({"q_proj", "v_proj"}));
    EXPECT_EQ(config.at("base_model_name_or_path"), golden_file("generate/llama"));
}

TEST_F(LoraRun, EveryFlagIsInTheSavedConfiguration) {
    const auto saved = [&](const std::string& flags) {
        const test::Outcome run =
            train("out", base_flags() + "--max_steps 1 --overwrite_output_dir --use_peft " + flags);
        EXPECT_EQ(run.exit_code, 0) << flags << "\n" << run.output;
        return read_json_file(folder_ / "out/adapter_config.json");
    };
    const Json plain = saved("");
    EXPECT_EQ(plain.at("r"), 16);
    EXPECT_EQ(plain.at("lora_alpha"), 32);
    EXPECT_EQ(plain.at("lora_dropout"), 0.05);
    EXPECT_EQ(plain.at("task_type"), "CAUSAL_LM");
    const Json other = saved(
        "--lora_r 3 --lora_alpha 5 --lora_dropout 0.25 --use_rslora --lora_target_modules k_proj up_proj "
        "--lora_modules_to_save lm_head");
    EXPECT_EQ(other.at("r"), 3);
    EXPECT_EQ(other.at("lora_alpha"), 5);
    EXPECT_EQ(other.at("lora_dropout"), 0.25);
    EXPECT_EQ(other.at("use_rslora"), true);
    EXPECT_EQ(other.at("target_modules"), Json::array({"k_proj", "up_proj"}));
    EXPECT_EQ(other.at("modules_to_save"), Json::array({"lm_head"}));
    EXPECT_EQ(saved("--use_dora").at("use_dora"), true);
    EXPECT_EQ(saved("--lora_target_modules all-linear").at("target_modules").size(), 7);
    EXPECT_EQ(saved("--lora_target_modules '.*o_proj'").at("target_modules"), ".*o_proj");
    EXPECT_EQ(saved("--lora_target_parameters o_proj.weight").at("target_parameters"),
              Json::array({"o_proj.weight"}));
}

TEST_F(LoraRun, ResumesBitForBit) {
    const std::string flags =
        base_flags() +
        "--use_peft --lora_r 4 --lora_target_modules all-linear --lora_modules_to_save lm_head ";
    ASSERT_EQ(train("whole", flags + "--save_steps 3").exit_code, 0);
    ASSERT_EQ(train("parts", flags + "--save_steps 3").exit_code, 0);
    fs::remove_all(folder_ / "parts/checkpoint-6");
    for (const char* name : {"trainer_state.json", "adapter_model.safetensors"})
        fs::remove(folder_ / "parts" / name);
    const test::Outcome resumed = train("parts", flags + "--save_steps 3");
    ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_MENTIONS(resumed.output, "Continuing training from global step 3");
    EXPECT_EQ(bytes("parts/adapter_model.safetensors"), bytes("whole/adapter_model.safetensors"));
    for (const char* name : {"adapter_model.safetensors", "optimizer.safetensors", "adapter_config.json"})
        EXPECT_EQ(bytes(fmt::format("parts/checkpoint-6/{}", name)),
                  bytes(fmt::format("whole/checkpoint-6/{}", name)))
            << name;
    EXPECT_EQ(test::timeless_history(folder_ / "parts/trainer_state.json"),
              test::timeless_history(folder_ / "whole/trainer_state.json"));
    // Once more: nothing is left to do.
    EXPECT_MENTIONS(train("parts", flags + "--save_steps 3").output, "Training is already complete");
}

/// Of a model whose embedding is also the head: trained, resumed on a mesh, used, merged and measured.
TEST_F(LoraRun, AdaptsTheVocabularyOfATiedModel) {
    const std::string text = golden_file("run_clm/train.txt");
    const std::string measured = " --data " + text + " --block_size 32 --json";
    const std::string eval = "--do_eval --validation_file " + text + " ";
    const std::string cases[] = {
        "--lora_target_modules embed_tokens v_proj", "--lora_target_modules embed_tokens lm_head",
        "--lora_target_modules q_proj v_proj --lora_modules_to_save embed_tokens",
        "--lora_target_modules v_proj embed_tokens --lora_modules_to_save lm_head --lora_dropout 0.2"};
    for (std::size_t i = 0; i < std::size(cases); ++i) {
        SCOPED_TRACE(cases[i]);
        const std::string whole = fmt::format("whole{}", i), parts = fmt::format("parts{}", i),
                          merged = fmt::format("merged{}", i);
        const std::string flags = base_flags("llama_tied") +
                                  "--dtype float32 --use_peft --lora_r 4 --save_steps 3 " + eval + cases[i];
        const test::Outcome run = train(whole, flags);
        ASSERT_EQ(run.exit_code, 0) << run.output;
        EXPECT_MENTIONS(run.output, "The embedding is also the output head in this model");
        ASSERT_EQ(train(parts, flags).exit_code, 0);
        fs::remove_all(folder_ / parts / "checkpoint-6");
        for (const char* name : {"trainer_state.json", "adapter_model.safetensors"})
            fs::remove(folder_ / parts / name);
        const test::Outcome resumed = train(parts, flags);
        ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
        EXPECT_MENTIONS(resumed.output, "Continuing training from global step 3");
        EXPECT_EQ(bytes(parts + "/adapter_model.safetensors"), bytes(whole + "/adapter_model.safetensors"));

        const double loss =
            read_json_file(folder_ / whole / "eval_results.json").at("eval_loss").get<double>();
        EXPECT_NEAR(
            printed_json("eval --dtype float32 --model " + out(whole) + measured).at("loss").get<double>(),
            loss, 1e-5);
        const test::Outcome converted = test::run("convert --dtype float32 --merge_adapter " + out(whole) +
                                                  " --output_dir " + out(merged));
        ASSERT_EQ(converted.exit_code, 0) << converted.output;
        EXPECT_NEAR(printed_json("eval --model " + out(merged) + " --tokenizer " + out(whole) + measured)
                        .at("loss")
                        .get<double>(),
                    loss, 1e-5);
        expect_close(printed_logits("--model " + out(whole)), printed_logits("--model " + out(merged)), 1e-6);
    }
}

TEST_F(LoraRun, GoesOnFromVocabularyAdaptersOfPeft) {
    for (const std::string name : {"llama_embedding", "llama_head", "tied_embedding", "tied_saved"}) {
        SCOPED_TRACE(name);
        const std::string base = name.starts_with("tied") ? "llama_tied" : "llama";
        const test::Outcome run =
            train(name, base_flags(base) +
                            "--dtype float32 --learning_rate 0 --max_steps 1 --adapter_name_or_path " +
                            golden_file("peft/" + name));
        ASSERT_EQ(run.exit_code, 0) << run.output;
        expect_close(printed_logits("--model " + out(name)),
                     printed_logits("--model " + golden_file("generate/" + base) +
                                    " --adapter_name_or_path " + golden_file("peft/" + name)),
                     1e-7);
    }
}

TEST_F(LoraRun, RefusesToResumeWithOtherAdapters) {
    const std::string flags = base_flags() + "--save_steps 3 ";
    ASSERT_EQ(train("out", flags + "--use_peft --lora_r 4").exit_code, 0);
    fs::remove(folder_ / "out/trainer_state.json");
    const auto refused = [&](const std::string& others) {
        const test::Outcome run = train("out", flags + others);
        EXPECT_EQ(run.exit_code, 1) << run.output;
        return run.output;
    };
    EXPECT_MENTIONS(refused("--use_peft --lora_r 8 --max_steps 9"),
                    "are others than those of this run: LoRA r 4 on 2 modules × 2 blocks, scale 8, dropout "
                    "0.05, not LoRA r 8");
    EXPECT_MENTIONS(refused("--max_steps 9"), "has adapters and no weights of the model");
    ASSERT_EQ(train("full", flags).exit_code, 0);
    const test::Outcome other = train("full", flags + "--use_peft --max_steps 9");
    EXPECT_EQ(other.exit_code, 1);
    EXPECT_MENTIONS(other.output, "has no adapters, but this run trains some");
}

TEST_F(LoraRun, AMeshGivesTheSameAdapters) {
    const std::string flags = base_flags() +
                              "--use_peft --lora_r 4 --lora_dropout 0 --lora_target_modules embed_tokens "
                              "q_proj v_proj down_proj lm_head --logging_steps 1 --save_steps 3 ";
    ASSERT_EQ(train("one", flags + "--per_device_train_batch_size 4").exit_code, 0);
    const test::Outcome two = train_on(2, "two", flags + "--fsdp full_shard");
    ASSERT_EQ(two.exit_code, 0) << two.output;
    expect_same_records("two", "one");
    // A run on another mesh goes on from there.
    fs::remove_all(folder_ / "two/checkpoint-6");
    fs::remove(folder_ / "two/trainer_state.json");
    const test::Outcome resumed = train("two", flags + "--per_device_train_batch_size 4");
    ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
    expect_same_records("two", "one");
}

TEST_F(LoraRun, EndsWithTheBestAdapters) {
    const test::Outcome run =
        train("out", base_flags() +
                         "--use_peft --lora_r 4 --learning_rate 3 --save_steps 2 --eval_steps 2 "
                         "--eval_strategy steps --load_best_model_at_end --validation_file " +
                         golden_file("run_clm/train.txt"));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    const Json state = parse_python_json(read_text_file(folder_ / "out/trainer_state.json"), "state");
    const fs::path best = state.at("best_model_checkpoint").get<std::string>();
    EXPECT_EQ(bytes("out/adapter_model.safetensors"), read_text_file(best / "adapter_model.safetensors"));
}

TEST_F(LoraRun, GoesOnFromAdaptersOfPeft) {
    const test::Outcome run =
        train("out", base_flags() + "--learning_rate 0 --max_steps 1 --adapter_name_or_path " +
                         golden_file("peft/llama_rslora"));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_MENTIONS(run.output, "Going on from the adapters in");
    EXPECT_MENTIONS(run.output, "LoRA r 2 to 5 on 7 modules × 2 blocks");
    // Nothing was learned, so they are the same.
    expect_close(printed_logits("--model " + out("out")),
                 printed_logits("--model " + golden_file("generate/llama") + " --adapter_name_or_path " +
                                golden_file("peft/llama_rslora")),
                 1e-7);
    const test::Outcome fused =
        train("fused", base_flags("mixtral") + "--adapter_name_or_path " + golden_file("peft/mixtral_fused"));
    EXPECT_EQ(fused.exit_code, 1);
    EXPECT_MENTIONS(fused.output, "fused experts, which cannot be trained here");
}

TEST_F(LoraRun, IsEvaluatedAsItsMergedModelIs) {
    const std::string text = golden_file("run_clm/train.txt");
    const test::Outcome run = train("out", base_flags() +
                                               "--use_peft --use_dora --lora_r 4 --do_eval "
                                               "--validation_file " +
                                               text);
    ASSERT_EQ(run.exit_code, 0) << run.output;
    const double loss = read_json_file(folder_ / "out/eval_results.json").at("eval_loss").get<double>();
    const std::string measured = " --data " + text + " --block_size 32 --json";
    EXPECT_NEAR(printed_json("eval --model " + out("out") + measured).at("loss").get<double>(), loss, 1e-5);
    const test::Outcome merged =
        test::run("convert --merge_adapter " + out("out") + " --output_dir " + out("merged"));
    ASSERT_EQ(merged.exit_code, 0) << merged.output;
    EXPECT_NEAR(printed_json("eval --model " + out("merged") + " --tokenizer " + out("out") + measured)
                    .at("loss")
                    .get<double>(),
                loss, 1e-5);
}

TEST_F(LoraRun, NeedsAModelAndSaysHow) {
    const test::Outcome random = train("out", "--use_peft");
    EXPECT_EQ(random.exit_code, 1);
    EXPECT_MENTIONS(random.output, "Adapters need the weights of a model");
    const test::Outcome adapter =
        test::run_in(folder_.path().string(),
                     fmt::format("run_clm --model_name_or_path {} --train_file {} --do_train "
                                 "--output_dir out",
                                 golden_file("peft/llama_default"), golden_file("run_clm/train.txt")));
    EXPECT_EQ(adapter.exit_code, 1);
    EXPECT_MENTIONS(adapter.output, "which holds adapters of tests/golden/generate/llama and no model");
    EXPECT_MENTIONS(adapter.output, "--adapter_name_or_path");
    const test::Outcome modules =
        train("out", base_flags() + "--use_peft --lora_target_modules c_attn c_proj");
    EXPECT_EQ(modules.exit_code, 1);
    EXPECT_MENTIONS(modules.output,
                    "There are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj");
}

// -------------------------------------------------------------------------------------------------------
// generate, eval and convert

TEST(AdapterCommands, GenerateGivesTheLogitsOfPeft) {
    for (const char* name :
         {"llama_default", "llama_rslora", "llama_dora", "llama_saved", "llama_head", "llama_embedding",
          "tied_embedding", "tied_saved", "qwen2_layers", "mixtral_fused", "mixtral_published"}) {
        SCOPED_TRACE(name);
        const Json expected =
            read_json_file(test::golden_path(std::string("peft/") + name + "/expected.json"));
        const Json found = printed_json(fmt::format(
            "generate --model {} --adapter_name_or_path {} --prompt_ids {} --max_new_tokens 1 --json "
            "--dtype float32 --logits",
            golden_file("generate/" + expected.at("base").get<std::string>()),
            golden_file(std::string("peft/") + name),
            fmt::join(expected.at("prompt").get<std::vector<int>>(), ",")));
        expect_close(found.at("logits").get<std::vector<double>>(),
                     expected.at("logits").get<std::vector<double>>(), 1e-5);
    }
}

TEST(AdapterCommands, ChooseAmongSeveral) {
    const std::string both = fmt::format(
        "--model {} --adapter_name_or_path one={} --adapter_name_or_path {} ", golden_file("generate/llama"),
        golden_file("peft/llama_default"), golden_file("peft/llama_dora"));
    const std::string base = "--model " + golden_file("generate/llama") + " --adapter_name_or_path ";
    EXPECT_EQ(printed_logits(both + "--adapter one"),
              printed_logits(base + golden_file("peft/llama_default")));
    EXPECT_EQ(printed_logits(both + "--adapter llama_dora"),
              printed_logits(base + golden_file("peft/llama_dora")));
    const auto refused = [&](const std::string& flags) {
        const test::Outcome outcome = test::run("generate --prompt_ids 1 " + flags);
        EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
        return outcome.output;
    };
    EXPECT_MENTIONS(refused(both), "There are 2 adapters: one, llama_dora");
    EXPECT_MENTIONS(refused(both + "--adapter two"), "the adapters are one, llama_dora");
    EXPECT_MENTIONS(refused("--model " + golden_file("generate/llama") + " --adapter a"),
                    "no adapter is given");
    EXPECT_MENTIONS(refused(base + golden_file("peft/llama_dora") + " --adapter_name_or_path " +
                            golden_file("peft/llama_dora")),
                    "two adapters named llama_dora");
    EXPECT_MENTIONS(refused("--model " + golden_file("peft/llama_dora") + " --adapter_name_or_path " +
                            golden_file("peft/llama_default")),
                    "is an adapter itself");
    const test::Outcome model = test::run("generate --prompt_ids 1 " + base + golden_file("generate/qwen2"));
    EXPECT_EQ(model.exit_code, 1);
    EXPECT_MENTIONS(model.output, "which is no adapter");
}

TEST(AdapterCommands, FindTheBaseModelOrSayWhich) {
    // Its configuration names the base by its path in the repository.
    const test::Outcome found =
        test::run_drover("generate --prompt_ids 256,40,68,75 --max_new_tokens 1 --json --logits --model " +
                             golden_file("peft/llama_default") + " 2>/dev/null",
                         DROVER_SOURCE_DIR);
    ASSERT_EQ(found.exit_code, 0);
    EXPECT_EQ(parse_json(found.output, "output").at("logits").get<std::vector<double>>(),
              printed_logits("--model " + golden_file("generate/llama") + " --adapter_name_or_path " +
                             golden_file("peft/llama_default")));
    const test::TemporaryFolder elsewhere;
    const test::Outcome missing = test::run_in(
        elsewhere.path().string(), "generate --prompt_ids 1 --model " + golden_file("peft/llama_default"));
    EXPECT_EQ(missing.exit_code, 1);
    EXPECT_MENTIONS(missing.output, "base_model_name_or_path in ");
    EXPECT_MENTIONS(missing.output, "\"tests/golden/generate/llama\": there is no such file or folder");
}

TEST(AdapterCommands, EvalMeasuresEachInOneTable) {
    const std::string flags =
        fmt::format("eval --model {} --tokenizer {} --data {} --block_size 32 --max_samples 4 ",
                    golden_file("generate/llama"), golden_file("trainer_checkpoint/tokenizer"),
                    golden_file("run_clm/train.txt"));
    const std::string both = flags + "--adapter_name_or_path one=" + golden_file("peft/llama_default") +
                             " --adapter_name_or_path " + golden_file("peft/llama_dora");
    const test::Outcome table = test::run_drover(both + " 2>/dev/null");
    ASSERT_EQ(table.exit_code, 0);
    EXPECT_EQ(test::count_of(table.output, "\n"), 3) << table.output;
    const double one =
        printed_json(flags + "--json --adapter_name_or_path " + golden_file("peft/llama_default"))
            .at("loss")
            .get<double>();
    const double dora =
        printed_json(flags + "--json --adapter_name_or_path " + golden_file("peft/llama_dora"))
            .at("loss")
            .get<double>();
    EXPECT_NE(one, dora);
    EXPECT_MENTIONS(table.output, fmt::format("one         {:9.6f}", one));
    EXPECT_MENTIONS(table.output, fmt::format("llama_dora  {:9.6f}", dora));
}

TEST(AdapterCommands, ConvertMerges) {
    const test::TemporaryFolder folder;
    const std::string merged = (folder / "merged").string();
    for (const char* name :
         {"llama_dora", "llama_embedding", "tied_embedding", "tied_saved", "mixtral_fused"}) {
        SCOPED_TRACE(name);
        const Json expected =
            read_json_file(test::golden_path(std::string("peft/") + name + "/expected.json"));
        const test::Outcome outcome =
            test::run(fmt::format("convert --input_dir {} --merge_adapter {} --output_dir {} --dtype float32",
                                  golden_file("generate/" + expected.at("base").get<std::string>()),
                                  golden_file(std::string("peft/") + name), merged));
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
        const Json found =
            printed_json(fmt::format("generate --model {} --prompt_ids {} --max_new_tokens 1 --json "
                                     "--logits",
                                     merged, fmt::join(expected.at("prompt").get<std::vector<int>>(), ",")));
        expect_close(found.at("logits").get<std::vector<double>>(),
                     expected.at("logits").get<std::vector<double>>(), 1e-5);
        EXPECT_FALSE(fs::exists(fs::path(merged) / "adapter_config.json"));
        if (std::string(name).starts_with("tied_")) {
            EXPECT_MENTIONS(outcome.output, "in the result they are two weights");
            EXPECT_EQ(read_json_file(fs::path(merged) / "config.json").at("tie_word_embeddings"), false);
        }
        fs::remove_all(merged);
    }
    const auto refused = [&](const std::string& flags, int code) {
        const test::Outcome outcome = test::run("convert --output_dir " + merged + " " + flags);
        EXPECT_EQ(outcome.exit_code, code) << outcome.output;
        return outcome.output;
    };
    const std::string llama = "--input_dir " + golden_file("generate/llama") + " --merge_adapter ";
    EXPECT_MENTIONS(refused(llama + golden_file("peft/mixtral_fused"), 1), "target_parameters");
    EXPECT_MENTIONS(refused(llama + golden_file("generate/llama"), 1), "is no adapter");
    EXPECT_MENTIONS(refused(llama + golden_file("peft/llama_dora") + " --convert_to_full_state", 2),
                    "files per rank");
    EXPECT_MENTIONS(refused(llama + golden_file("peft/llama_dora") + " --output_format resumable", 2),
                    "resumable");
}

}  // namespace
}  // namespace drover
