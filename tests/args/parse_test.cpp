#include "args/argument_name.h"
#include "args/file_of_test.h"
#include "args/parse_line.h"
#include "args/parse_words.h"
#include "core/json_text.h"
#include "support/errors.h"

namespace drover {
namespace {

using test::error_of_line;
using test::parse_line;
using test::plain_run;

Arguments words_only(const std::vector<std::string>& words) {
    Arguments arguments;
    parse_words(arguments, words, {.kind = ArgumentSource::Kind::command_line});
    return arguments;
}

std::string words_error(const std::vector<std::string>& words) {
    return test::error_of<UsageError>([&] { words_only(words); });
}

TEST(ParseWords, ValueBehindSpaceOrEquals) {
    const Arguments arguments = words_only({"--block_size", "128", "--learning_rate=1e-3", "--run_name=a=b"});
    EXPECT_EQ(arguments.integer("block_size"), 128);
    EXPECT_EQ(arguments.number("learning_rate"), 1e-3);
    EXPECT_EQ(arguments.text("run_name"), "a=b");
}

TEST(ParseWords, HyphensAreUnderscores) {
    EXPECT_EQ(words_only({"--block-size", "64"}).integer("block_size"), 64);
    EXPECT_EQ(words_only({"--per-device_train-batch_size=2"}).integer("per_device_train_batch_size"), 2);
    EXPECT_FALSE(words_only({"--no-keep-linebreaks"}).flag("keep_linebreaks"));
}

TEST(ParseWords, UniqueBeginningsAreEnough) {
    EXPECT_EQ(words_only({"--gradient_acc", "4"}).integer("gradient_accumulation_steps"), 4);
    EXPECT_EQ(words_only({"--fsdp", "full_shard"}).words("fsdp"), std::vector<std::string>{"full_shard"});
    // Two names of one argument are not ambiguous.
    EXPECT_EQ(words_only({"--torch_dt", "float32"}).text("dtype"), "float32");
    const std::string error = words_error({"--warmup", "3"});
    EXPECT_MENTIONS(error, "--warmup_ratio");
    EXPECT_MENTIONS(error, "--warmup_steps");
}

TEST(ParseWords, BooleanWords) {
    for (const char* yes : {"yes", "true", "t", "y", "1", "TRUE", "Yes"})
        EXPECT_TRUE(words_only({"--do_train", yes}).flag("do_train")) << yes;
    for (const char* no : {"no", "false", "f", "n", "0", "False", "NO"})
        EXPECT_FALSE(words_only({"--save_final_model", no}).flag("save_final_model")) << no;
    EXPECT_TRUE(words_only({"--do_train", "--do_eval"}).flag("do_train"));
    EXPECT_TRUE(words_only({"--bf16=true"}).flag("bf16"));
    EXPECT_FALSE(words_only({"--no_save_final_model"}).flag("save_final_model"));
    EXPECT_FALSE(words_only({"--no_save_fin"}).flag("save_final_model"));
    EXPECT_TRUE(words_only({"--no_cuda"}).flag("use_cpu"));
    EXPECT_MENTIONS(words_error({"--do_train", "maybe"}), "\"maybe\"");
    EXPECT_MENTIONS(words_error({"--no_bf16=yes"}), "takes no value");
}

TEST(ParseWords, BooleansThatMayBeUnsetNeedAValue) {
    EXPECT_EQ(words_only({}).optional_flag("tf32"), std::nullopt);
    EXPECT_EQ(words_only({"--tf32", "no"}).optional_flag("tf32"), false);
    EXPECT_MENTIONS(words_error({"--tf32", "--do_train"}), "--tf32 needs a value");
    EXPECT_MENTIONS(words_error({"--tf32"}), "yes or no");
}

TEST(ParseWords, VIsVerbose) {
    EXPECT_TRUE(words_only({"-v", "--seed", "3"}).flag("verbose"));
    EXPECT_EQ(words_only({"-v", "--seed", "3"}).integer("seed"), 3);
    EXPECT_FALSE(words_only({"--seed", "3"}).flag("verbose"));
}

TEST(ParseWords, NegativeNumbersAreValues) {
    EXPECT_EQ(words_only({"--max_steps", "-1"}).integer("max_steps"), -1);
    EXPECT_EQ(words_only({"--max_grad_norm", "-0.5"}).number("max_grad_norm"), -0.5);
}

TEST(ParseWords, TheLastOfARepeatedFlagCountsAndListsAreCollected) {
    EXPECT_EQ(words_only({"--seed", "1", "--seed", "2"}).integer("seed"), 2);
    EXPECT_EQ(words_only({"--label_names", "a", "b", "--label_names=c"}).words("label_names"),
              (std::vector<std::string>{"a", "b", "c"}));
    EXPECT_EQ(words_only({"--fsdp", "full_shard auto_wrap"}).words("fsdp"),
              (std::vector<std::string>{"full_shard", "auto_wrap"}));
    EXPECT_TRUE(words_only({"--fsdp", ""}).words("fsdp").empty());
    EXPECT_MENTIONS(words_error({"--label_names", "--do_train"}), "one or more words");
}

TEST(ParseWords, UnknownFlagsAreNamedWithTheNearest) {
    EXPECT_MENTIONS(words_error({"--learning_rat0", "1"}), "--learning_rate");
    EXPECT_MENTIONS(words_error({"--per_device_trian_batch_size", "1"}), "--per_device_train_batch_size");
    EXPECT_MENTIONS(words_error({"--xyzzy_plugh_0123456789"}), "--help");
    EXPECT_MENTIONS(words_error({"stray"}), "\"stray\"");
    EXPECT_MENTIONS(words_error({"-x"}), "-x");
    EXPECT_MENTIONS(words_error({"--"}), "There is no flag --.");
}

TEST(ParseWords, EveryNameIsKnownInBothSpellingsAndMisspelledIsSuggested) {
    for (const ArgumentTable* table : {&run_clm_table(), &run_llama_nxd_table(), &sft_table()})
        for (const std::string& name : table->names()) {
            SCOPED_TRACE(name);
            const NamedArgument meant = find_written_argument(*table, name);
            std::string hyphens = name;
            std::replace(hyphens.begin(), hyphens.end(), '_', '-');
            EXPECT_EQ(find_written_argument(*table, hyphens).argument, meant.argument);
            if (name.size() < 6) continue;
            std::string wrong = name;
            wrong.insert(name.size() / 2, 1, name[name.size() / 2]);
            EXPECT_MENTIONS(test::error_of<UsageError>([&] { find_written_argument(*table, wrong); }),
                            "Did you mean --" + name + "?");
        }
}

TEST(ParseWords, WrongValuesAreNamedWithWhatIsAllowed) {
    EXPECT_MENTIONS(words_error({"--block_size", "1e3"}), "\"1e3\"");
    EXPECT_MENTIONS(words_error({"--block_size", "0"}), "Use a number from 1 to 2147483647");
    EXPECT_MENTIONS(words_error({"--validation_split_percentage", "101"}), "from 0 to 100");
    EXPECT_MENTIONS(words_error({"--learning_rate", "fast"}), "\"fast\"");
    EXPECT_MENTIONS(words_error({"--learning_rate", "nan"}), "finite");
    EXPECT_MENTIONS(words_error({"--learning_rate", "1e-3x"}), "\"1e-3x\"");
    EXPECT_MENTIONS(words_error({"--block_size", "99999999999999999999"}), "which is too large");
    const std::string strategy = words_error({"--save_strategy", "step"});
    EXPECT_MENTIONS(strategy, "the nearest is steps");
    EXPECT_MENTIONS(strategy, "no, steps, epoch or best");
    EXPECT_MENTIONS(words_error({"--output_dir"}), "needs a value");
}

TEST(ParseWords, ChoicesKnowShortNames) {
    EXPECT_EQ(words_only({"--torch_dtype", "bf16"}).text("dtype"), "bfloat16");
    EXPECT_EQ(words_only({"--moments_dtype", "fp32"}).text("moments_dtype"), "float32");
    EXPECT_EQ(words_only({"--include_num_input_tokens_seen", "True"}).text("include_num_input_tokens_seen"),
              "all");
    EXPECT_EQ(words_only({"--loss_denominator", "true"}).text("loss_denominator"), "true");
    EXPECT_EQ(words_only({"--evaluation_strategy", "EPOCH"}).text("eval_strategy"), "epoch");
}

TEST(ParseWords, ObjectsAsTextOrFile) {
    const Json inline_object =
        words_only({"--lr_scheduler_kwargs",
                    R"({"a": "1", "b": "0.5", "c": "True", "d": "x", "e": [ "2" ], "f": "1.2.3"})"})
            .json("lr_scheduler_kwargs");
    EXPECT_EQ(inline_object,
              Json::parse(R"({"a": 1, "b": 0.5, "c": true, "d": "x", "e": [2], "f": "1.2.3"})"));
    const test::FileOfTest file("scheduler.json", R"({"num_cycles": 2})");
    EXPECT_EQ(words_only({"--lr_scheduler_kwargs", file.path()}).json("lr_scheduler_kwargs").at("num_cycles"),
              2);
    EXPECT_MENTIONS(words_error({"--lr_scheduler_kwargs", "{\"a\": }"}),
                    "--lr_scheduler_kwargs is not valid JSON");
    test::expect_error(
        [&] {
            words_only({"--deepspeed", "/nowhere/ds.json"});
        },
        {"--deepspeed", "/nowhere/ds.json"});
}

TEST(ParseLine, TheArgsFileStandsBeforeTheCommandLine) {
    const test::FileOfTest file("run_clm.args",
                                "--do_train\n--train_file a.txt --config_name c\n--seed 7 --max_steps 3\n");
    const RunArguments run = parse_line("--seed 8", {.args_file = file.path()});
    EXPECT_EQ(run.arguments.integer("seed"), 8);
    EXPECT_EQ(run.arguments.source("seed").text(), "command line");
    EXPECT_EQ(run.arguments.integer("max_steps"), 3);
    EXPECT_EQ(run.arguments.source("max_steps").text(), "file " + file.path());
    EXPECT_EQ(parse_line(plain_run, {.args_file = "/nowhere/run_clm.args"}).arguments.integer("seed"), 42);
}

TEST(ParseLine, SettingsSurviveTrainingArgsJson) {
    const RunArguments run =
        parse_line(plain_run +
                   "--gradient_checkpointing --eval_strategy steps --optim adamw_bnb_8bit --token secret "
                   "--fsdp full_shard --warmup_steps 0.1 --report_to wandb tensorboard --label_names x");
    const std::string text = sorted_json_text(run.arguments.to_json(), 2);
    EXPECT_EQ(text.find("secret"), std::string::npos);
    const test::FileOfTest file("training_args.json", text);
    const RunArguments again = parse_line(file.path());
    EXPECT_EQ(sorted_json_text(again.arguments.to_json(), 2), text);
}

TEST(Arguments, SourcesAndSettingsText) {
    const RunArguments run =
        parse_line(plain_run + "--learning_rate 5e-5 --gradient_checkpointing --token secret",
                   {.environment = {{"OMP_NUM_THREADS", "4,2"}}});
    const Arguments& arguments = run.arguments;
    EXPECT_TRUE(arguments.given("learning_rate"));
    EXPECT_FALSE(arguments.given("recompute"));
    EXPECT_EQ(arguments.source("recompute").text(), "implied by --gradient_checkpointing");
    EXPECT_EQ(arguments.source("threads").text(), "environment variable OMP_NUM_THREADS");
    EXPECT_EQ(arguments.integer("threads"), 4);
    const std::string changed = arguments.settings_text(false);
    EXPECT_MENTIONS(changed, "= full  (implied by --gradient_checkpointing; default none)");
    EXPECT_MENTIONS(changed, "= 4  (environment variable OMP_NUM_THREADS; default unset)");
    EXPECT_MENTIONS(changed, "= (hidden)  (command line; default unset)");
    EXPECT_EQ(changed.find("learning_rate"), std::string::npos) << "it was given its default";
    EXPECT_EQ(changed.find("secret"), std::string::npos);
    EXPECT_EQ(changed.find("weight_decay"), std::string::npos);
    EXPECT_MENTIONS(arguments.settings_text(true), "weight_decay ");
    EXPECT_MENTIONS(arguments.settings_text(true), "= 5e-05  (command line)\n");
}

TEST(ArgumentsDeathTest, AskingForWhatIsNotThereIsABug) {
    const Arguments arguments;
    EXPECT_DEATH(arguments.flag("no_such_argument"), "no_such_argument");
    EXPECT_DEATH(arguments.integer("learning_rate"), "another type");
    EXPECT_DEATH(arguments.integer("block_size"), "may be unset");
}

TEST(Explanations, OneLinePerFlag) {
    const auto lines = [](const std::string& more) {
        return parse_line(plain_run + more).arguments.explanations();
    };
    EXPECT_TRUE(lines("--learning_rate 1e-3 --bf16").empty());
    EXPECT_EQ(lines("--trust_remote_code true").size(), 1u);
    EXPECT_EQ(lines("--trust_remote_code true --trust_remote_code no").size(), 1u);
    EXPECT_EQ(lines("--torch_compile --use_ipex").size(), 2u);
    EXPECT_TRUE(lines("--push_to_hub --hub_model_id x").empty());
    EXPECT_EQ(lines("--hub_model_id x --hub_strategy end"),
              std::vector<std::string>{
                  "--hub_model_id, --hub_strategy: nothing is uploaded without --push_to_hub."});
    EXPECT_MENTIONS(lines("--optim adamw_bnb_8bit").at(0), "--optim adamw_bnb_8bit runs as adamw_torch");
    EXPECT_MENTIONS(lines("--report_to wandb").at(0), "wandb");
    EXPECT_MENTIONS(parse_line("").arguments.explanations().at(0), "nothing to do");
}

}  // namespace
}  // namespace drover
