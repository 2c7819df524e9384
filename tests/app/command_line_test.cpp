#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "support/run_drover.h"

namespace drover {
namespace {

using test::Outcome;
using test::run;

/// The words that a shell is offered after those on a command line.
std::vector<std::string> offered(const std::string& words) {
    std::istringstream lines(test::run_drover("completion-candidates bash " + words).output);
    std::vector<std::string> result;
    for (std::string line; std::getline(lines, line);)
        if (!line.starts_with(':')) result.push_back(line.substr(0, line.find('\t')));
    return result;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

/// Every command, nested ones too: "eval", "bench ops".
const std::vector<std::string>& all_commands() {
    static const std::vector<std::string> commands = [] {
        std::vector<std::string> all = offered("''");
        for (std::size_t i = 0; i < all.size(); ++i)
            for (const std::string& name : offered(all[i] + " ''")) {
                const std::string nested = all[i] + " " + name;
                if (!name.starts_with("--") &&
                    run("help " + nested).output.find("Usage: drover " + nested) != std::string::npos)
                    all.push_back(nested);
            }
        return all;
    }();
    return commands;
}

bool has_table(const std::string& command) {
    return command == "run_clm" || command == "sft" || command == "run_llama_nxd";
}

/// Its flags end at the first word that it does not know.
bool passes_words_on(const std::string& command) {
    for (const char* one : {"launch", "precompile", "help", "man"})
        if (command == one) return true;
    return has_table(command);
}

/// The flags of a command but --help.
std::vector<std::string> flags_of(const std::string& command) {
    std::vector<std::string> flags = offered(command + " --");
    std::erase(flags, "--help");
    return flags;
}

/// With a letter twice, in the middle.
std::string misspelled(std::string word) {
    const std::size_t middle = 2 + (word.size() - 2) / 2;
    return word.insert(middle, 1, word[middle]);
}

TEST(CommandLine, HelpAndVersion) {
    const Outcome help = run("--help");
    EXPECT_EQ(help.exit_code, 0);
    for (const char* part : {"Llama", "Mixtral", "\nTrain\n", "\nUse a model\n"})
        EXPECT_NE(help.output.find(part), std::string::npos) << help.output;
    for (const std::string& command : offered("''"))
        EXPECT_NE(help.output.find("\n  " + command + " "), std::string::npos) << command;
    EXPECT_LE(test::count_of(help.output, "\n"), 40u);
    EXPECT_NE(run("run_clm --help").output.find("--learning_rate"), std::string::npos);
    const Outcome version = run("--version");
    EXPECT_EQ(version.exit_code, 0);
    const std::regex form(R"(drover \d+\.\d+\.\d+ \(commit ([0-9a-f]{12,}(, modified)?|unknown)\)
\w+( \(with sanitizers\))? build, [\w.+ ]+, (without CUDA|CUDA \d+\.\d+ for [\w,-]+)
modules: .*\bmpi\b.*
)");
    EXPECT_TRUE(std::regex_match(version.output, form)) << version.output;
    EXPECT_EQ(run("help").output, help.output);
}

TEST(CommandLine, HelpOfEveryCommand) {
    EXPECT_GE(all_commands().size(), 20u);
    for (const std::string& command : all_commands()) {
        const Outcome help = run(command + " --help");
        EXPECT_EQ(help.exit_code, 0) << command;
        EXPECT_NE(help.output.find("Usage: drover " + command), std::string::npos) << help.output;
        EXPECT_EQ(run("help " + command).output, help.output);
        EXPECT_LE(test::count_of(help.output, "\n"), 40u) << help.output;
        const std::string all = run(command + " --help all").output;
        EXPECT_EQ(run("help " + command + " all").output, all);
        for (const std::string& line : lines_of(help.output + all)) EXPECT_LE(line.size(), 100u) << line;
    }
}

TEST(CommandLine, HelpOnAllAndTheManualHaveEveryFlag) {
    for (const std::string& command : all_commands()) {
        const std::string all = run(command + " --help all").output;
        const std::string page = std::regex_replace(run("man " + command.substr(0, command.find(' '))).output,
                                                    std::regex(R"(\\-)"), "-");
        for (const std::string& flag : flags_of(command)) {
            // At the beginning of an entry: texts of others name it too.
            const std::string name = R"((\S+, )*)" + flag + R"((?![\w-]))";
            EXPECT_TRUE(std::regex_search(all, std::regex("\n  " + name))) << flag << "\n" << all;
            EXPECT_TRUE(std::regex_search(page, std::regex(R"(\n\\fB)" + name))) << flag << " of " << command;
        }
    }
}

TEST(CommandLine, HelpThatIsAnExcerptNamesEveryFlag) {
    for (const std::string command : {"bench", "convert"}) {
        const std::string screen = run(command + " --help").output, all = run(command + " --help all").output;
        EXPECT_LT(screen.size(), all.size());
        EXPECT_NE(
            screen.find("\nMore: drover " + command + " --help WORD, where WORD is a flag above, or\n  all,"),
            std::string::npos)
            << screen;
        for (const std::string& flag : flags_of(command))
            EXPECT_TRUE(std::regex_search(screen, std::regex(R"((--|\s))" + flag.substr(2) + R"((?![\w-]))")))
                << flag << "\n"
                << screen;
        EXPECT_EQ(run(command + " --threads 1 --help all").output, all);
        EXPECT_EQ(run(command + " --help=all").output, all);
    }
    const std::string convert = run("convert --help").output;
    for (const char* part :
         {"\n  --output_dir TEXT                      where the result appears, complete (required)\n",
          "\n  --output_format CHOICE ", "\n  --convert_to_full_state                files",
          "\n  --virtual_pp_size N                    stages of each pipeline rank (1)\n"})
        EXPECT_NE(convert.find(part), std::string::npos) << part << convert;
    // Words that a command passes on are not about its own flags.
    EXPECT_NE(run("launch run_clm --help=lr").output.find("--learning_rate\n"), std::string::npos);
}

TEST(CommandLine, HelpHasFlagsWithTheirValuesAndMeanings) {
    const std::string convert = run("convert --help all").output;
    for (const char* part : {"Usage: drover convert [--NAME VALUE ...]\n",
                             "\n  --output_dir TEXT             where the result", "complete (required)\n",
                             "\n  --hw_backend trn1|trn2 ", "\n  --convert_to_xser [yes|no]    the other",
                             "\n  --virtual_pp_size N           stages of each pipeline rank (1)\n"})
        EXPECT_NE(convert.find(part), std::string::npos) << part << convert;
    EXPECT_EQ(convert.find("[]"), std::string::npos) << convert;
    const std::string bench = run("bench --help all").output;
    for (const char* part : {"\nUsage: drover bench [COMMAND] [--NAME VALUE ...]\n",
                             " (with --example_length)\n", "\nCommands\n  ops  "})
        EXPECT_NE(bench.find(part), std::string::npos) << part << bench;
    EXPECT_NE(run("fetch --help").output.find("Usage: drover fetch repository [files] [--NAME"),
              std::string::npos);
    EXPECT_NE(run("cache --help").output.find("Usage: drover cache COMMAND\n"), std::string::npos);
    const std::string launch = run("launch --help").output;
    EXPECT_NE(launch.find("\n  --node_rank TEXT "), std::string::npos) << launch;
    EXPECT_EQ(launch.find("--node-rank"), std::string::npos) << launch;
    EXPECT_NE(launch.find(" \\\n      "), std::string::npos) << "an example over several lines" << launch;
}

TEST(CommandLine, HelpOnATopic) {
    EXPECT_EQ(run("run_clm --help lr").output, run("help run-clm learning_rate").output);
    EXPECT_NE(run("sft --help data").output.find("--dataset_text_field"), std::string::npos);
    EXPECT_EQ(run("help run_llama_nxd all").output, run("run_llama_nxd --help all").output);
    const std::string one = run("help generate top-k").output;
    EXPECT_NE(one.find("--top_k N"), std::string::npos) << one;
    EXPECT_NE(one.find("likeliest tokens"), std::string::npos) << one;
    EXPECT_EQ(run("generate --help top_k").output, one);
    const Outcome begins_with_no = run("help run_clm no");
    EXPECT_EQ(begins_with_no.exit_code, 0);
    EXPECT_NE(begins_with_no.output.find("--use_cpu\n"), std::string::npos) << begins_with_no.output;
    EXPECT_EQ(begins_with_no.output.find("--bf16"), std::string::npos);
    // The beginning of one name, or of several.
    const std::string processes = run("help launch nproc").output;
    EXPECT_NE(processes.find("--nproc_per_node"), std::string::npos) << processes;
    EXPECT_EQ(processes.find("--hostfile"), std::string::npos) << processes;
    const std::string several = run("help generate top").output;
    EXPECT_NE(several.find("--top_k N"), std::string::npos) << several;
    EXPECT_NE(several.find("--top_p N"), std::string::npos) << several;
    EXPECT_NE(run("sft --help lr").output.find("--learning_rate\n"), std::string::npos);
    for (const auto& [words, part] :
         {std::pair{"run_clm --help learning_rt", "Did you mean learning_rate?"},
          std::pair{"help sft max_lenght", "Did you mean max_length?"},
          std::pair{"help generate topk", "Did you mean top_k?"},
          std::pair{"generate --help topk", "Did you mean top_k?"},
          std::pair{"help trian", "Did you mean run_clm or sft?"},
          // Words for yes and no are topics like others here.
          std::pair{"help run_clm yes", "no argument and no group"},
          std::pair{"help run_clm 0", "no argument and no group"},
          std::pair{"help run_clm data junk", "\"junk\" is not expected"},
          std::pair{"help generate top_k junk", "\"junk\" is not expected"},
          std::pair{"help lr",
                    "lr is a flag of run_clm, run_llama_nxd, sft. Write "
                    "drover help run_clm lr."},
          std::pair{"help data", "data is a group of flags of run_clm, run_llama_nxd, sft."},
          std::pair{"help top-k", "Write drover help generate top_k."}}) {
        const Outcome outcome = run(words);
        EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
        EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
    }
}

TEST(CommandLine, MisspelledCommandsAreNamedWithTheNearest) {
    for (const std::string& command : all_commands()) {
        const std::size_t last = command.rfind(' ') == std::string::npos ? 0 : command.rfind(' ') + 1;
        std::string name = command.substr(last);
        name.insert(name.size() / 2, 1, name[name.size() / 2]);
        const Outcome outcome = run(command.substr(0, last) + name);
        EXPECT_EQ(outcome.exit_code, 2) << command;
        EXPECT_NE(outcome.output.find("\"" + name + "\""), std::string::npos) << outcome.output;
        EXPECT_NE(outcome.output.find("Did you mean " + command.substr(last) + "?"), std::string::npos)
            << outcome.output;
    }
    for (const auto& [words, meant] :
         {std::pair{"trian", "run_clm or sft"}, std::pair{"train x.json", "run_clm or sft"},
          std::pair{"fine-tune", "sft or run_clm"}, std::pair{"run_clm.py", "run_clm"},
          std::pair{"chat", "generate --chat"}, std::pair{"download x", "fetch"},
          std::pair{"lunch --nproc_per_node 2", "launch"}, std::pair{"launch run_cml", "run_clm"},
          std::pair{"precompile run_cml", "run_clm"}}) {
        const Outcome outcome = run(words);
        EXPECT_NE(outcome.exit_code, 0);
        EXPECT_NE(outcome.output.find(std::string("Did you mean ") + meant + "?"), std::string::npos)
            << outcome.output;
    }
}

TEST(CommandLine, MisspelledFlagsOfEveryCommandAreNamedWithTheNearest) {
    for (const std::string& command : all_commands()) {
        if (passes_words_on(command)) continue;
        std::string words;
        for (const std::string& flag : flags_of(command))
            if (flag.size() >= 6) words += " " + misspelled(flag) + "=1";
        const Outcome outcome = run(command + words + " --zzzqqq");
        EXPECT_EQ(outcome.exit_code, 2) << command;
        if (words.empty()) continue;
        const std::size_t meant = outcome.output.find("Did you mean ");
        ASSERT_NE(meant, std::string::npos) << outcome.output;
        for (const std::string& flag : flags_of(command))
            if (flag.size() >= 6) {
                EXPECT_NE(outcome.output.find(flag, meant), std::string::npos) << flag << "\n"
                                                                               << outcome.output;
            }
    }
    // What a command passes on is not what is wrong with its own flags.
    EXPECT_NE(
        run("precompile --command=x bash run.sh").output.find("--command is \"x\", which is not one of"),
        std::string::npos);
    // These stop at the first word that they do not know.
    for (const char* words :
         {"launch --nnoodes=1", "launch --nnoodes 2 run_clm", "precompile --comand=collect x",
          "run_clm --learning_ratee=1", "sft --max_lengthh 3", "run_llama_nxd --trainin_dir x"}) {
        const Outcome outcome = run(words);
        EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
        EXPECT_NE(outcome.output.find("Did you mean --"), std::string::npos) << outcome.output;
    }
}

TEST(CommandLine, EveryFlagIsKnownInBothSpellingsAndTakesItsValueBehindEquals) {
    for (const std::string& command : all_commands()) {
        if (has_table(command)) continue;  // tests/args/parse_test.cpp
        for (const auto& [from, to] : {std::pair{'_', '-'}, std::pair{'-', '_'}}) {
            std::string words;
            for (std::string flag : flags_of(command)) {
                std::replace(flag.begin() + 2, flag.end(), from, to);
                words += " " + flag + "=1";
            }
            // The last flag is the only one that is unknown. (precompile has a flag that takes no 1.)
            const Outcome outcome = run(command + words + " --zzzqqq");
            const auto says = [&](const char* text) {
                return outcome.output.find(text) != std::string::npos;
            };
            EXPECT_EQ(outcome.exit_code, 2) << command << words;
            EXPECT_TRUE(passes_words_on(command) ? says("The flag --zzzqqq is unknown.") ||
                                                       says("--command is \"1\", which is not one of")
                                                 : says("no flag --zzzqqq."))
                << command << words << "\n"
                << outcome.output;
        }
    }
}

TEST(CommandLine, UsageErrorsExitWithTwo) {
    for (const auto& [arguments, part] :
         {std::pair{"", "command"}, std::pair{"dance", "dance"}, std::pair{"bench --stepz 3", "--stepz"}}) {
        const Outcome outcome = run(arguments);
        EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
        EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
        EXPECT_TRUE(outcome.output.starts_with("drover: ")) << outcome.output;
    }
}

TEST(CommandLine, WrongValuesAreNamedWithWhatToWrite) {
    for (const auto& [arguments, said] :
         {std::pair{
              "generate --temperature abc",
              "--temperature is \"abc\", which is not a number. Write it as 3, 0.5 or 5e-5. Run `drover "
              "generate --help` for its flags."},
          std::pair{"generate --top_k 1.5", "--top_k is \"1.5\", which is not a whole number."},
          std::pair{"generate --device gpu",
                    "--device is \"gpu\", which is not one of its choices. Use auto, cpu or cuda."},
          std::pair{"bench --steps 0", "--steps is 0, which is out of its range. Use a number from 3 to"},
          std::pair{"eval --data /nowhere", "--data is /nowhere, which does not exist. Check the path."},
          std::pair{"generate --model", "--model needs a value. Write it after the flag."},
          std::pair{"generate", "`drover generate` needs --model. Run `drover generate --help`"},
          std::pair{"bench --lora_dropout 0.1", "--lora_dropout is given without --lora_r. Give both."},
          std::pair{"completion", "`drover completion` needs a shell. Use bash, zsh or fish."},
          std::pair{"cache", "`drover cache` needs a command. Write list"},
          std::pair{"launch --nproc_per_node x run_clm", "Give a number, gpu, cpu or auto."}}) {
        const Outcome outcome = run(arguments);
        EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
        EXPECT_TRUE(outcome.output.starts_with("drover: ")) << outcome.output;
        EXPECT_NE(outcome.output.find(said), std::string::npos) << outcome.output;
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
