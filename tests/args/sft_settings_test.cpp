#include "args/sft_settings.h"

#include <fmt/format.h>

#include <map>

#include "args/argument_value.h"
#include "args/help_text.h"
#include "args/parse_line.h"
#include "args/run_settings.h"
#include "core/json.h"
#include "core/json_text.h"
#include "core/text_file.h"
#include "support/golden.h"

namespace drover::sft_settings_test {
namespace {

const std::string plain_sft = "--model_name_or_path m --dataset_name d.jsonl ";

RunArguments parsed(const std::string& line) {
    return parse_sft_arguments(split_words(plain_sft + line, ' '));
}
RunSettings settings_of(const std::string& line) {
    return run_settings(parsed(line));
}
std::string refusal_of(const std::string& line) {
    return test::error_of<UsageError>([&] { parsed(line); });
}
SftSettings sft_of(const std::string& line) {
    return settings_of(line).data.sft.value();
}

TEST(SftTable, HasEveryFieldOfTrlWithItsDefault) {
    const Json fields = read_json_file(test::golden_path("sft_arguments.json")).at("fields");
    // What TRL computes or leaves open, and what is the same under another name.
    const std::map<std::string, Json> own{{"bf16", true},
                                          {"dataset_num_proc", 1},
                                          {"debug", Json::array()},
                                          {"do_train", true},
                                          {"fsdp", Json::array()},
                                          {"label_names", Json::array()},
                                          {"lora_modules_to_save", Json::array()},
                                          {"lora_target_modules", Json::array()},
                                          {"lora_target_parameters", Json::array()},
                                          {"optim", "adamw_torch"},
                                          {"optim_target_modules", Json::array()},
                                          {"output_dir", "trainer_output"},
                                          {"report_to", Json::array({"none"})}};
    EXPECT_GT(fields.size(), 150u);
    for (const auto& [name, value] : fields.items()) {
        SCOPED_TRACE(name);
        const std::string_view known = sft_table().first_name_of(name);
        ASSERT_FALSE(known.empty());
        if (known != name) continue;
        const Json ours = default_value(*sft_table().find(known));
        EXPECT_EQ(ours, own.contains(name) ? own.at(name) : value);
    }
}

TEST(SftTable, RowsAreComplete) {
    for (const ArgumentGroup& group : sft_table().groups())
        for (const Argument& argument : group.arguments) {
            SCOPED_TRACE(argument.name);
            EXPECT_TRUE(argument.help.ends_with('.'));
            EXPECT_EQ(argument.note.empty(), argument.standing != Standing::explained);
        }
    EXPECT_MENTIONS(help_text(sft_table()), "--config FILE");
}

TEST(SftSettings, AreTrlsByDefault) {
    const RunSettings settings = settings_of("");
    EXPECT_TRUE(settings.do_train);
    EXPECT_FALSE(settings.do_eval);
    EXPECT_EQ(settings.loop.learning_rate, 2e-5);
    EXPECT_EQ(settings.loop.logging_steps, 10);
    EXPECT_TRUE(settings.precision.bf16);
    EXPECT_EQ(settings.precision.weights, DType::f32);
    EXPECT_EQ(settings.step.recompute.kind, Recompute::full);
    ASSERT_TRUE(settings.data.sft);
    EXPECT_EQ(settings.data.sft->rows.max_length, 1024);
    EXPECT_EQ(settings.data.sft->rows.packing, DocumentPacking::none);
    EXPECT_EQ(settings.data.train_split, "train");
    EXPECT_EQ(settings.data.validation_split, "test");
    EXPECT_EQ(settings.names.block_size, "--max_length");
    EXPECT_TRUE(settings.model.balances_experts);
}

TEST(SftSettings, FollowTheFlags) {
    const SftSettings sft = sft_of(
        "--packing --packing_strategy wrapped --max_length 64 --assistant_only_loss --eos_token <e> "
        "--completion_only_loss no --truncation_mode keep_end --eval_packing no --padding_free "
        "--pad_to_multiple_of 8 --chat_template_path t --pad_token p --dataset_text_field body "
        "--allow_special_tokens --dataset_num_proc 3");
    EXPECT_EQ(sft.rows.packing, DocumentPacking::wrapped);
    EXPECT_EQ(sft.rows.max_length, 64);
    EXPECT_TRUE(sft.rows.assistant_only_loss);
    EXPECT_EQ(sft.rows.completion_only_loss, false);
    EXPECT_EQ(sft.rows.eos_token, "<e>");
    EXPECT_EQ(sft.rows.kept_end, KeptEnd::end);
    EXPECT_EQ(sft.rows.text_field, "body");
    EXPECT_TRUE(sft.rows.allow_special_tokens);
    EXPECT_EQ(sft.rows.workers, 3);
    EXPECT_EQ(sft.eval_packing, false);
    EXPECT_TRUE(sft.padding_free);
    EXPECT_EQ(sft.pad_to_multiple_of, 8);
    EXPECT_EQ(sft.chat_template_path, "t");
    EXPECT_EQ(sft.pad_token, "p");
    EXPECT_EQ(sft_of("--max_length 0").rows.max_length, std::nullopt);
    EXPECT_EQ(sft_of("--packing --packing_strategy bfd-requeue").rows.packing, DocumentPacking::bfd_split);
    EXPECT_EQ(settings_of("--dataset_train_split a --dataset_test_split b").data.validation_split, "b");
    EXPECT_EQ(settings_of("--dataset_config sub").data.datasets.at(0).config_name, "sub");
    EXPECT_EQ(settings_of("--router_aux_loss_coef 0.5").model.balance_coefficient, 0.5);
    EXPECT_EQ(settings_of(R"(--model_init_kwargs {"dtype":"bfloat16","revision":"r"})").precision.weights,
              DType::bf16);
}

TEST(SftSettings, ADefaultGivesWayToWhatIsGiven) {
    EXPECT_FALSE(settings_of("--fp16").precision.bf16);
    EXPECT_EQ(settings_of("--recompute none").step.recompute.kind, Recompute::none);
    EXPECT_EQ(settings_of("--recompute selective").step.recompute.kind, Recompute::selective);
    EXPECT_EQ(settings_of("--activation_checkpointing no").step.recompute.kind, Recompute::none);
    EXPECT_TRUE(settings_of("--eval_strategy epoch").do_eval);
    EXPECT_MENTIONS(refusal_of("--fp16 --bf16"), "exclude each other");
    EXPECT_MENTIONS(refusal_of("--gradient_checkpointing --recompute none"), "contradict");
}

TEST(SftSettings, ExamplesAreShuffledByTheSeed) {
    EXPECT_EQ(settings_of("").data.sft->rows.shuffle_seed, std::nullopt);
    EXPECT_EQ(settings_of("--shuffle_dataset").data.sft->rows.shuffle_seed, 42u);
    EXPECT_EQ(settings_of("--shuffle_dataset --seed 7").data.sft->rows.shuffle_seed, 7u);
}

TEST(SftSettings, RefuseWhatThereIsNot) {
    EXPECT_MENTIONS(refusal_of("--loss_type dft"), "--loss_type dft");
    EXPECT_MENTIONS(refusal_of("--dataset_streaming"), "--max_steps must be a positive number");
    EXPECT_MENTIONS(refusal_of("--dataset_streaming --max_steps 3 --shuffle_dataset"), "cannot shuffle them");
    EXPECT_MENTIONS(refusal_of("--dataset_streaming --max_steps 3 --max_length 0"), "--max_length is 0");
    EXPECT_TRUE(settings_of("--dataset_streaming --max_steps 3").data.streaming);
    EXPECT_MENTIONS(refusal_of("--packing_strategy wrapped"), "Add --packing.");
    EXPECT_MENTIONS(refusal_of("--packing --max_length 0"), "--max_length");
    EXPECT_MENTIONS(refusal_of("--pad_to_multiple_of x"), "--pad_to_multiple_of is \"x\"");
    EXPECT_MENTIONS(refusal_of("--datasets a"), "--dataset_name a,b");
    EXPECT_MENTIONS(refusal_of("--test_split_size 0.1"), "--validation_split_percentage");
    EXPECT_MENTIONS(refusal_of(R"(--model_init_kwargs {"quantization_config":1})"), "quantization_config");
    EXPECT_MENTIONS(refusal_of(R"(--dataset_kwargs {"skip_prepare_dataset":true})"), "skip_prepare_dataset");
    EXPECT_TRUE(test::has_line(parsed("--activation_offloading").arguments, "--recompute"));
    EXPECT_TRUE(
        test::has_line(parsed(R"(--model_init_kwargs {"use_kernels":true})").arguments, "use_kernels"));
}

TEST(SftSettings, RunClmTakesTheGroup) {
    const auto clm = [](const std::string& line) {
        return run_settings(test::parse_line(test::plain_run + line));
    };
    const RunSettings settings =
        clm("--sft --packing bfd --max_length 64 --assistant_only_loss --text_column t");
    ASSERT_TRUE(settings.data.sft);
    EXPECT_EQ(settings.data.sft->rows.packing, DocumentPacking::bfd);
    EXPECT_EQ(settings.data.sft->rows.max_length, 64);
    EXPECT_EQ(settings.data.sft->rows.text_field, "t");
    EXPECT_EQ(settings.loop.learning_rate, 5e-5);  // run_clm's
    EXPECT_EQ(clm("--sft").data.sft->rows.packing, DocumentPacking::none);
    EXPECT_FALSE(clm("").data.sft);
    EXPECT_MENTIONS(test::error_of_line(test::plain_run + "--assistant_only_loss"), "Add --sft");
    EXPECT_MENTIONS(test::error_of_line(test::plain_run + "--packing bfd"), "Add --sft");
    EXPECT_MENTIONS(test::error_of_line(test::plain_run + "--sft --packing hf"), "--packing none");
    EXPECT_MENTIONS(test::error_of_line(test::plain_run + "--sft --block_size 8"), "--max_length");
}

TEST(SftSettings, PromptsOfTheEvaluation) {
    const RunSettings settings = settings_of(
        "--eval_strategy epoch --eval_prompts p.txt --eval_prompts_max_new_tokens 7 "
        "--eval_prompts_temperature 0.5 --eval_prompts_top_k 3 --eval_prompts_top_p 0.9");
    ASSERT_TRUE(settings.samples);
    EXPECT_EQ(settings.samples->prompts, "p.txt");
    EXPECT_EQ(settings.samples->max_new_tokens, 7);
    EXPECT_EQ(settings.samples->sampling.temperature, 0.5);
    EXPECT_EQ(settings.samples->sampling.top_k, 3);
    EXPECT_EQ(settings.samples->sampling.top_p, 0.9);
    EXPECT_MENTIONS(refusal_of("--eval_prompts p.txt"), "nothing is evaluated");
    EXPECT_MENTIONS(refusal_of("--eval_strategy epoch --eval_prompts_top_k 3"), "Add --eval_prompts.");
    EXPECT_MENTIONS(refusal_of("--eval_strategy epoch --eval_prompts p --eval_prompts_top_p 0"),
                    "--eval_prompts_top_p is 0");
}

}  // namespace
}  // namespace drover::sft_settings_test
