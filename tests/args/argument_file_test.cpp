#include "args/argument_file.h"

#include <cstdlib>
#include <utility>

#include "args/file_of_test.h"
#include "args/nxd_settings.h"
#include "args/parse_line.h"
#include "args/run_settings.h"
#include "args/sft_settings.h"
#include "core/words.h"

namespace drover {
namespace {

using test::error_of_line;
using test::FileOfTest;
using test::parse_line;

constexpr std::string_view plain_yaml = "do_train: true\ntrain_file: a.txt\nconfig_name: c\n";

std::string refusal_of_yaml(std::string_view text) {
    const FileOfTest file("refused.yaml", text);
    return error_of_line(file.path());
}

TEST(ArgumentFile, JsonHoldsAllArguments) {
    const FileOfTest file("run.json",
                          R"({"do_train": true, "train_file": "a.txt", "config_name": "c", "max_steps": 5,
        "learning_rate": "2e-4", "torch_dtype": "bfloat16", "num_train_epochs": 1, "fsdp": ["full_shard"],
        "lr_scheduler_kwargs": {"num_cycles": 2}, "seed": 42, "block_size": null})");
    const RunArguments run = parse_line(file.path());
    EXPECT_EQ(run.arguments.integer("max_steps"), 5);
    EXPECT_EQ(run.arguments.number("learning_rate"), 2e-4);
    EXPECT_EQ(run.arguments.text("dtype"), "bfloat16");
    EXPECT_EQ(run.arguments.source("max_steps").text(), "file " + file.path());
    EXPECT_EQ(run.arguments.source("seed").text(), "default");
    EXPECT_FALSE(run.arguments.has("block_size"));
    EXPECT_TRUE(run.fsdp.has_value());
}

TEST(ArgumentFile, YamlHoldsThemToo) {
    const FileOfTest file("run.yaml", std::string("---  # of a test\n") + std::string(plain_yaml) +
                                          "learning-rate: 2e-4\nbf16: on\nmodel_revision: 1.0\n"
                                          "seed:\nlabel_names: [a, 'b c']\nreport_to:\n- none\n"
                                          "lr_scheduler_kwargs:\n  num_cycles: 2\n"
                                          "accelerator_config: {split_batches: no}\nblock_size: ~\n"
                                          "eval_strategy: no\n");
    const Arguments arguments = parse_line(file.path()).arguments;
    EXPECT_EQ(arguments.number("learning_rate"), 2e-4);
    EXPECT_TRUE(arguments.flag("bf16"));
    EXPECT_EQ(arguments.text("model_revision"), "1.0");
    EXPECT_EQ(arguments.integer("seed"), 42);
    EXPECT_EQ(arguments.words("label_names"), (std::vector<std::string>{"a", "b c"}));
    EXPECT_EQ(arguments.json("lr_scheduler_kwargs").at("num_cycles"), 2);
    EXPECT_EQ(arguments.json("accelerator_config").at("split_batches"), false);
    EXPECT_FALSE(arguments.has("block_size"));
    EXPECT_EQ(arguments.text("eval_strategy"), "no");
    EXPECT_EQ(arguments.source("learning_rate").text(), "file " + file.path());
}

TEST(ArgumentFile, FlagsTakePrecedenceInEveryCommand) {
    const std::string yaml(plain_yaml);
    for (const auto& [name, text] :
         {std::pair{"run.json", std::string(R"({"do_train": true, "train_file": "a.txt", "config_name": "c",
                                               "learning_rate": 2e-4, "seed": 7})")},
          std::pair{"run.yaml", yaml + "learning_rate: 2e-4\nseed: 7\n"},
          std::pair{"run.yml", yaml + "learning_rate: 2e-4\nseed: 7\n"}}) {
        const FileOfTest file(name, text);
        const Arguments arguments = parse_line(file.path() + " --learning_rate 1e-5 --no_do_train").arguments;
        EXPECT_EQ(arguments.number("learning_rate"), 1e-5) << name;
        EXPECT_EQ(arguments.integer("seed"), 7) << name;
        EXPECT_FALSE(arguments.flag("do_train")) << name;
        EXPECT_EQ(arguments.source("learning_rate").text(), "command line");
    }
    const FileOfTest nxd("nxd.yaml",
                         "training_config: c\ntraining_dir: d\nlr: 1e-5\ntensor_parallel_size: 1\n");
    const Arguments trained = parse_nxd_arguments(std::vector<std::string>{nxd.path(), "--lr", "2e-5"});
    EXPECT_EQ(trained.number("lr"), 2e-5);
    EXPECT_EQ(trained.text("training_dir"), "d");
    const FileOfTest sft("sft.yaml",
                         "model_name_or_path: m\ndataset_name: d\nmax_length: null\npacking: false\n");
    const std::vector<std::vector<std::string>> lines{{sft.path(), "--seed", "3"},
                                                      {"--config", sft.path(), "--seed", "3"},
                                                      {"--seed", "3", "--config=" + sft.path()}};
    for (const std::vector<std::string>& line : lines) {
        const RunSettings settings = run_settings(parse_sft_arguments(line));
        EXPECT_EQ(settings.loop.seed, 3u);
        EXPECT_EQ(settings.data.sft->rows.max_length, std::nullopt);
    }
}

TEST(ArgumentFile, ReplacesTheArgsFile) {
    const FileOfTest args("run_clm.args", "--seed 8\n"), yaml("run.yaml", plain_yaml);
    EXPECT_EQ(parse_line(yaml.path(), {.args_file = args.path()}).arguments.integer("seed"), 42);
}

TEST(ArgumentFile, ErrorsNameFileLineAndKey) {
    const std::string unknown = refusal_of_yaml("do_train: yes\n\nmax_step: 5\n");
    EXPECT_MENTIONS(unknown, "refused.yaml:3: \"max_step\" is no argument.");
    EXPECT_MENTIONS(unknown, "Did you mean max_steps?");
    EXPECT_MENTIONS(refusal_of_yaml("do_train: yes\nmax_steps: [1]\n"),
                    "refused.yaml:2: max_steps is [\"1\"], but it takes a whole number");
    EXPECT_MENTIONS(refusal_of_yaml("max_steps: many\n"),
                    "refused.yaml:1: max_steps is \"many\", which is not a whole number.");
    EXPECT_MENTIONS(refusal_of_yaml("bf16: perhaps\n"), "refused.yaml:1: bf16");
    EXPECT_MENTIONS(refusal_of_yaml("dtype: float32\ntorch_dtype: float16\n"),
                    "refused.yaml:2: dtype is given twice");
    EXPECT_MENTIONS(refusal_of_yaml("- do_train\n"), "does not hold arguments");
    EXPECT_MENTIONS(refusal_of_yaml("env: x\n"), "refused.yaml:1: env is not a list of variables");
    const FileOfTest broken("broken.yaml", "a: 1\nseed: 1\n  b: 2\n");
    test::expect_error<UsageError>(
        [&] { parse_line(broken.path()); },
        {"broken.yaml:3: the indentation", "Indent the lines of one block alike."});
    EXPECT_MENTIONS(refusal_of_yaml("a:\n\tb: 1\n"),
                    "refused.yaml:2: the line is indented with a tab. Indent with spaces.");
    EXPECT_MENTIONS(refusal_of_yaml("seed: 1\nseed: 2\n"),
                    "refused.yaml:2: the key \"seed\" is there twice. Remove one of them.");
    EXPECT_MENTIONS(refusal_of_yaml("seed: &a 1\n"), "Anchors are not read");
    EXPECT_MENTIONS(refusal_of_yaml("output_dir: caf\xe9\n"), "refused.yaml is not UTF-8.");
    EXPECT_MENTIONS(error_of_line("--config run.yaml"), "Write the file first: drover run_clm run.yaml.");

    const FileOfTest json("wrong.json", "{\n  \"do_train\": true,\n  \"max_step\": 5\n}");
    EXPECT_MENTIONS(error_of_line(json.path()), "wrong.json:3: \"max_step\" is no argument.");
    const FileOfTest list("wrong.json", "{\n\"max_steps\": [\n1]}");
    EXPECT_MENTIONS(error_of_line(list.path()),
                    "wrong.json:2: max_steps is [1], but it takes a whole number");
    const FileOfTest fraction("fraction.json", R"({"max_steps": 1.5})");
    EXPECT_MENTIONS(error_of_line(fraction.path()), "max_steps is 1.5");
    const FileOfTest no_object("list.json", R"(["--do_train"])");
    EXPECT_MENTIONS(error_of_line(no_object.path()), "JSON object");
    const FileOfTest twice("twice.json", R"({"dtype": "float32", "torch_dtype": "float16"})");
    EXPECT_MENTIONS(error_of_line(twice.path()), "twice");
}

TEST(ArgumentFile, IsOneAndStandsFirst) {
    const FileOfTest one("one.json", "{}"), two("two.yaml", plain_yaml);
    EXPECT_MENTIONS(error_of_line(one.path() + " " + two.path()), "Two files of arguments are given");
    EXPECT_MENTIONS(test::error_of<UsageError>([&] {
                        parse_sft_arguments(std::vector<std::string>{one.path(), "--config", two.path()});
                    }),
                    "Two files of arguments are given");
    EXPECT_MENTIONS(error_of_line("--seed 3 " + two.path()), "A file of arguments stands before all flags.");
    test::expect_error([&] { parse_line("/nowhere/run.json"); }, {"/nowhere/run.json"});
    test::expect_error([&] { parse_line("/nowhere/run.yaml --seed 3"); }, {"/nowhere/run.yaml"});
}

TEST(ArgumentFile, VariablesAreSet) {
    const FileOfTest file("variables.yaml", std::string(plain_yaml) + "env:\n  VARIABLE_OF_THIS_TEST: 1.0\n");
    std::vector<std::string> words{file.path(), "--seed", "3"};
    EXPECT_EQ(parse_line(file.path()).arguments.integer("seed"), 42);  // the key is no argument
    EXPECT_EQ(std::getenv("VARIABLE_OF_THIS_TEST"), nullptr);
    set_variables(*take_argument_file(run_clm_table(), words));
    EXPECT_STREQ(std::getenv("VARIABLE_OF_THIS_TEST"), "1.0");
    unsetenv("VARIABLE_OF_THIS_TEST");
}

TEST(ArgumentFile, VariablesHaveTheFileAsTheirSource) {
    const FileOfTest text("variables.yaml", std::string(plain_yaml) + "env:\n  OMP_NUM_THREADS: 3\n");
    std::vector<std::string> words{text.path()};
    const std::optional<ArgumentFile> file = take_argument_file(run_clm_table(), words);
    const Arguments arguments =
        parse_run_arguments(
            words, {.environment = {{"OMP_NUM_THREADS", "3"}, {"PJRT_DEVICE", "CPU"}}, .file = &*file})
            .arguments;
    EXPECT_EQ(arguments.integer("threads"), 3);
    EXPECT_EQ(arguments.source("threads").text(), "environment variable OMP_NUM_THREADS of " + text.path());
    EXPECT_EQ(arguments.source("device").text(), "environment variable PJRT_DEVICE");
}

}  // namespace
}  // namespace drover
