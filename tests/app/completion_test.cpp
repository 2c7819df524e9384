#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "core/text_file.h"
#include "support/golden.h"
#include "support/run_drover.h"

/// The scripts of `drover completion`, read by the shells themselves.
namespace drover::test::completion_test {
namespace {

const std::string program_folder = std::filesystem::path(DROVER_BINARY).parent_path().string();

bool has_shell(const std::string& name) {
    return run_shell("command -v " + name + " >/dev/null").exit_code == 0;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
}

/// A folder with files to complete, and a shell in it that knows drover.
class Completion : public testing::Test {
  protected:
    Completion() {
        std::filesystem::create_directory(folder_ / "texts");
        write_file_atomically(folder_ / "texts.txt", "a\n");
        write_file_atomically(folder_ / "run.yaml", "a\n");
    }

    std::string in_shell(const std::string& shell, const std::string& script) {
        write_file_atomically(folder_ / "script", script);
        const Outcome outcome =
            run_shell("PATH='" + program_folder + "':\"$PATH\" " + shell + " ./script 2>&1; rm -f script",
                      folder_.path().string());
        return outcome.output;
    }

    TemporaryFolder folder_;
};

class BashCompletion : public Completion {
  protected:
    /// What bash offers for the last of the words, which bash has split at "=".
    std::vector<std::string> offered(const std::string& words) {
        return lines_of(
            in_shell("bash", "source <(drover completion bash)\nCOMP_WORDS=(drover " + words +
                                 ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_drover\n"
                                 "(( ${#COMPREPLY[@]} )) && printf '%s\\n' \"${COMPREPLY[@]}\"\ntrue\n"));
    }
    bool offers(const std::string& words, const std::string& word) {
        const std::vector<std::string> all = offered(words);
        return std::find(all.begin(), all.end(), word) != all.end();
    }
};

using Words = std::vector<std::string>;

TEST_F(BashCompletion, CommandsAndNestedCommands) {
    EXPECT_EQ(offered("run_"), (Words{"run_clm", "run_llama_nxd"}));
    EXPECT_TRUE(offers("''", "sft"));
    EXPECT_FALSE(offers("''", "launch-agent")) << "it is internal";
    EXPECT_EQ(offered("cache ''"), (Words{"list", "prune"}));
    EXPECT_EQ(offered("bench o"), Words{"ops"});
    EXPECT_EQ(offered("completion ''"), (Words{"bash", "fish", "zsh"}));
    EXPECT_EQ(offered("help ev"), Words{"eval"});
    EXPECT_EQ(offered("man to"), Words{"tokenize"});
}

TEST_F(BashCompletion, FlagsOfEveryKindOfCommand) {
    EXPECT_EQ(offered("run_clm --learning"), Words{"--learning_rate"});
    EXPECT_EQ(offered("run_clm --learning-"), Words{"--learning-rate"});
    EXPECT_EQ(offered("run_clm --do_train --per_device_tr"), Words{"--per_device_train_batch_size"});
    EXPECT_TRUE(offers("run_clm --no_save_f", "--no_save_final_model"));
    EXPECT_EQ(offered("run_llama_nxd --training_"), (Words{"--training_config", "--training_dir"}));
    EXPECT_TRUE(offers("sft --", "--max_length"));
    EXPECT_FALSE(offers("sft --", "--torch_compile")) << "what has no effect is offered once it is begun";
    EXPECT_TRUE(offers("sft --torch_com", "--torch_compile"));
    EXPECT_EQ(offered("generate --max"), Words{"--max_new_tokens"});
    EXPECT_EQ(offered("bench ops --mem"), Words{"--memory-bound"});
    EXPECT_EQ(offered("cache prune --c"), Words{"--cache_dir"});
}

TEST_F(BashCompletion, Values) {
    EXPECT_EQ(offered("run_clm --eval_strategy ''"), (Words{"epoch", "no", "steps"}));
    EXPECT_EQ(offered("run_clm --eval-strategy = st"), Words{"steps"});
    EXPECT_EQ(offered("run_clm --eval_strategy ="), (Words{"epoch", "no", "steps"}));
    EXPECT_EQ(offered("run_clm --tf32 ''"), (Words{"no", "yes"}));
    EXPECT_TRUE(offers("run_clm --bf16 ''", "yes"));
    EXPECT_TRUE(offers("run_clm --bf16 ''", "--output_dir")) << "the bare flag is enough";
    EXPECT_EQ(offered("run_clm --bf16 --devi"), Words{"--device"});
    EXPECT_EQ(offered("run_clm --seed ''"), Words{}) << "there is nothing to say of a number";
    EXPECT_EQ(offered("convert --fuse_qkv ''"), (Words{"no", "yes"}));
    EXPECT_EQ(offered("convert --fuse_qkv --tp"), Words{"--tp_size"}) << "a value may follow, but need not";
    EXPECT_EQ(offered("eval --device c"), (Words{"cpu", "cuda"}));
    EXPECT_EQ(offered("eval --device = cu"), Words{"cuda"});
    EXPECT_EQ(offered("bench ops --steps ''"), Words{});
}

TEST_F(BashCompletion, Files) {
    EXPECT_EQ(offered("run_clm --train_file te"), (Words{"texts", "texts.txt"}));
    EXPECT_EQ(offered("run_clm --train_file = te"), (Words{"texts", "texts.txt"}));
    EXPECT_TRUE(offers("run_clm ''", "run.yaml")) << "a file of arguments may stand first";
    EXPECT_FALSE(offers("run_clm --do_train ''", "run.yaml"));
    EXPECT_EQ(offered("sft --config ru"), Words{"run.yaml"});
    EXPECT_EQ(offered("generate --model te"), (Words{"texts", "texts.txt"}));
    EXPECT_EQ(offered("run_clm --run_name te"), Words{}) << "it is no path";
}

TEST_F(BashCompletion, CommandsThatStartOthers) {
    EXPECT_TRUE(offers("launch --nproc_per_node 2 ''", "run_clm"));
    EXPECT_EQ(offered("launch --nproc_per_node 2 run_clm --learning"), Words{"--learning_rate"});
    EXPECT_EQ(offered("launch --nproc_p"), Words{"--nproc_per_node"});
    EXPECT_EQ(offered("launch --nproc-p"), Words{"--nproc-per-node"});
    EXPECT_EQ(offered("generate --max-n"), Words{"--max-new-tokens"});
    EXPECT_TRUE(offers("precompile r", "run_llama_nxd"));
    EXPECT_EQ(offered("precompile run_llama_nxd --training_d"), Words{"--training_dir"});
}

TEST_F(BashCompletion, TopicsOfHelp) {
    EXPECT_TRUE(offers("run_clm --help ''", "data"));
    EXPECT_FALSE(offers("run_clm --help ''", "learning_rate"))
        << "of hundreds of names, those that are begun";
    EXPECT_TRUE(offers("help run_clm ''", "environment"));
    EXPECT_EQ(offered("help run_clm learning"), Words{"learning_rate"});
    EXPECT_EQ(offered("help generate max"), Words{"max_new_tokens"});
    EXPECT_EQ(offered("help bench al"), Words{"all"});
    EXPECT_EQ(offered("bench --help a"), Words{"all"});
    EXPECT_EQ(offered("bench --model x --help lora_d"), Words{"lora_dropout"});
    EXPECT_FALSE(offers("bench --help ''", "ops"));
    EXPECT_EQ(offered("launch --help nproc"), Words{"nproc-per-node"});
    EXPECT_FALSE(offers("launch program --help ''", "all"));
}

TEST_F(Completion, Zsh) {
    if (!has_shell("zsh")) GTEST_SKIP() << "zsh is not installed (package zsh).";
    // A shell in a terminal of its own, in which keys are typed: Tab, and ^Xd, which writes the line that
    // results.
    const std::string script = R"zsh(zmodload zsh/zpty
wait_for() { repeat 1500; do [[ -e $1 ]] && return; sleep 0.02; done; print "no $1"; exit 1; }
zpty -b shell zsh -f -i
zpty -w shell 'PS1=; autoload -Uz compinit; compinit -u -D; source <(drover completion zsh)'
zpty -w shell 'dump() { print -r -- "$BUFFER" > line.new; mv line.new line; BUFFER=; }'
zpty -w shell 'zle -N dump; bindkey "^Xd" dump; touch ready'
wait_for ready
while IFS= read -r typed; do
    zpty -w -n shell "$typed"$'\t\C-xd'
    wait_for line
    cat line
    rm line
done <<'END'
)zsh";
    const Words typed{"drover launc",
                      "drover run_clm --learning",
                      "drover run_clm --eval_strategy st",
                      "drover run_clm --eval_strategy=st",
                      "drover run_clm --train_file texts.",
                      "drover run_clm --train_file=texts."};
    std::string lines, expected;
    for (const std::string& line : typed) lines += line + "\n";
    for (const char* line :
         {"drover launch ", "drover run_clm --learning_rate ", "drover run_clm --eval_strategy steps ",
          "drover run_clm --eval_strategy=steps ", "drover run_clm --train_file texts.txt ",
          "drover run_clm --train_file=texts.txt "})
        expected += std::string(line) + "\n";
    EXPECT_EQ(in_shell("zsh -f", script + lines + "END\n"), expected);
}

TEST_F(Completion, Fish) {
    if (!has_shell("fish")) GTEST_SKIP() << "fish is not installed (package fish).";
    const auto offered = [&](const std::string& typed) {
        std::vector<std::string> words = lines_of(
            in_shell("HOME=. fish", "drover completion fish | source\ncomplete -C '" + typed + "'\n"));
        for (std::string& word : words) word = word.substr(0, word.find('\t'));
        return words;
    };
    EXPECT_EQ(offered("drover run_"), (Words{"run_clm", "run_llama_nxd"}));
    EXPECT_EQ(offered("drover cache "), (Words{"list", "prune"}));
    EXPECT_EQ(offered("drover run_clm --learning"), Words{"--learning_rate"});
    EXPECT_EQ(offered("drover run_clm --eval_strategy "), (Words{"epoch", "no", "steps"}));
    EXPECT_EQ(offered("drover run_clm --eval_strategy=st"), Words{"--eval_strategy=steps"});
    EXPECT_EQ(offered("drover run_clm --train_file te"), (Words{"texts.txt", "texts/"}));
    EXPECT_EQ(offered("drover run_clm --train_file=texts."), Words{"--train_file=texts.txt"});
}

}  // namespace
}  // namespace drover::test::completion_test
