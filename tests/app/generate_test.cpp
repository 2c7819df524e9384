#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "support/golden.h"
#include "support/run_drover.h"

namespace drover {
namespace {

using test::run;

std::string golden(const std::string& name) {
    return test::golden_path(name).string();
}

/// A command on a model of tests/golden/generate.
std::string generate(const std::string& model, const std::string& rest) {
    return "generate --model " + golden("generate/" + model) + " " + rest;
}

std::string with_tokenizer(const std::string& model, const std::string& rest) {
    return generate(model, "--tokenizer " + golden("trainer_checkpoint/tokenizer") + " " + rest);
}

Json json_of(const std::string& command) {
    const test::Outcome outcome = test::run_drover(command + " 2>/dev/null");
    EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.output;
    return parse_json(outcome.output, command);
}

TEST(GenerateCommand, ReadsPickledWeightsAsItReadsSafetensors) {
    for (const std::string model : {"llama-tied", "llama-sharded"}) {
        const auto logits_of = [&](const std::string& folder) {
            return json_of("generate --model " + golden("hf/" + folder) +
                           " --prompt_ids 1,2,3 --max_new_tokens 2 --dtype float32 --json --logits")
                .at("logits");
        };
        EXPECT_EQ(logits_of(model + "-bin"), logits_of(model));
    }
}

TEST(GenerateCommand, GivesTheIdsOfTransformers) {
    for (const std::string model : {"llama", "llama_tied", "mixtral", "qwen2", "qwen3"}) {
        const Json expected = read_json_file(test::golden_path("generate/" + model + "/expected.json"));
        const Json& first = expected.at("cases").at(0);
        const Json found =
            json_of(generate(model, fmt::format("--prompt_ids {} --max_new_tokens 32 --dtype float32 --json",
                                                fmt::join(first.at("prompt").get<std::vector<int>>(), ","))));
        EXPECT_EQ(found.at("ids"), first.at("ids")) << model;
        EXPECT_EQ(found.at("prompt_ids"), first.at("prompt"));
        EXPECT_EQ(
            json_of(generate(model, "--prompt_ids '1, 15 ,2' --max_new_tokens 1 --json")).at("prompt_ids"),
            (std::vector<int>{1, 15, 2}));
        EXPECT_TRUE(found.at("text").is_null());  // the folder has no tokenizer
    }
}

TEST(GenerateCommand, GivesTheLogitsOfTransformers) {
    const Json expected = read_json_file(test::golden_path("generate/llama/expected.json"));
    const Json& last = expected.at("cases").back();
    auto ids = last.at("prompt").get<std::vector<int>>();
    for (const Json& id : last.at("ids")) ids.push_back(id.get<int>());
    ids.pop_back();  // last_logits chose it
    const std::string prompt =
        fmt::format("--prompt_ids {} --max_new_tokens 1 --dtype float32 --logits", fmt::join(ids, ","));
    const auto found = json_of(generate("llama", prompt + " --json")).at("logits").get<std::vector<double>>();
    const auto theirs = expected.at("last_logits").get<std::vector<double>>();
    EXPECT_LE(test::relative_error(found, theirs), 1e-5);
    EXPECT_EQ(test::run_drover(generate("llama", prompt)).exit_code, 2);
}

TEST(GenerateCommand, PrintsPromptAndText) {
    const std::string flags =
        "--prompt 'Now is' --max_new_tokens 12 --temperature 0.7 --top_k 20 --top_p 0.9 --seed ";
    const Json found = json_of(with_tokenizer("llama", flags + "5 --json"));
    EXPECT_EQ(found.at("ids").size(), 12u);
    const test::Outcome text = test::run_drover(with_tokenizer("llama", flags + "5 2>/dev/null"));
    EXPECT_EQ(text.output, "Now is" + found.at("text").get<std::string>() + "\n");
    EXPECT_EQ(json_of(with_tokenizer("llama", flags + "5 --json")), found);
    EXPECT_NE(json_of(with_tokenizer("llama", flags + "6 --json")).at("ids"), found.at("ids"));
}

TEST(GenerateCommand, AnErrorBeginsItsOwnLine) {
    const test::TemporaryFolder folder;
    const std::filesystem::path model = folder / "model";
    std::filesystem::copy(golden("generate/llama"), model);
    const std::filesystem::path weights = model / "model.safetensors";
    constexpr int damaged = 64;  // bytes, of values that are not numbers
    std::fstream file(weights, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-damaged, std::ios::end);
    file << std::string(damaged, '\xff');
    file.close();
    const test::Outcome outcome =
        run("generate --model " + model.string() + " --tokenizer " + golden("trainer_checkpoint/tokenizer") +
            " --prompt 'Now is' --max_new_tokens 4");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_NE(outcome.output.find("Now is\ndrover: The model's logits are not numbers."), std::string::npos)
        << outcome.output;
}

TEST(GenerateCommand, StopsAtTheLastPosition) {
    const std::string prompt = std::string(100, 'x');
    const Json found = json_of(with_tokenizer("llama", "--max_new_tokens 100 --json --prompt " + prompt));
    EXPECT_LE(found.at("ids").size(), 28u);
    const test::Outcome outcome = run(with_tokenizer("llama", "--prompt " + std::string(128, 'x')));
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_NE(
        outcome.output.find("The prompt has 128 tokens, but the model's max_position_embeddings is 128."),
        std::string::npos)
        << outcome.output;
}

TEST(GenerateCommand, RefusesWhatMakesNoSense) {
    const auto expect_refusal = [](const std::string& command, int code, const std::string& text) {
        const test::Outcome outcome = run(command);
        EXPECT_EQ(outcome.exit_code, code) << command;
        EXPECT_NE(outcome.output.find(text), std::string::npos) << outcome.output;
    };
    expect_refusal(generate("llama", ""), 2, "Neither --prompt nor --prompt_ids");
    expect_refusal(generate("llama", "--prompt a --prompt_ids 1"), 2, "Both --prompt and --prompt_ids");
    expect_refusal(generate("llama", "--prompt a"), 1, "holds neither tokenizer.json nor tokenizer.model");
    expect_refusal(generate("llama", "--prompt_ids 1 --temperature -1"), 2, "--temperature is -1");
    expect_refusal(generate("llama", "--prompt_ids 1 --top_p 2"), 2, "--top_p is 2");
    expect_refusal(generate("llama", "--prompt_ids 999"), 1, "The token id 999 is not below");
    expect_refusal(generate("llama", "--prompt_ids 1 --dtype int8"), 1, "--dtype");
    expect_refusal(generate("llama", "--prompt_ids ''"), 2, "is not a whole number");
    for (const char* seed : {"-1", "18446744073709551616", "1.5", "''"})
        expect_refusal(generate("llama", std::string("--prompt_ids 1 --seed ") + seed), 2, "--seed: ");
    expect_refusal("generate --model /nowhere --prompt a", 1, "/nowhere");
    expect_refusal(generate("llama", "--prompt_ids 1 --device cuda"), 1, "train on the CPU (--device cpu).");
}

class EvalCommand : public ::testing::Test {
  protected:
    void SetUp() override { setenv("DROVER_CACHE", (folder_ / "cache").c_str(), 1); }
    void TearDown() override { unsetenv("DROVER_CACHE"); }

    std::string eval(const std::string& data, const std::string& rest) const {
        return "eval --model " + golden("run_clm/saved") + " --data " + data + " --dtype float32 " + rest;
    }
    const std::string tokenizer_ = DROVER_SOURCE_DIR "/examples/tokenizers/shakespeare-4k";
    test::TemporaryFolder folder_;
};

TEST_F(EvalCommand, EqualsTheEvaluationOfRunClm) {
    const Json expected = read_json_file(test::golden_path("run_clm/eval_only.json")).at("eval_results");
    const Json found =
        json_of(eval(golden("run_clm/validation.txt"), "--block_size 64 --json --tokenizer " + tokenizer_));
    EXPECT_NEAR(found.at("loss").get<double>(), expected.at("eval_loss").get<double>(), 1e-5);
    EXPECT_NEAR(found.at("perplexity").get<double>(), expected.at("perplexity").get<double>(), 0.1);
    EXPECT_EQ(found.at("accuracy"), expected.at("eval_accuracy"));
    EXPECT_EQ(found.at("samples"), expected.at("eval_samples"));
}

TEST_F(EvalCommand, TakesTokenFiles) {
    const std::string file = (folder_ / "validation.tokens").string();
    const test::Outcome made = run("tokenize --tokenizer " + tokenizer_ + " --input " +
                                   golden("run_clm/validation.txt") + " --block_size 64 --output " + file);
    ASSERT_EQ(made.exit_code, 0) << made.output;
    EXPECT_EQ(
        json_of(eval(file, "--json")),
        json_of(eval(golden("run_clm/validation.txt"), "--block_size 64 --json --tokenizer " + tokenizer_)));
    EXPECT_EQ(json_of(eval(file, "--json --max_samples 5 --batch_size 2")).at("samples"), 5);
    const test::Outcome fixed = run(eval(file, "--block_size 32"));
    EXPECT_EQ(fixed.exit_code, 1);
    EXPECT_NE(fixed.output.find("has rows of 64 tokens, but --block_size is 32"), std::string::npos)
        << fixed.output;
}

/// The rows of such a file are used unchanged, but cut at the model's positions or the block size.
TEST_F(EvalCommand, TakesRowsThatAreNotPacked) {
    const std::string rows = (folder_ / "rows.tokens").string(), text = golden("run_clm/validation.txt");
    const test::Outcome made =
        run("tokenize --tokenizer " + tokenizer_ + " --input " + text + " --packing none --output " + rows);
    ASSERT_EQ(made.exit_code, 0) << made.output;
    const std::string lines = read_text_file(text);
    const Json found = json_of(eval(rows, "--json"));
    EXPECT_EQ(found.at("samples"), std::count(lines.begin(), lines.end(), '\n'));
    const test::Outcome cut = run(eval(rows, "--block_size 4"));
    EXPECT_EQ(cut.exit_code, 0) << cut.output;
    EXPECT_NE(cut.output.find("beyond the first 4 of a row"), std::string::npos) << cut.output;
}

/// A token file is used in place: nothing is cached, and nothing is written into the working folder.
TEST_F(EvalCommand, NeedsNoFolderForTokenFiles) {
    const std::string file = (folder_ / "validation.tokens").string();
    const test::Outcome made = run("tokenize --tokenizer " + tokenizer_ + " --input " +
                                   golden("run_clm/validation.txt") + " --block_size 64 --output " + file);
    ASSERT_EQ(made.exit_code, 0) << made.output;
    const test::Outcome outcome = test::run_shell(
        "env -u HOME -u XDG_CACHE_HOME -u DROVER_CACHE " DROVER_BINARY " " + eval(file, "--json 2>/dev/null"),
        "/");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(outcome.output, test::run_drover(eval(file, "--json 2>/dev/null")).output);
}

TEST_F(EvalCommand, SpeaksOfItsOwnFlags) {
    const test::Outcome outcome =
        run(eval(golden("run_clm/validation.txt"), "--tokenizer " + (folder_ / "none").string()));
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_NE(outcome.output.find("--tokenizer"), std::string::npos) << outcome.output;
    EXPECT_EQ(outcome.output.find("--tokenizer_name"), std::string::npos) << outcome.output;
}

TEST_F(EvalCommand, PrintsATable) {
    const test::Outcome outcome = test::run_drover(
        eval(golden("run_clm/validation.txt"), "--block_size 64 --tokenizer " + tokenizer_ + " 2>/dev/null"));
    EXPECT_EQ(outcome.output.substr(0, outcome.output.find('\n')), "loss       8.945214");
    EXPECT_NE(outcome.output.find("samples    48\n"), std::string::npos);
}

}  // namespace
}  // namespace drover
