#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "args/argument_table.h"
#include "core/json.h"
#include "core/json_text.h"
#include "core/python_json.h"
#include "core/text_file.h"
#include "support/golden.h"
#include "support/run_drover.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

using Flags = std::map<std::string, std::string>;  ///< of a command line; "-" means that a flag is left out

/// A flag with a value that must change the outcome of a run, compared with the same run without the flag.
struct ActingFlag {
    std::string name;
    std::string value;
    Flags both{};        ///< flags of both runs in addition to the usual ones
    bool fails = false;  ///< one of the two runs ends with an error
};

/// Sizes of a model that fits; the whole of Llama 7B in float32 does not.
const std::string small =
    "hidden_size=64,intermediate_size=96,num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=4,"
    "vocab_size=4096";
const Flags mixtral{{"config_name", "{config}/mixtral.json"}};
const Flags bf16{{"bf16", "yes"}};
const Flags pure_bf16{{"dtype", "bfloat16"}};
const Flags explodes{{"learning_rate", "1e30"}};
const Flags hub{{"config_name", "some/model"}, {"cache_dir", "{folder}/hub"}};

const std::vector<ActingFlag> acting_flags{
    {"adafactor", "yes"},
    {"cache_dir", "{folder}/hub", {{"config_name", "some/model"}}, true},
    {"checkpoint_dir", "{folder}/out/elsewhere", {{"output_dir", "-"}}},
    {"checkpoint_freq", "2", {{"save_strategy", "-"}}},
    {"config_overrides",
     small,
     {{"dry_run", "yes"}, {"config_name", "-"}, {"model_type", "llama"}, {"memory_fraction", "0.01"}},
     true},
    {"device", "cuda", {}, true},
    {"disable_tqdm", "yes", {{"do_train", "no"}}},
    {"dry_run", "yes"},
    {"early_stopping_patience",
     "1",
     {{"eval_strategy", "steps"},
      {"eval_steps", "1"},
      {"metric_for_best_model", "loss"},
      {"learning_rate", "0"}}},
    {"early_stopping_threshold",
     "100",
     {{"early_stopping_patience", "1"},
      {"eval_strategy", "steps"},
      {"eval_steps", "1"},
      {"metric_for_best_model", "loss"},
      {"learning_rate", "1e-2"}}},
    {"fp16", "yes", {}, true},
    {"gradient_checkpointing", "yes"},
    // Its copies show in the memory plan if they are larger than the head's buffers.
    {"gmm_stack",
     "yes",
     {{"config_name", "{config}/mixtral.json"},
      {"hidden_size", "256"},
      {"per_device_train_batch_size", "1"}}},
    {"group_by_length", "yes", {{"packing", "none"}, {"pad_token", "eos"}}},
    {"help", "yes"},
    {"hf_compat", "4.57"},
    {"hidden_size", "64"},
    {"help_markdown", "yes"},
    {"include_tokens_per_second", "yes"},
    {"keep_linebreaks", "no"},
    {"log_format", "json"},
    {"log_level", "warning"},
    {"logging_dir", "{folder}/out/board", {{"report_to", "tensorboard"}}},
    {"logging_nan_inf_filter", "no", {{"learning_rate", "1e30"}, {"on_nan", "continue"}}},
    {"loss_denominator", "hf457"},
    {"lr_scheduler_kwargs", "{\"num_cycles\": 2}", {{"lr_scheduler_type", "cosine_with_restarts"}}},
    {"master_weights", "no", bf16},
    {"memory_fraction", "1e-9", {}, true},
    {"min_lr", "1e-6"},
    {"model_revision", "second", hub},
    {"model_type", "llama", {{"dry_run", "yes"}, {"config_name", "-"}, {"config_overrides", small}}, true},
    {"moments_dtype", "bfloat16", bf16},
    {"neftune_noise_alpha", "5"},
    {"num_layer", "1"},
    {"num_kept_checkpoint", "1", {{"save_strategy", "steps"}, {"save_steps", "1"}}},
    {"num_microbatches", "2"},
    {"on_nan", "continue", explodes, true},
    {"optim_args", "momentum=0.9", {{"optim", "sgd"}}},
    {"overwrite_cache", "yes"},
    {"packing", "lossless"},
    {"pad_token", ",", {{"packing", "none"}, {"max_train_samples", "8"}}},
    {"load_in_4bit", "yes", {}, true},
    {"load_in_8bit", "yes", {}, true},
    {"peft_lora", "yes", {}, true},
    {"profile", "yes"},
    {"profile_epoch", "0"},
    {"profile_logdir", "{folder}/out/traces", {{"profile_step", "1"}}},
    {"profile_step", "1"},
    {"profile_steps", "1"},
    {"recompute", "full"},
    {"recompute_blocks", "1", {{"recompute", "full"}}},
    {"report_to", "tensorboard"},
    {"residual_dtype", "float32", bf16},
    {"save_buffer_gb", "0", {{"save_strategy", "steps"}}},
    {"save_final_model", "yes"},
    {"save_steps", "2", {{"save_strategy", "steps"}}},
    {"spmd_debug", "yes"},
    {"spmd_grad_chkpt", "yes"},
    {"static", "yes", mixtral},
    {"stochastic_rounding", "yes", pure_bf16},
    {"tb_dir", "{folder}/out/board"},
    {"trace_file_path", "{folder}/out/timeline.json"},
    {"text_column", "answer", {{"train_file", "{folder}/columns.json"}, {"validation_file", "-"}}},
    {"threads", "2"},
    {"train_batch_size", "4", {{"per_device_train_batch_size", "-"}}},
    {"train_sampling_strategy", "sequential"},
    {"use_gpu_compatible_precision", "no", pure_bf16},
    {"init", "counter"},
    {"use_peft", "yes", {}, true},
    {"use_selective_checkpoint", "yes"},
    {"warmup_ratio", "0.5"},
};

/// Arguments that have an effect that cannot be seen here.
const std::map<std::string, std::string> shown_elsewhere{
    {"verbose", "RunClmRefuses.NothingInADryRunThatListsSettings"},
    {"adapter_name_or_path", "LoraRun.GoesOnFromAdaptersOfPeft"},
    {"token", "HubCommands.ATokenOfTheCommandLineOpensAGatedModel"},
    {"push_to_hub", "HubCommands.ARunUploadsItsModel"},
    {"hub_model_id", "HubCommands.ARunUploadsItsModel"},
    {"hub_strategy", "HubCommands.ARunUploadsItsModel"},
    {"hub_token", "HubCommands.ARunUploadsItsModel"},
    {"hub_private_repo", "HubCommands.ARunUploadsItsModel"},
    {"hub_always_push", "HubCommands.AFailedUploadOfACheckpointDoesNotEndTheRun"},
    {"hub_revision", "HubCommands.AFailedUploadOfACheckpointDoesNotEndTheRun"},
    {"push_to_hub_organization", "HubCommands.AFailedUploadOfACheckpointDoesNotEndTheRun"},
    {"auto_find_batch_size", "RunClmModel.FindsTheLargestBatchThatFits"},
    {"dataset_config_name", "tests/data/datasets/resolve_dataset_test.cpp chooses among configurations"},
    {"dataset_weights", "DatasetMixture.TrainsOnTheRowsOfItsOrder"},
    {"dataset_train_split", "tests/data/datasets/resolve_dataset_test.cpp chooses among splits"},
    {"dataset_test_split", "tests/data/datasets/resolve_dataset_test.cpp chooses among splits"},
    {"sft", "SftCommand.RunClmTrainsOnTheSameRows"},
    {"allow_special_tokens", "SftCommand.EveryFlagOfTheRowsActs"},
    {"assistant_only_loss", "SftCommand.EveryFlagOfTheRowsActs"},
    {"chat_template_path", "SftCommand.EveryFlagOfTheRowsActs"},
    {"completion_only_loss", "SftCommand.EveryFlagOfTheRowsActs"},
    {"eos_token", "SftCommand.EveryFlagOfTheRowsActs"},
    {"fp8", "Fp8Command.SavesAModelThatIsEvaluatedAndGenerates"},
    {"eval_packing", "SftCommand.EveryFlagOfTheRowsActs"},
    {"max_length", "SftCommand.EveryFlagOfTheRowsActs"},
    {"padding_free", "tests/data/conversation/sft_golden_test.cpp compares batches of both kinds with TRL"},
    {"pad_to_multiple_of", "SftCommand.EveryFlagOfTheRowsActs"},
    {"truncation_mode", "SftCommand.EveryFlagOfTheRowsActs"},
    {"loss_type", "tests/args/sft_settings_test.cpp: all but one value are refused"},
    {"router_aux_loss_coef", "SftCommand.BalancesExpertsAsTrlDoes"},
    {"eval_prompts", "SftCommand.SamplesDoNotChangeTraining"},
    {"eval_prompts_max_new_tokens", "SftCommand.EveryFlagOfTheSamplesActs"},
    {"eval_prompts_temperature", "SftCommand.EveryFlagOfTheSamplesActs"},
    {"eval_prompts_top_k", "SftCommand.EveryFlagOfTheSamplesActs"},
    {"eval_prompts_top_p", "SftCommand.EveryFlagOfTheSamplesActs"},
    {"gmm", "names the default"},
    {"lora_alpha", "LoraRun.EveryFlagIsInTheSavedConfiguration"},
    {"lora_dropout", "LoraRun.EveryFlagIsInTheSavedConfiguration"},
    {"lora_modules_to_save", "LoraRun.EveryFlagIsInTheSavedConfiguration"},
    {"lora_r", "LoraRun.EveryFlagIsInTheSavedConfiguration"},
    {"lora_target_modules", "LoraRun.EveryFlagIsInTheSavedConfiguration"},
    {"lora_target_parameters", "LoraRun.EveryFlagIsInTheSavedConfiguration"},
    {"lora_task_type", "tests/args/combinations_test.cpp: all but one value are refused"},
    {"use_dora", "LoraRun.EveryFlagIsInTheSavedConfiguration"},
    {"use_rslora", "LoraRun.EveryFlagIsInTheSavedConfiguration"},
    {"loading_step", "ResumeCommand.LoadingStepNamesTheCheckpoint"},
    {"steal_lock", "OutputFolderOfRuns.IsTakenWithStealLockAndTheOtherRunWritesNoMore"},
    {"ignore_data_skip", "needs a checkpoint to resume from; the loop's tests resume with it"},
    {"overwrite_output_dir", "RunClmFlags.AFolderWithAModelIsNotWrittenOver"},
    {"profile_duration_ms", "a time; tests/train/profile/profiler_test.cpp ends profiles with it"},
    {"resume_from_checkpoint", "needs a checkpoint to resume from"},
    {"tf32", "needs a GPU"},
};

/// Every flag of a recorded run of run_clm.py; run_clm_test.cpp compares the numbers.
std::set<std::string> recorded_flags() {
    std::set<std::string> flags;
    for (const auto& entry : fs::directory_iterator(test::golden_path("run_clm"))) {
        if (entry.path().extension() != ".json") continue;
        for (std::string word : read_json_file(entry.path()).at("arguments").get<std::vector<std::string>>())
            if (word.starts_with("--"))
                flags.insert(std::string(run_clm_table().first_name_of(word.substr(2))));
    }
    return flags;
}

/// The visible results of a run, without what differs from run to run and without what only repeats settings.
/// A flag that is read, printed and saved but not used does not change them.
struct Seen {
    int exit_code = 0;
    std::string output, errors, files, state, results;
    bool operator==(const Seen&) const = default;
};

std::string without_times(const std::string& text) {
    static const std::regex settings("(^|\n)\\w+ += [^\n]*\\)(?=\n)"), explanations("(^|\n)--\\w+: [^\n]*"),
        banner("(^|\n)  [A-Z][^\n=]* = [0-9,]+(?=\n)"), formats("; weights [^\n]*"),
        plan("\\d+ rows?, [^\n]* tokens(?=\n)"),
        times("'?\\w*_(runtime|per_second)'?\"? *[:=] '?[^',}\n]*'?"), summary("(Steps|Speed): [^\n]*"),
        tokenized("in [0-9.]+ s "), dates("[A-Z][a-z]{2}[0-9]{2}_[0-9-]{8}_[^/\n]*"),
        events("events\\.out\\.[^\n]*"), estimate("will take about [^\n]*"), busy("Other programs [^\n]*"),
        memory("had at most [^\n]*");
    std::string kept = text;
    for (const std::regex* pattern : {&settings, &explanations, &banner, &formats, &plan, &times, &summary,
                                      &tokenized, &dates, &events, &estimate, &busy, &memory})
        kept = std::regex_replace(kept, *pattern, "");
    return kept;
}

/// trainer_state.json without its settings.
std::string state_without_settings(const fs::path& file) {
    Json state = parse_python_json(read_text_file(file), file.string());
    for (const char* setting :
         {"eval_steps", "logging_steps", "max_steps", "num_train_epochs", "save_steps", "train_batch_size"})
        state.erase(setting);
    for (auto& [name, callback] : state.at("stateful_callbacks").items()) callback.erase("args");
    return python_json(state, 2);
}

class RunClmFlags : public ::testing::Test {
  protected:
    void SetUp() override {
        setenv("DROVER_CACHE", (folder_ / "cache").c_str(), 1);
        setenv("HF_HOME", (folder_ / "huggingface").c_str(), 1);
        setenv("OMP_NUM_THREADS", "1", 1);
        const fs::path model = folder_ / "hub/models--some--model";
        for (const char* revision : {"main", "second"}) {
            const std::string commit(40, *revision == 'm' ? 'a' : 'b');
            fs::create_directories(model / "snapshots" / commit);
            fs::create_directories(model / "refs");
            std::ofstream(model / "refs" / revision) << commit;
            fs::copy_file(test::golden_path(*revision == 'm' ? "run_clm/configs/llama.json"
                                                             : "run_clm/configs/mixtral.json"),
                          model / "snapshots" / commit / "config.json");
        }
        std::ofstream columns(folder_ / "columns.json");
        for (int row = 0; row < 200; ++row)
            columns << "{\"text\": \"Who is number " << row << "?\", \"answer\": \"Nobody knows " << row * row
                    << " of them.\"}\n";
    }
    void TearDown() override {
        for (const char* name : {"DROVER_CACHE", "HF_HOME", "OMP_NUM_THREADS"}) unsetenv(name);
    }

    static Flags usual_flags() {
        return {{"config_name", "{config}/llama.json"},
                {"tokenizer_name", "{tokenizer}"},
                {"train_file", "{data}/train.txt"},
                {"validation_file", "{data}/validation.txt"},
                {"do_train", "yes"},
                {"do_eval", "yes"},
                {"block_size", "32"},
                {"max_steps", "3"},
                {"per_device_train_batch_size", "2"},
                {"logging_steps", "1"},
                {"max_eval_samples", "4"},
                {"save_strategy", "no"},
                {"save_final_model", "no"},  // writing it would take most of the time
                {"output_dir", "{folder}/out"}};
    }

    std::string command_line(const Flags& flags) const {
        const fs::path data = test::golden_path("run_clm");
        const std::vector<std::pair<std::string, fs::path>> places = {
            {"{data}", data},
            {"{config}", data / "configs"},
            {"{tokenizer}", fs::path(DROVER_SOURCE_DIR) / "examples/tokenizers/shakespeare-4k"},
            {"{folder}", folder_.path()},
        };
        std::string command = "run_clm";
        for (auto [name, value] : flags) {
            if (value == "-") continue;
            for (const auto& [place, path] : places)
                if (const auto at = value.find(place); at != std::string::npos)
                    value.replace(at, place.size(), path.string());
            command += " --" + name + " '" + value + "'";
        }
        return command;
    }

    Seen look(const Flags& flags) {
        for (const char* name : {"out", "trainer_output"}) fs::remove_all(folder_ / name);
        const fs::path errors = folder_ / "stderr";
        const test::Outcome outcome =
            test::run_drover(command_line(flags) + " 2>'" + errors.string() + "'", folder_.path().string());
        Seen seen{.exit_code = outcome.exit_code,
                  .output = without_times(outcome.output),
                  .errors = without_times(read_text_file(errors))};
        for (const char* name : {"out", "trainer_output"}) {
            const fs::path out = folder_ / name;
            if (!fs::exists(out)) continue;
            std::set<std::string> files;
            for (const auto& entry : fs::recursive_directory_iterator(out))
                files.insert(without_times(fs::relative(entry.path(), folder_.path()).string() + "\n"));
            for (const std::string& file : files) seen.files += file;
            if (fs::exists(out / "trainer_state.json"))
                seen.state = without_times(state_without_settings(out / "trainer_state.json"));
            if (fs::exists(out / "all_results.json"))
                seen.results = without_times(read_text_file(out / "all_results.json"));
        }
        return seen;
    }

    test::TemporaryFolder folder_;
};

TEST_F(RunClmFlags, EveryFlagThatActsIsCovered) {
    const std::set<std::string> recorded = recorded_flags();
    std::set<std::string> acting;
    for (const ActingFlag& flag : acting_flags) acting.insert(flag.name);
    for (const ArgumentGroup& group : run_clm_table().groups())
        for (const Argument& argument : group.arguments) {
            const std::string name(argument.name);
            if (argument.standing == Standing::acts) {
                EXPECT_TRUE(recorded.contains(name) || acting.contains(name) ||
                            shown_elsewhere.contains(name))
                    << "--" << name << " is said to act, but nothing shows that it does";
            }
            EXPECT_FALSE(acting.contains(name) && shown_elsewhere.contains(name)) << name;
        }
}

TEST_F(RunClmFlags, ActVisibly) {
    look(usual_flags());  // this makes the token cache
    std::map<std::string, Seen> without_flag;
    const auto plain = [&](const Flags& flags) -> const Seen& {
        const auto [found, missing] = without_flag.try_emplace(command_line(flags));
        if (missing) found->second = look(flags);
        return found->second;
    };
    EXPECT_EQ(plain(usual_flags()), look(usual_flags())) << "two equal runs differ in what is compared";
    for (const ActingFlag& flag : acting_flags) {
        SCOPED_TRACE("--" + flag.name + " " + flag.value);
        Flags flags = usual_flags();
        for (const auto& [name, value] : flag.both) flags[name] = value;
        const Seen& before = plain(flags);
        flags[flag.name] = flag.value;
        const Seen after = look(flags);
        EXPECT_EQ(before.exit_code != 0 || after.exit_code != 0, flag.fails) << before.errors << "\n"
                                                                             << after.errors;
        EXPECT_FALSE(before == after) << "the flag changes nothing\n" << after.errors;
    }
}

// run_clm.py needs --max_train_samples here, because it asks the stream for its length.
TEST_F(RunClmFlags, StreamingKeepsNoTokens) {
    Flags flags = usual_flags();
    flags["streaming"] = "yes";
    flags["max_eval_samples"] = "-";
    const Seen seen = look(flags);
    EXPECT_EQ(seen.exit_code, 0) << seen.errors;
    EXPECT_FALSE(fs::exists(folder_ / "cache"));
    const Json results = read_json_file(folder_ / "out/all_results.json");
    EXPECT_EQ(results.at("train_samples"), 6);
    EXPECT_EQ(results.at("eval_samples"), 97);
}

TEST_F(RunClmFlags, AFolderWithAModelIsNotWrittenOver) {
    const fs::path out = folder_ / "out";
    fs::create_directories(out);
    std::ofstream(out / "trainer_state.json") << "{}";
    const std::string command = command_line(usual_flags());
    EXPECT_EQ(test::run(command).exit_code, 1);
    EXPECT_FALSE(fs::exists(out / "train_results.json"));
    EXPECT_EQ(test::run(command + " --overwrite_output_dir").exit_code, 0);
    EXPECT_TRUE(fs::exists(out / "train_results.json"));
}

}  // namespace
}  // namespace drover
