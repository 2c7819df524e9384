#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "support/run_drover.h"

namespace drover {
namespace {

using test::Outcome;
using test::run;

TEST(CommandLine, HelpAndVersion) {
    const Outcome help = run("--help");
    EXPECT_EQ(help.exit_code, 0);
    for (const char* command : {"run_clm", "tokenize", "bench", "Llama", "Mixtral"})
        EXPECT_NE(help.output.find(command), std::string::npos) << help.output;
    EXPECT_NE(run("run_clm --help").output.find("--learning_rate"), std::string::npos);
    const Outcome version = run("--version");
    EXPECT_EQ(version.exit_code, 0);
    const std::regex form(R"(drover \d+\.\d+\.\d+ \(commit ([0-9a-f]{12,}(, modified)?|unknown)\)
\w+( \(with sanitizers\))? build, [\w.+ ]+, (without CUDA|CUDA \d+\.\d+ for [\w,-]+)
modules: .*\bmpi\b.*
)");
    EXPECT_TRUE(std::regex_match(version.output, form)) << version.output;
}

TEST(CommandLine, UsageErrorsExitWithTwo) {
    for (const auto& [arguments, part] : {std::pair{"", "subcommand"}, std::pair{"dance", "dance"},
                                          std::pair{"bench --stepz 3", "--stepz"}}) {
        const Outcome outcome = run(arguments);
        EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
        EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
        EXPECT_TRUE(outcome.output.starts_with("drover: ")) << outcome.output;
    }
}

TEST(CommandLine, HyphensAndUnderscoresAreTheSame) {
    // The model is wrong, not a flag.
    for (const char* arguments : {"generate --max-new-tokens 3 --top-k=5 --prompt x --model nowhere",
                                  "eval --block-size 32 --model nowhere --data /dev/null",
                                  "bench --comm-stats --fsdp --model nowhere"}) {
        const Outcome outcome = run(arguments);
        EXPECT_EQ(outcome.output.find("no flag"), std::string::npos) << outcome.output;
        EXPECT_NE(outcome.output.find("nowhere"), std::string::npos) << outcome.output;
    }
    EXPECT_NE(
        run("tokenize --llama_version 2 --tokenizer x").output.find("--llama-version fixes the tokenizer"),
        std::string::npos);
    // A word that only looks like a flag of another command is unchanged.
    EXPECT_NE(run("generate --llama-version 2 --model x --prompt y").output.find("--llama-version"),
              std::string::npos);
}

TEST(CommandLine, UnknownFlagsAreNamedInOrderWithTheNearest) {
    const auto said = [](const std::string& arguments) {
        const Outcome outcome = run(arguments);
        EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
        return outcome.output;
    };
    EXPECT_EQ(said("bench --model llama-5m --stepz 3"),
              "drover: `drover bench` has no flag --stepz. Did you mean --steps?\n");
    EXPECT_EQ(said("generate --model x --prompt y --max_new_token 3 --wherever=1 --topk 2"),
              "drover: `drover generate` has no flag --max_new_token, --wherever or --topk. Did you mean "
              "--max_new_tokens and --top_k?\n");
    EXPECT_EQ(said("generate --modle x --prompt y"),
              "drover: `drover generate` has no flag --modle. Did you mean --model?\n");
    EXPECT_EQ(said("bench ops --model llama-5m --qqqqqqqqqq"),
              "drover: `drover bench ops` has no flag --qqqqqqqqqq. `drover bench ops --help` lists its "
              "flags.\n");
    EXPECT_EQ(said("launch --nproc_per_nod 2 run_clm"),
              "drover: The flag --nproc_per_nod is unknown. Did you mean --nproc_per_node?\n");
    EXPECT_EQ(said("eval --model x --data /dev/null one two"),
              "drover: `drover eval` does not expect \"one\", \"two\". Values follow their flags. `drover "
              "eval --help` lists its flags.\n");
    EXPECT_EQ(said("bench opps --stepz 3"),
              "drover: `drover bench` has no flag --stepz and does not expect \"opps\". Did you mean ops and "
              "--steps?\n");
    EXPECT_EQ(said("launch --foo=3 run_clm"),
              "drover: The flag --foo=3 is unknown. Flags of run_clm belong after run_clm.\n");
}

}  // namespace
}  // namespace drover
