// Runs on malformed or unusual data.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>

#include "app/mesh_runs.h"
#include "core/json_text.h"

namespace drover {
namespace {

class DataRuns : public test::MeshRuns {
  protected:
    std::string write(const std::string& name, const std::string& content) const {
        std::ofstream(folder_ / name, std::ios::binary) << content;
        return (folder_ / name).string();
    }
    /// Rows of a JSON file, each with a text.
    std::string rows(const std::string& name, const std::vector<std::string>& texts) const {
        std::string lines;
        for (const std::string& text : texts) lines += Json{{"text", text}}.dump() + "\n";
        return write(name, lines);
    }
    void expect_refusal(const test::Outcome& outcome, int exit_code, const std::string& part) const {
        EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
        EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
    }
    std::string model() const { return test::golden_path("run_clm/saved").string(); }
    const std::string tokenizer_ = DROVER_SOURCE_DIR "/examples/tokenizers/shakespeare-4k";
};

/// A row of one token, such as an empty text, has nothing to predict. If it is a whole batch, that batch does
/// not count; on two processes, one of them has such a batch while the other's is full.
TEST_F(DataRuns, BatchesWithoutTargetsDoNotCountInEvaluation) {
    const std::vector<std::string> full{"First Citizen:", "Speak, speak.",
                                        "You are all resolved rather to die"};
    std::vector<std::string> mixed;
    for (const std::string& text : full) {
        mixed.push_back(text);
        mixed.emplace_back();
    }
    const auto evaluate = [&](const std::string& output, const std::string& file, int batch, int processes,
                              const std::string& more) {
        const test::Outcome outcome =
            train_on(processes, output,
                     fmt::format("--do_train no --do_eval --packing none --per_device_eval_batch_size {0} "
                                 "--config_name {1} --model_name_or_path {1} --validation_file {2} {3}",
                                 batch, model(), file, more));
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        const std::filesystem::path results = folder_ / output / "eval_results.json";
        return parse_python_json(read_text_file(results), results.string());
    };
    const std::string all = rows("mixed.json", mixed);
    const Json expected = evaluate("full", rows("full.json", full), 1, 1, "");
    for (const auto& [name, found] :
         {std::pair("alone", evaluate("alone", all, 1, 1, "")),
          std::pair("pair", evaluate("pair", all, 1, 2, "")),
          std::pair("shared", evaluate("shared", all, 2, 2, "--spmd_fsdp_sharding"))})
        for (const char* key : {"eval_loss", "perplexity", "eval_accuracy"})
            EXPECT_NEAR(found.at(key).get<double>(), expected.at(key).get<double>(),
                        1e-5 * expected.at(key).get<double>() + 1e-9)
                << name << " " << key;
    expect_refusal(train("none", "--do_train no --do_eval --packing none --validation_file " +
                                     rows("empty.json", {"", "", ""})),
                   1, "nothing to predict");
}

TEST_F(DataRuns, BlocksOfOneTokenAreRefused) {
    expect_refusal(train("out", "--block_size 1"), 2, "Use at least 2.");
    const std::string eval = "eval --model " + model() + " --tokenizer " + tokenizer_ + " --data " +
                             test::golden_path("run_clm/validation.txt").string();
    expect_refusal(test::run(eval + " --block_size 1"), 2, "Use at least 2.");
    expect_refusal(test::run(eval + " --block_size -1"), 2,
                   "--block_size is -1, which is out of its range. Use a number from 0 to ");
    EXPECT_EQ(test::run(eval + " --block_size -1").output.find("00000"), std::string::npos);
}

/// Unpacked rows are cut at the block size or, without one, at the model's positions.
TEST_F(DataRuns, LongRowsAreCut) {
    std::string text = "First";
    for (int i = 0; i < 400; ++i) text += " Citizen";
    const std::string file = rows("long.json", std::vector<std::string>(8, text));
    const auto longest_row = [&](const std::string& flags) {
        const test::Outcome outcome =
            train("out", "--packing none --dry_run --validation_split_percentage 0 --train_file " + file +
                             " " + flags);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        const std::string before = "beyond the first ";
        const std::size_t at = outcome.output.find(before);
        return at == std::string::npos ? 0 : std::atoi(outcome.output.c_str() + at + before.size());
    };
    EXPECT_EQ(longest_row("--block_size 64"), 64);
    EXPECT_EQ(longest_row("--block_size 64"), 64) << "what was tokenized before is cut no less";
    std::string config = read_text_file(test::golden_path("run_clm/configs/llama.json"));
    Json limited = parse_json(config, "config");
    limited["max_position_embeddings"] = 48;
    std::string line =
        words("out", "--packing none --max_steps 2 --validation_split_percentage 0 --train_file " + file +
                         " --config_name " + write("limited.json", limited.dump()));
    line.replace(line.find("--block_size 32"), 15, "");
    const test::Outcome outcome = test::run_in(folder_.path().string(), line);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("beyond the first 48 of a row"), std::string::npos) << outcome.output;
}

TEST_F(DataRuns, TheColumnsAreNamed) {
    std::string lines, chats;
    for (int i = 0; i < 40; ++i) {
        lines += Json{{"id", "1"}, {"body", "Before we proceed any further, hear me speak."}, {"url", "x"}}
                     .dump() +
                 "\n";
        chats +=
            Json{{"prompt", "Before we proceed any further"}, {"completion", "hear me speak."}}.dump() + "\n";
    }
    const std::string flags = " --max_steps 1 --validation_split_percentage 0 --train_file ";
    const test::Outcome named = train("named", "--text_column body" + flags + write("a.jsonl", lines));
    EXPECT_EQ(named.exit_code, 0) << named.output;
    EXPECT_NE(named.output.find("The text is in the column \"body\"; not used: id, url."), std::string::npos)
        << named.output;
    expect_refusal(train("chats", flags + write("b.jsonl", chats)), 1, "--text_column");
    EXPECT_EQ(train("chats", "--text_column prompt" + flags + write("b.jsonl", chats)).exit_code, 0);
    expect_refusal(test::run("tokenize --block_size 8 --tokenizer " + tokenizer_ + " --input " +
                             write("b.jsonl", chats) + " --output " + (folder_ / "b.tokens").string()),
                   1, "--text_column");
}

TEST_F(DataRuns, AShareOfNothingIsRefusedByItsName) {
    expect_refusal(train("out", "--do_eval --validation_split_percentage 0"), 2,
                   "--validation_split_percentage is 0");
    expect_refusal(train("out", "--validation_split_percentage 100"), 2,
                   "--validation_split_percentage is 100");
    expect_refusal(train("out", "--do_eval --validation_split_percentage 1 --train_file " +
                                    write("few.txt", "First\nSecond\nThird\n")),
                   1, "no row of 3 is validation data");
    EXPECT_EQ(train("out", "--max_steps 1 --validation_split_percentage 0").exit_code, 0);
}

/// A tokenizer with more tokens than the model: training reports that the model grows, evaluation refuses.
TEST_F(DataRuns, ATokenizerThatIsLargerThanTheModel) {
    Json config = parse_json(read_text_file(test::golden_path("run_clm/configs/llama.json")), "config");
    config["vocab_size"] = 1000;
    const test::Outcome grown =
        train("grown", "--max_steps 1 --config_name " + write("small.json", config.dump()));
    EXPECT_EQ(grown.exit_code, 0) << grown.output;
    EXPECT_NE(grown.output.find("more, untrained ones"), std::string::npos) << grown.output;
    // A tokenizer with one token more than the new model.
    const std::filesystem::path folder = folder_ / "larger";
    std::filesystem::copy(tokenizer_, folder);
    Json tokens = parse_json(read_text_file(folder / "tokenizer.json"), "tokenizer");
    Json added = tokens.at("added_tokens").at(0);
    added["id"] = 4096;
    added["content"] = "<|one more|>";
    tokens["added_tokens"].push_back(added);
    write("larger/tokenizer.json", tokens.dump());
    expect_refusal(
        test::run("eval --block_size 32 --model " + (folder_ / "grown").string() + " --tokenizer " +
                  folder.string() + " --data " + test::golden_path("run_clm/validation.txt").string()),
        1, "The tokenizer has 4097 tokens, but the model's vocabulary only 4096.");
}

/// Peak memory of a program, in bytes, beyond that of the same program on a short text.
TEST_F(DataRuns, ALongLineTakesAFewTimesItsSize) {
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "the sanitizer keeps memory that was freed";
#endif
    const auto tokenize = [&](const std::string& name, std::size_t bytes) {
        std::string text = "First";
        while (text.size() < bytes) text += " Citizen and 7 of the others, who speak";
        const std::string file = write(name, text);
        EXPECT_EQ(
            test::run("tokenize --overwrite --threads 1 --block_size 1024 --packing lossless --tokenizer " +
                      tokenizer_ + " --input " + file + " --output " + (folder_ / "out").string())
                .exit_code,
            0);
        rusage usage{};
        getrusage(RUSAGE_CHILDREN, &usage);  // the maximum so far
        return static_cast<double>(usage.ru_maxrss) * 1024;
    };
    const double before = tokenize("short.txt", 1000);
    constexpr std::size_t size = 24U << 20;
    const double grown = tokenize("long.txt", size) - before;
    EXPECT_LT(grown, 7.0 * size);
    if (grown <= 0) GTEST_SKIP() << "other tests of this process needed more";
}

}  // namespace
}  // namespace drover
