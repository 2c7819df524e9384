#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

#include "core/json.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "support/golden.h"
#include "support/run_drover.h"

namespace drover {
namespace {

using test::Outcome;
using test::run;

const std::string shakespeare = std::string(DROVER_SOURCE_DIR) + "/examples/data/tinyshakespeare";
const std::string bundled = std::string(DROVER_SOURCE_DIR) + "/examples/tokenizers/shakespeare-4k";
const std::string tokenizer = " --tokenizer " + bundled;
const std::string corpus = " --input " + shakespeare + "/text.txt";

class TokenizeCommand : public ::testing::Test {
  protected:
    void expect_error(const std::string& arguments, int exit_code, const std::string& part) {
        const Outcome outcome = run("tokenize " + arguments);
        EXPECT_EQ(outcome.exit_code, exit_code) << arguments << "\n" << outcome.output;
        EXPECT_NE(outcome.output.find(part), std::string::npos) << arguments << "\n" << outcome.output;
        EXPECT_NE(outcome.output.find("drover: "), std::string::npos) << outcome.output;
    }
    std::string write(const char* name, const std::string& text) {
        std::ofstream(folder_ / name, std::ios::binary) << text;
        return (folder_ / name).string();
    }
    std::string path(const char* name) { return (folder_ / name).string(); }
    /// The output without standard error.
    std::string answer(const std::string& arguments, const std::string& input) {
        const Outcome outcome = run("tokenize " + arguments + " < " + write("input", input));
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        return outcome.output;
    }

    test::TemporaryFolder folder_;
};

TEST_F(TokenizeCommand, IdsAndBack) {
    const std::string texts = "\"First Citizen:\\nBefore we\"\n\"\"\n\"caf\\u00e9 \\ud83d\\ude00 \\u0000\"\n";
    const std::string ids = answer("--ids --no_special_tokens" + tokenizer, texts);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), '\n'), 3);
    EXPECT_NE(ids.find("\n[]\n"), std::string::npos) << "an empty text: " << ids;
    const std::string back = answer("--decode" + tokenizer, ids);
    EXPECT_EQ(back, "\"First Citizen:\\nBefore we\"\n\"\"\n\"caf\u00e9 \U0001F600 \\u0000\"\n");
}

TEST_F(TokenizeCommand, SpecialTokensCanBeLeftOut) {
    const std::string full = answer("--ids" + tokenizer, "\"king\"\n\"\"\n");
    const std::string bare = answer("--ids --no_special_tokens" + tokenizer, "\"king\"\n\"\"\n");
    EXPECT_TRUE(full.starts_with("[0,")) << full;
    EXPECT_TRUE(full.ends_with("\n[0]\n")) << full;
    EXPECT_EQ("[0," + bare.substr(1, bare.find('\n')), full.substr(0, full.find('\n') + 1));
    EXPECT_EQ(answer("--decode" + tokenizer, full), "\"<|begin_of_text|>king\"\n\"<|begin_of_text|>\"\n");
    EXPECT_EQ(answer("--decode --skip_special_tokens" + tokenizer, full), "\"king\"\n\"\"\n");
}

TEST_F(TokenizeCommand, ManyLinesKeepTheirOrder) {
    std::string texts;
    for (int i = 0; i < 20000; ++i) texts += "\"line " + std::to_string(i) + "\"\n";
    EXPECT_EQ(answer("--decode --skip_special_tokens --threads 4" + tokenizer,
                     answer("--ids --threads 3" + tokenizer, texts)),
              texts);
}

TEST_F(TokenizeCommand, BadLinesAreNamed) {
    const auto bad = [&](const std::string& flag, const std::string& text, const std::string& part) {
        expect_error(flag + tokenizer + " < " + write("bad", text), 1, part);
    };
    bad("--ids", "\"good\"\n{\"a\": 1}\n", "Line 2 of standard input is not a JSON string");
    bad("--ids", "\"good\"\n\nmore\n", "Line 2 of standard input is not valid JSON");
    bad("--ids", "\"good\"\n\"\xff\"\n", "Line 2 of standard input is not valid JSON");
    bad("--decode", "[1, 2]\n[1, -2]\n", "Line 2 of standard input is not a JSON array");
    bad("--decode", "[4096]\n", "Line 1 of standard input is not a JSON array of ids from 0 to 4095");
    bad("--decode", "[1.5]\n", "Line 1");
    bad("--decode", "\"text\"\n", "Line 1");
}

TEST_F(TokenizeCommand, ACorpusBecomesATokenFile) {
    const std::string file = path("corpus.tokens");
    const Outcome made = run("tokenize --block_size 128 --output " + file + tokenizer + corpus);
    ASSERT_EQ(made.exit_code, 0) << made.output;
    EXPECT_NE(made.output.find("40000 rows of text"), std::string::npos) << made.output;
    EXPECT_NE(made.output.find("MB/s"), std::string::npos) << made.output;
    EXPECT_FALSE(std::filesystem::exists(file + ".lock"));

    const Outcome shown = run("tokenize --rows 1 --inspect " + file + tokenizer);
    EXPECT_EQ(shown.exit_code, 0) << shown.output;
    for (const char* part : {"block size:      128", "packing:         hf, for 1 worker\n", "verified",
                             "row 0: \"<|begin_of_text|>First Citizen:\\n<|begin_of_text|>Before we proceed"})
        EXPECT_NE(shown.output.find(part), std::string::npos) << part << "\n" << shown.output;
    EXPECT_EQ(shown.output.find("row 1"), std::string::npos);
    EXPECT_NE(run("tokenize --inspect " + file).output.find("row 2: ["), std::string::npos);

    expect_error("--output " + file + tokenizer + corpus, 1, "exists");
    EXPECT_EQ(run("tokenize --overwrite --packing none --output " + file + tokenizer + corpus).exit_code, 0);
    EXPECT_NE(run("tokenize --inspect " + file).output.find("rows:            40000"), std::string::npos);
    EXPECT_EQ(
        run("tokenize --overwrite --packing lossless --max_samples 7 --output " + file + tokenizer + corpus)
            .exit_code,
        0);
    EXPECT_NE(run("tokenize --inspect " + file).output.find("tokens:          7168,"), std::string::npos)
        << "seven blocks of 1,024, which run_clm's rule gives";
}

TEST_F(TokenizeCommand, TokenFilesThatAreDamagedOrOfAnotherTokenizer) {
    const std::string file = path("corpus.tokens");
    ASSERT_EQ(run("tokenize --max_samples 2 --block_size 64 --output " + file + tokenizer + corpus).exit_code,
              0);
    const std::string good = read_text_file(file);
    expect_error("--inspect " + path("none"), 1, "none");
    expect_error("--inspect " + write("cut", good.substr(0, good.size() - 3)), 1, "cut off");
    std::string bad = good;
    bad[200] ^= 1;
    expect_error("--inspect " + write("changed", bad), 1, "the checksum of the data is wrong");
    expect_error("--inspect " + shakespeare + "/text.txt", 1, "is not a token file");
    expect_error(
        "--inspect " + file + " --tokenizer " + test::golden_path("packing/tokenizer_without_bos").string(),
        1, "vocab_size is");
}

TEST_F(TokenizeCommand, TheCacheIsFilledOnce) {
    // The text is a copy old enough for notes about it to be kept.
    const std::string text = path("old.txt");
    std::filesystem::copy_file(shakespeare + "/text.txt", text);
    std::filesystem::last_write_time(text,
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    const std::string arguments = "tokenize --cache --block_size 64 --workers 3 --input " + text + tokenizer;
    const auto in_cache = [&](const std::string& flags) {
        setenv("DROVER_CACHE", path("cache").c_str(), 1);
        Outcome outcome = run(arguments + flags);
        unsetenv("DROVER_CACHE");
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        return outcome.output;
    };
    EXPECT_NE(in_cache("").find("was made."), std::string::npos);
    EXPECT_NE(in_cache("").find("was there."), std::string::npos);
    EXPECT_NE(in_cache(" --packing lossless").find("was made."), std::string::npos);
    EXPECT_NE(in_cache(" --overwrite").find("was made."), std::string::npos);
    std::ofstream(text, std::ios::app) << "One more line.\n";
    EXPECT_NE(in_cache("").find("was made."), std::string::npos) << "the text changed";
}

TEST_F(TokenizeCommand, BlocksForTheNeuronScripts) {
    for (const char* file : {"/tokenizer.json", "/tokenizer_config.json"})
        std::filesystem::copy_file(bundled + file, folder_.path().string() + file);
    const auto start = [&](const std::string& arguments) {
        return test::run_shell(
            fmt::format("HOME={} {} tokenize {}{} 2>&1", path("home"), DROVER_BINARY, arguments, corpus),
            folder_.path().string());
    };
    const Outcome made = start("--llama-version 2");
    if (made.output.find("Arrow") != std::string::npos) GTEST_SKIP() << made.output;
    ASSERT_EQ(made.exit_code, 0) << made.output;
    EXPECT_NE(made.output.find("75 blocks of 4096 tokens are in " +
                               path("home/examples_datasets/wikicorpus_llama2_tokenized_4k.")),
              std::string::npos)
        << made.output;
    EXPECT_TRUE(std::filesystem::exists(folder_ /
                                        "home/examples_datasets/wikicorpus_llama2_tokenized_4k/state.json"));
    EXPECT_EQ(start("--llama-version 2").exit_code, 1) << "nothing is overwritten unasked";
    EXPECT_EQ(start("--llama-version 2 --overwrite").exit_code, 0);

    Json config = read_json_file(folder_ / "tokenizer_config.json");
    config["model_max_length"] = 1000;
    write("tokenizer_config.json", config.dump());
    EXPECT_NE(start("--llama-version 3")
                  .output.find("blocks of 1000 tokens are in " +
                               path("home/examples_datasets/wikicorpus_llama3_tokenized_8k.")),
              std::string::npos)
        << "the tokenizer's longest text is the limit";
    const Outcome named = start("--llama-version 3 --output " + path("named"));
    EXPECT_EQ(named.exit_code, 0) << named.output;
    EXPECT_NE(named.output.find("is read without special_tokens_map.json"), std::string::npos)
        << named.output;
    EXPECT_TRUE(std::filesystem::exists(folder_ / "named/state.json"));
}

TEST_F(TokenizeCommand, LlamaVersionSaysWhatIsMissing) {
    const auto start = [&](const std::string& arguments) {
        return test::run_shell(fmt::format("HOME={0} HF_HOME={0} HF_DATASETS_CACHE={0} {1} tokenize {2} 2>&1",
                                           path("home"), DROVER_BINARY, arguments),
                               folder_.path().string());
    };
    const Outcome without_tokenizer = start("--llama-version 3");
    EXPECT_EQ(without_tokenizer.exit_code, 1);
    EXPECT_NE(without_tokenizer.output.find(
                  "tokenizer.json, tokenizer_config.json, special_tokens_map.json are missing"),
              std::string::npos)
        << without_tokenizer.output;
    EXPECT_NE(start("--llama-version 2").output.find("tokenizer.model is missing"), std::string::npos);
    for (const char* file : {"/tokenizer.json", "/tokenizer_config.json"})
        std::filesystem::copy_file(bundled + file, folder_.path().string() + file);
    const Outcome without_corpus = start("--llama-version 3");
    EXPECT_EQ(without_corpus.exit_code, 1);
    EXPECT_NE(without_corpus.output.find("Download raw.en.tgz"), std::string::npos) << without_corpus.output;
}

TEST_F(TokenizeCommand, BadInput) {
    const std::string output = " --output " + path("out") + tokenizer;
    expect_error("--input " + path("none.txt") + output, 1, "none.txt");
    expect_error("--input " + write("empty.txt", "") + output, 1, "empty.txt is empty");
    expect_error("--input " + write("latin.txt", "caf\xe9\n") + output, 1, "latin.txt");
    expect_error("--input " + write("a.json", "{\"body\": \"x\"}\n") + " --text_column text" + output, 1,
                 "text");
    expect_error("--input " + write("short.txt", "few words\n") + output, 1, "not one block");
    expect_error(corpus.substr(1) + " --output " + path("no/such/out") + tokenizer, 1, "no/such/out");
    expect_error("--dataset " + path("nothing-here") + output, 1, "nothing-here");
    expect_error(corpus.substr(1) + " --tokenizer " + path("none") + " --output " + path("out"), 1, "none");
    EXPECT_FALSE(std::filesystem::exists(path("out")));
    EXPECT_FALSE(std::filesystem::exists(path("out.partial")));
}

TEST_F(TokenizeCommand, TheInputIsNeverWrittenOver) {
    const std::string text = "First Citizen:\nBefore we proceed any further, hear me speak.\n";
    const std::string input = write("a.txt", text);
    std::filesystem::create_symlink(input, path("link.tokens"));
    std::filesystem::create_hard_link(input, path("hard.tokens"));
    std::filesystem::create_directory(path("folder"));
    std::filesystem::create_hard_link(input, path("folder/a.txt"));
    const auto refuses = [&](const std::string& arguments, const std::string& part) {
        expect_error("--overwrite --block_size 4 " + arguments + tokenizer, 1, part);
        EXPECT_EQ(read_text_file(input), text) << arguments;
    };
    refuses("--input " + input + " --output " + input, "is the input");
    refuses("--input " + input + " --output " + path("./folder/../a.txt"), "is the input");
    refuses("--input " + input + " --output " + path("link.tokens"), "is the input");
    refuses("--input " + input + " --output " + path("hard.tokens"), "is the input");
    refuses("--input '" + path("*.txt") + "' --output " + input, "is the input");
    refuses("--dataset " + path("folder") + " --output " + path("folder/a.txt"), "is the input");
    refuses("--dataset " + path("folder") + " --output " + path("folder/new.tokens"),
            "would be a data file of the input folder");
    std::filesystem::create_hard_link(input, path("b.lock"));
    refuses("--input " + input + " --output " + path("b"), "b.lock, which is the input");

    // The folder that --llama-version writes, and would first empty.
    for (const char* file : {"/tokenizer.json", "/tokenizer_config.json"})
        std::filesystem::copy_file(bundled + file, folder_.path().string() + file);
    const std::string earlier = "wikicorpus_llama2_tokenized_4k";
    std::filesystem::create_directory(path(earlier.c_str()));
    for (const char* name : {"/state.json", "/dataset_info.json", "/a.txt"})
        write((earlier + name).c_str(), std::string(name) == "/a.txt" ? text : "{}");
    const Outcome outcome =
        test::run_in(folder_.path().string(), "tokenize --overwrite --llama-version 2 --output " + earlier +
                                                  " --input " + earlier + "/a.txt");
    EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
    EXPECT_NE(outcome.output.find("holds the input"), std::string::npos) << outcome.output;
    EXPECT_EQ(read_text_file(path((earlier + "/a.txt").c_str())), text);
}

TEST_F(TokenizeCommand, LongRowsCanBeCut) {
    ASSERT_EQ(
        run("tokenize --packing none --block_size 4 --output " + path("cut.tokens") + tokenizer + corpus)
            .exit_code,
        0);
    ASSERT_EQ(run("tokenize --packing none --output " + path("whole.tokens") + tokenizer + corpus).exit_code,
              0);
    const std::string cut = run("tokenize --rows 2 --inspect " + path("cut.tokens")).output,
                      whole = run("tokenize --rows 2 --inspect " + path("whole.tokens")).output;
    EXPECT_NE(cut.find("rows:            40000"), std::string::npos) << cut;
    const std::string row = cut.substr(cut.find("row 1: "));
    EXPECT_EQ(std::count(row.begin(), row.end(), ','), 3) << row;
    EXPECT_NE(whole.find(row.substr(0, row.find(']'))), std::string::npos) << whole;
}

TEST_F(TokenizeCommand, UsageErrors) {
    expect_error("", 2, "Nothing to do");
    expect_error("--ids --decode" + tokenizer, 2, "Several things");
    expect_error("--ids", 2, "--tokenizer is not given");
    expect_error("--output x" + tokenizer, 2, "Neither --input nor --dataset");
    expect_error("--output x --dataset y" + tokenizer + corpus, 2, "Both --input and --dataset");
    expect_error("--output x --packing best" + tokenizer + corpus, 2, "--packing");
    expect_error("--output x --block_size 1" + tokenizer + corpus, 2, "--block_size");
    expect_error("--output x --workers 0" + tokenizer + corpus, 2, "--workers");
    expect_error("--llama-version 4" + corpus, 2, "--llama-version");
    expect_error("--llama-version 3" + tokenizer + corpus, 2, "--llama-version fixes");
}

}  // namespace
}  // namespace drover
