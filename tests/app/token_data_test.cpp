#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "app/mesh_runs.h"
#include "core/json_text.h"
#include "core/program_module.h"
#include "data/datasets/arrow_tokens.h"
#include "support/background_run.h"

namespace drover {
namespace {

const std::string tokenizer_folder = DROVER_SOURCE_DIR "/examples/tokenizers/shakespeare-4k";

/// Runs on the output of `drover tokenize`, compared with runs on the text.
class TokenData : public test::MeshRuns {
  protected:
    std::string text() const { return test::golden_path("run_clm/train.txt").string(); }
    std::string at(const std::string& name) const { return (folder_ / name).string(); }
    std::string write(const std::string& name, const std::string& content) const {
        std::ofstream(folder_ / name, std::ios::binary) << content;
        return at(name);
    }
    /// The text as a token file.
    std::string tokenized(const std::string& name, const std::string& flags) const {
        const test::Outcome made = test::run("tokenize --tokenizer " + tokenizer_folder + " --input " +
                                             text() + " " + flags + " --output " + at(name));
        EXPECT_EQ(made.exit_code, 0) << made.output;
        return at(name);
    }
    /// A run without an explicit block size, after which the records and the model are in `output`.
    void train_on_file(const std::string& output, const std::string& file, const std::string& more,
                       int processes = 1) const {
        std::string line = processes == 1 ? std::string(DROVER_BINARY) + " " + words(output, "")
                                          : command(processes, output, "");
        line.replace(line.find("--block_size 32"), 15, "");
        const test::Outcome outcome =
            shell(line + " --learning_rate 1e-2 --logging_steps 1 --train_file " + file + " " + more);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    }
    void expect_equal_losses(const std::string& actual, const std::string& expected) const {
        EXPECT_EQ(test::timeless_history(folder_ / actual / "trainer_state.json"),
                  test::timeless_history(folder_ / expected / "trainer_state.json"));
        EXPECT_EQ(read_text_file(folder_ / actual / "model.safetensors"),
                  read_text_file(folder_ / expected / "model.safetensors"));
    }
    void expect_refusal(const test::Outcome& outcome, int exit_code, const std::string& part) const {
        EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
        EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
    }
};

TEST_F(TokenData, BlocksTrainAsTheirTextDoes) {
    const std::string evaluated = "--do_eval --eval_strategy steps --eval_steps 4 ";
    const std::string validation = test::golden_path("run_clm/validation.txt").string();
    train_on_file("of_text", text(), evaluated + "--block_size 32 --validation_file " + validation);
    const std::string blocks = tokenized("blocks.tokens", "--block_size 32");
    // Text used together with a token file is packed the same way.
    train_on_file("of_blocks", blocks, evaluated + "--validation_file " + validation);
    expect_equal_losses("of_blocks", "of_text");

    const std::string whole = " --validation_split_percentage 0 ";
    train_on_file("plain", text(), whole + "--block_size 32");
    train_on_file("plain_blocks", blocks, whole);
    expect_equal_losses("plain_blocks", "plain");
    train_on_file("pair", blocks, whole + "--per_device_train_batch_size 1", 2);
    expect_same_records("pair", "plain");
}

TEST_F(TokenData, RowsOfTextArePackedAsTheirTextIs) {
    const std::string rows = tokenized("rows.tokens", "--packing none");
    int number = 0;
    for (const std::string flags :
         {"--block_size 32 --do_eval", "--block_size 24 --packing lossless --pad_token eos",
          "--packing none --pad_token eos --block_size 16", "--packing none --pad_token eos",
          "--block_size 32 --preprocessing_num_workers 3", "--block_size 32 --streaming --max_steps 5"}) {
        const std::string name = std::to_string(number++);
        const bool pads = flags.find("lossless") != flags.npos;
        const std::string usable = pads ? flags.substr(0, flags.find(" --pad_token")) : flags;
        train_on_file("text" + name, text(), usable);
        train_on_file("rows" + name, rows, usable);
        expect_equal_losses("rows" + name, "text" + name);
    }
}

TEST_F(TokenData, AFolderOfTokenFilesIsADataset) {
    const std::string evaluated = " --do_eval --eval_strategy steps --eval_steps 4 ";
    std::filesystem::create_directory(folder_ / "ds");
    const std::string train = tokenized("ds/train.tokens", "--block_size 32"),
                      validation = tokenized("ds/validation.tokens", "--block_size 32 --max_samples 4");
    train_on_file("files", train, evaluated + "--validation_file " + validation);
    std::string line = words("folder", "");
    line.replace(line.find("--train_file"), line.find("--do_train") - line.find("--train_file"),
                 "--dataset_name " + at("ds") + " ");
    line.replace(line.find("--block_size 32"), 15, "");
    const test::Outcome named =
        test::run_in(folder_.path().string(), line + evaluated + "--learning_rate 1e-2 --logging_steps 1");
    ASSERT_EQ(named.exit_code, 0) << named.output;
    expect_equal_losses("folder", "files");
    expect_refusal(test::run("tokenize --tokenizer " + tokenizer_folder + " --input " + train + " --output " +
                             at("again.tokens")),
                   1, "is a token file, and text is needed");
}

/// Rows of ids longer than the model's positions or --block_size, together with text.
TEST_F(TokenData, LongRowsOfIdsAreCut) {
    if (load_module("arrow").handle == nullptr) GTEST_SKIP() << "drover_arrow.so was not built";
    std::vector<std::int32_t> ids(100);
    int left = 12;
    write_arrow_token_dataset(folder_ / "rows", [&]() -> std::span<const std::int32_t> {
        if (left == 0) return {};
        for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(left * 100 + i);
        return std::span(ids).first(static_cast<std::size_t>(100 - left--));
    });
    Json config = parse_json(read_text_file(test::golden_path("run_clm/configs/llama.json")), "config");
    config["max_position_embeddings"] = 48;
    const std::string flags =
        "--max_steps 2 --packing none --pad_token eos --config_name " + write("limited.json", config.dump());
    const auto longest = [&](const std::string& output, const std::string& more) {
        std::string line = words(output, flags + " --train_file " + at("rows") + " " + more);
        line.replace(line.find("--block_size 32"), 15, "");
        const test::Outcome outcome = test::run_in(folder_.path().string(), line);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        return outcome.output;
    };
    const std::string cut = longest("positions", "--validation_split_percentage 0");
    EXPECT_NE(cut.find("train: rows have up to 99 tokens; what is beyond the first 48"), std::string::npos)
        << cut;
    std::string line;
    for (int i = 0; i < 60; ++i) line += "speak ";
    const std::string beside = longest(
        "block", "--block_size 16 --do_eval --validation_file " + write("long.txt", line + "\n" + line));
    EXPECT_NE(beside.find("train: rows have up to 99 tokens; what is beyond the first 16"), std::string::npos)
        << beside;
    EXPECT_NE(beside.find("validation: "), std::string::npos);
    EXPECT_NE(beside.find("tokens were cut off, beyond the first 16 of a row"), std::string::npos) << beside;
}

TEST_F(TokenData, AnInterruptedRunGoesOn) {
    const std::string blocks = tokenized("blocks.tokens", "--block_size 32");
    train_on_file("whole", blocks, "--max_steps 8 --save_steps 4");
    train_on_file("parts", blocks, "--max_steps 8 --save_steps 4");
    std::filesystem::remove_all(checkpoint("parts", 8));
    train_on_file("parts", blocks, "--max_steps 8 --save_steps 4");
    test::expect_equal_state(checkpoint("parts", 8), checkpoint("whole", 8));
}

TEST_F(TokenData, ArrowFoldersTrainAsTheirTextDoes) {
    for (const char* file : {"/tokenizer.json", "/tokenizer_config.json"})
        std::filesystem::copy_file(tokenizer_folder + file, folder_.path().string() + file);
    Json config = read_json_file(folder_ / "tokenizer_config.json");
    config["model_max_length"] = 32;
    write("tokenizer_config.json", config.dump());
    const test::Outcome made =
        test::run_in(folder_.path().string(),
                     "tokenize --llama-version 2 --output wikicorpus_llama2_tokenized_4k --input " + text());
    if (made.output.find("Arrow") != std::string::npos) GTEST_SKIP() << made.output;
    ASSERT_EQ(made.exit_code, 0) << made.output;
    const std::string blocks = at("wikicorpus_llama2_tokenized_4k");
    const std::string whole = " --validation_split_percentage 0 ";
    train_on_file("of_text", text(), whole + "--block_size 32");
    train_on_file("as_file", blocks, whole);
    expect_equal_losses("as_file", "of_text");
    std::string line = words("as_dataset", "");
    line.replace(line.find("--train_file"), line.find("--do_train") - line.find("--train_file"),
                 "--dataset_name " + blocks + " ");
    line.replace(line.find("--block_size 32"), 15, "");
    const test::Outcome named =
        test::run_in(folder_.path().string(), line + whole + "--learning_rate 1e-2 --logging_steps 1");
    ASSERT_EQ(named.exit_code, 0) << named.output;
    expect_equal_losses("as_dataset", "of_text");
    expect_refusal(train("x", "--train_file " + blocks + " --block_size 16"), 1, "has rows of 32 tokens");
    expect_refusal(train("x", "--train_file " + blocks + " --streaming --max_steps 2"), 2,
                   "which are not streamed");

    const std::string eval = "eval --json --model " + at("of_text") + " --data ";
    EXPECT_EQ(test::run_drover(eval + blocks + " 2>/dev/null").output,
              test::run_drover(eval + text() + " --block_size 32 2>/dev/null").output);
}

TEST_F(TokenData, IdsOfAnotherModelAreRefused) {
    const std::string blocks = tokenized("blocks.tokens", "--block_size 32");
    const std::string other = test::golden_path("packing/tokenizer_without_bos").string();
    expect_refusal(train("x", "--train_file " + blocks + " --tokenizer_name " + other), 1,
                   "was made with another tokenizer");
    expect_refusal(test::run("eval --model " + test::golden_path("run_clm/saved").string() + " --data " +
                             blocks + " --tokenizer " + other),
                   1, "was made with another tokenizer");
    expect_refusal(train("x", "--train_file " + blocks + " --block_size 16"), 1, "has rows of 32 tokens");
    expect_refusal(train("x", "--train_file " + blocks + " --packing lossless"), 1,
                   "was made with --packing hf");
    expect_refusal(train("x", "--train_file " + blocks + " --text_column text"), 2, "has no columns");
    std::string damaged = read_text_file(blocks);
    damaged[200] ^= 1;
    expect_refusal(train("x", "--train_file " + write("damaged.tokens", damaged)), 1,
                   "damaged.tokens: the checksum of the data is wrong");
    EXPECT_FALSE(std::filesystem::exists(folder_ / "x"));
}

/// The file is truncated while the run has it mapped, and while it reads it.
TEST_F(TokenData, AFileThatBecomesShorterIsNamed) {
    const std::string blocks = tokenized("blocks.tokens", "--block_size 32");
    std::string line = words("out", "--max_steps 1000000 --save_strategy no");
    line.replace(line.find("--max_train_samples 20"), 22, "");
    const auto cut_under_way = [&](const std::string& file, const std::string& flags) {
        test::BackgroundRun run(line + " --logging_steps 1 --train_file " + file + flags, file + ".said");
        EXPECT_TRUE(run.wait_until([&] { return run.output().find("'loss'") != std::string::npos; }))
            << run.output();
        std::filesystem::resize_file(file, 256);
        EXPECT_EQ(run.exit_code(), 1) << run.output();
        EXPECT_NE(run.output().find("drover: " + file + " became shorter while it was read"),
                  std::string::npos)
            << run.output().substr(run.output().size() > 2000 ? run.output().size() - 2000 : 0);
        EXPECT_FALSE(std::filesystem::exists(folder_ / "out/model.safetensors"));
    };
    cut_under_way(blocks, " --validation_split_percentage 0");
    cut_under_way(write("streamed.txt", read_text_file(text())),
                  " --streaming --validation_split_percentage 0");
}

}  // namespace
}  // namespace drover
