#include <gtest/gtest.h>

#include "core/json.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "support/golden.h"
#include "support/run_drover.h"
#include "support/terminal_run.h"

namespace drover {
namespace {

const std::string tokenizer = DROVER_SOURCE_DIR "/examples/tokenizers/chat-1k";

/// A small model with random weights and a tokenizer with a chat template.
class ChatCommand : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        folder_ = new test::TemporaryFolder();
        write_file_atomically(path("text.txt"), "Little Wendle is a small harbour town.\n");
        const test::Outcome made = test::run(
            "run_clm --model_type llama --config_overrides vocab_size=1024,hidden_size=32,"
            "intermediate_size=64,num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=2,"
            "max_position_embeddings=4096 --tokenizer_name " +
            tokenizer + " --train_file " + path("text.txt") +
            " --block_size 8 --validation_split_percentage 0 --do_train --max_steps 1 --output_dir " +
            path("model"));
        ASSERT_EQ(made.exit_code, 0) << made.output;
    }
    static void TearDownTestSuite() {
        delete folder_;
        folder_ = nullptr;
    }

    static std::string path(const std::string& name) { return (*folder_ / name).string(); }
    static std::string command(const std::string& rest) {
        return "generate --model " + path("model") + " " + rest;
    }
    static Json json_of(const std::string& rest) {
        const test::Outcome outcome = test::run_drover(command(rest) + " 2>/dev/null");
        EXPECT_EQ(outcome.exit_code, 0) << rest << "\n" << outcome.output;
        return parse_json(outcome.output, rest);
    }
    static void expect_refusal(const std::string& command, int code, const std::string& text) {
        const test::Outcome outcome = test::run(command);
        EXPECT_EQ(outcome.exit_code, code) << command << "\n" << outcome.output;
        EXPECT_NE(outcome.output.find(text), std::string::npos) << outcome.output;
    }

    static inline test::TemporaryFolder* folder_ = nullptr;
};

constexpr const char* question = R"([{"role": "user", "content": "Hello!"}])";

TEST_F(ChatCommand, AnswersMessagesOfAFileAndOfAPipe) {
    write_file_atomically(path("messages.json"), question);
    const Json from_file = json_of("--messages " + path("messages.json") + " --max_new_tokens 6 --json");
    EXPECT_LE(from_file.at("ids").size(), 6u);
    // The prompt is what the template makes of it, and nothing else.
    write_file_atomically(path("line.json"),
                          Json("<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n").dump() + "\n");
    const test::Outcome ids =
        test::run_drover("tokenize --tokenizer " + tokenizer + " --ids < " + path("line.json"));
    EXPECT_EQ(from_file.at("prompt_ids"), parse_json(ids.output, "ids"));

    const std::string flags = " --max_new_tokens 6 --json";
    EXPECT_EQ(json_of("--chat" + flags + " < " + path("messages.json")), from_file);
    EXPECT_EQ(json_of("--messages - --max_new_tokens 6 --json < " + path("messages.json")), from_file);
    write_file_atomically(path("question.txt"), "Hello!\n");
    EXPECT_EQ(json_of("--chat" + flags + " < " + path("question.txt")), from_file);
    const test::Outcome text =
        test::run_drover(command("--chat --max_new_tokens 6 2>/dev/null < " + path("question.txt")));
    EXPECT_EQ(text.output, from_file.at("text").get<std::string>() + "\n");
    EXPECT_NE(json_of("--system Hi --chat" + flags + " < " + path("question.txt")).at("prompt_ids"),
              from_file.at("prompt_ids"));
}

TEST_F(ChatCommand, TakesATemplateOfAnotherPlace) {
    write_file_atomically(path("plain.jinja"), "{{ messages[0].content }}");
    write_file_atomically(path("question.txt"), "Hello!\n");
    const Json found = json_of("--chat --max_new_tokens 1 --json --chat_template_path " +
                               path("plain.jinja") + " < " + path("question.txt"));
    write_file_atomically(path("line.json"), "\"Hello!\"\n");
    const test::Outcome ids =
        test::run_drover("tokenize --tokenizer " + tokenizer + " --ids < " + path("line.json"));
    EXPECT_EQ(found.at("prompt_ids"), parse_json(ids.output, "ids"));
}

TEST_F(ChatCommand, RefusesWhatMakesNoSense) {
    expect_refusal(command("--chat --prompt a < /dev/null"), 2, "Both a prompt and a chat");
    expect_refusal(command("--prompt a --system b"), 2, "--system is given without --chat");
    expect_refusal(command("--chat < /dev/null"), 1, "Standard input is empty.");
    write_file_atomically(path("wrong.json"), "{\"messages\": 1}");
    expect_refusal(command("--messages " + path("wrong.json")), 1, "wrong.json has no messages.");
    write_file_atomically(path("question.txt"), "Hello!\n");
    expect_refusal(command("--chat --context_length 4 < ") + path("question.txt"), 1,
                   "tokens, but --context_length is 4.");
    expect_refusal(command("--chat --tokenizer " DROVER_SOURCE_DIR "/examples/tokenizers/shakespeare-4k < ") +
                       path("question.txt"),
                   1, "has no chat template.");
}

TEST_F(ChatCommand, TalksOnATerminal) {
    test::TerminalRun run(command("--chat --max_new_tokens 8"));
    ASSERT_TRUE(run.wait_for("/help lists the commands")) << run.output();
    ASSERT_TRUE(run.wait_for("> ")) << run.output();
    run.type("Hello!\n");
    ASSERT_TRUE(run.wait_for("Hello!\r\n")) << run.output();  // the echo
    ASSERT_TRUE(run.wait_for("> ")) << run.output();
    const std::string first = run.seen();
    // The second answer depends on the first question and answer; after /reset the first comes again.
    run.type("Hello!\n");
    ASSERT_TRUE(run.wait_for("Hello!\r\n")) << run.output();
    ASSERT_TRUE(run.wait_for("> ")) << run.output();
    EXPECT_NE(run.seen(), first) << run.output();
    run.type("/reset\n");
    ASSERT_TRUE(run.wait_for("> ")) << run.output();
    run.type("Hello!\n");
    ASSERT_TRUE(run.wait_for("Hello!\r\n")) << run.output();
    ASSERT_TRUE(run.wait_for("> ")) << run.output();
    EXPECT_EQ(run.seen(), first) << run.output();
    run.type("/help\n");
    ASSERT_TRUE(run.wait_for("/system TEXT")) << run.output();
    ASSERT_TRUE(run.wait_for("> ")) << run.output();
    run.type("/nonsense\n");
    ASSERT_TRUE(run.wait_for("There is no command /nonsense.")) << run.output();
    ASSERT_TRUE(run.wait_for("> ")) << run.output();
    run.type("\x04");
    EXPECT_EQ(run.exit_code(), 0) << run.output();
}

TEST_F(ChatCommand, CtrlCStopsAnAnswerAndEndsAtThePrompt) {
    test::TerminalRun run(command("--chat --max_new_tokens 4000"));
    ASSERT_TRUE(run.wait_for("> ")) << run.output();
    run.type("Hello!\n");
    ASSERT_TRUE(run.wait_for("Hello!\r\n")) << run.output();
    ASSERT_TRUE(run.wait_for(" ")) << run.output();  // the answer has begun
    run.type("\x03");
    ASSERT_TRUE(run.wait_for("> ")) << run.output();
    EXPECT_EQ(run.output().find("cut off"), std::string::npos) << run.output();
    run.type("/exactly\n");  // the conversation is alive
    ASSERT_TRUE(run.wait_for("There is no command /exactly.")) << run.output();
    ASSERT_TRUE(run.wait_for("> ")) << run.output();
    run.type("\x03");
    EXPECT_EQ(run.exit_code(), 0) << run.output();
}

TEST_F(ChatCommand, ForgetsTheBeginningOfALongConversation) {
    test::TerminalRun run(command("--chat --max_new_tokens 16 --context_length 64"));
    ASSERT_TRUE(run.wait_for("> ")) << run.output();
    for (int turn = 0; turn < 4; ++turn) {
        run.type("Tell me about the lighthouse.\n");
        ASSERT_TRUE(run.wait_for("lighthouse.\r\n")) << run.output();
        ASSERT_TRUE(run.wait_for("> ")) << run.output();
    }
    EXPECT_NE(run.output().find("longer than 64 tokens: its beginning is forgotten"), std::string::npos)
        << run.output();
    // One message that is too long is refused, and the conversation goes on.
    run.type(std::string(60, 'x') + " " + std::string(60, 'y') + "\n");
    ASSERT_TRUE(run.wait_for("Shorten the prompt.")) << run.output();
    ASSERT_TRUE(run.wait_for("> ")) << run.output();
    run.type("/exit\n");
    EXPECT_EQ(run.exit_code(), 0) << run.output();
}

}  // namespace
}  // namespace drover
