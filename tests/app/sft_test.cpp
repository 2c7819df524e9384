#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "app/mesh_runs.h"
#include "core/json.h"
#include "core/json_text.h"
#include "core/text_file.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::count_of;

/// `drover sft` with a tiny model on the first of the bundled conversations.
class SftCommand : public test::MeshRuns {
  protected:
    void SetUp() override {
        test::MeshRuns::SetUp();
        std::string rows = read_text_file(test::example_path("data/wendle.jsonl"));
        std::size_t end = 0;
        for (int row = 0; row < 12; ++row) end = rows.find('\n', end) + 1;
        write_file_atomically(folder_ / "rows.jsonl", rows.substr(0, end));
        write_file_atomically(folder_ / "prompts.txt", "How high is the lighthouse?\nHello!\n");
    }

    std::string command(const std::string& rest) const {
        return fmt::format(
            "sft --model_type llama --config_overrides vocab_size=1024,hidden_size=32,intermediate_size=64,"
            "num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=2,max_position_embeddings=256 "
            "--tokenizer_name {} --dataset_name rows.jsonl --max_length 64 --per_device_train_batch_size 2 "
            "--max_steps 4 --logging_steps 1 --learning_rate 1e-3 --save_strategy no --device cpu {}",
            test::example_path("tokenizers/chat-1k").string(), rest);
    }
    test::Outcome run(const std::string& rest) const {
        return test::run_drover(command(rest) + " 2>&1", folder_.path().string());
    }
    Json log_of(const std::string& output) const {
        return read_json_file(folder_ / output / "trainer_state.json").at("log_history");
    }
    std::vector<double> losses(const std::string& output) const {
        std::vector<double> values;
        for (const Json& record : log_of(output))
            for (const char* key : {"loss", "eval_loss"})
                if (record.contains(key)) values.push_back(record.at(key).get<double>());
        return values;
    }
};

TEST_F(SftCommand, FollowsTheCurvesOfTrlAndPeft) {
    const fs::path golden = test::golden_path("sft_runs");
    const Json expected = read_json_file(golden / "losses.json");
    const std::string answers = "--assistant_only_loss ";
    const std::string adapters =
        answers + "--use_peft --lora_r 8 --lora_alpha 16 --lora_dropout 0 --lora_target_modules all-linear ";
    const std::map<std::string, std::string> flags = {
        {"full", answers},
        {"packed", answers + "--packing"},
        {"wrapped", "--packing --packing_strategy wrapped"},
        {"everything", ""},
        {"lora", adapters},
        {"rslora", adapters + "--use_rslora"},
        {"dora", adapters + "--use_dora"},
        {"embedding", answers +
                          "--use_peft --lora_r 8 --lora_alpha 16 --lora_dropout 0 --lora_target_modules "
                          "embed_tokens q_proj v_proj"}};
    ASSERT_EQ(flags.size(), expected.size());
    for (const auto& [name, words] : flags) {
        SCOPED_TRACE(name);
        const test::Outcome outcome = test::run_drover(
            fmt::format("sft --model_name_or_path {} --tokenizer_name {} --dataset_name {} --max_steps 30 "
                        "--logging_steps 1 --max_length 128 --learning_rate 5e-3 --bf16 no --device cpu "
                        "--per_device_train_batch_size 4 --save_strategy no --output_dir {} {} 2>&1",
                        (golden / "model").string(), test::example_path("tokenizers/chat-1k").string(),
                        test::example_path("data/wendle.jsonl").string(), name, words),
            folder_.path().string());
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
        const std::vector<double> ours = losses(name), theirs = expected.at(name);
        ASSERT_EQ(ours.size(), theirs.size());
        for (std::size_t step = 0; step < ours.size(); ++step)
            EXPECT_NEAR(ours[step], theirs[step], 5e-4 * theirs[step]) << step;
    }
}

/// Entropy, accuracy and tokens are means and sums over the micro-batches since the last record.
TEST_F(SftCommand, RecordsWhatTrlSaysOfThePredictions) {
    const fs::path golden = test::golden_path("sft_runs");
    const Json expected = read_json_file(golden / "records.json");
    std::string rows = read_text_file(test::example_path("data/wendle.jsonl"));
    std::size_t end = 0;
    for (int row = 0; row < 10; ++row) end = rows.find('\n', end) + 1;
    write_file_atomically(folder_ / "ten.jsonl", rows.substr(0, end));
    const std::string flags = fmt::format(
        "sft --model_name_or_path {} --tokenizer_name {} --dataset_name {} --max_steps 6 --logging_steps 3 "
        "--gradient_accumulation_steps 2 --max_length 128 --learning_rate 5e-3 --bf16 no --device cpu "
        "--save_strategy no --assistant_only_loss --validation_file ten.jsonl --eval_strategy steps "
        "--eval_steps 3 ",
        (golden / "model").string(), test::example_path("tokenizers/chat-1k").string(),
        test::example_path("data/wendle.jsonl").string());
    const auto expect_records = [&](const std::string& output, const Json& theirs, bool same_batches = true) {
        std::vector<Json> ours;
        for (const Json& record : log_of(output))
            if (record.contains("loss") || record.contains("eval_loss")) ours.push_back(record);
        ASSERT_GE(ours.size(), theirs.size());  // we evaluate once more at the end
        for (std::size_t i = 0; i < theirs.size(); ++i)
            for (const auto& [key, value] : theirs[i].items()) {
                if (!same_batches && (key == "num_tokens" || key.starts_with("eval_"))) continue;
                EXPECT_NEAR(ours[i].at(key).get<double>(), value.get<double>(),
                            1e-3 * std::max(1.0, value.get<double>()))
                    << output << " " << i << " " << key;
            }
    };
    const std::string lora =
        "--use_peft --lora_r 8 --lora_alpha 16 --lora_dropout 0 --lora_target_modules all-linear ";
    for (const auto& [name, words] :
         {std::pair<std::string, std::string>("full", ""), {"packed", "--packing "}, {"lora", lora}}) {
        SCOPED_TRACE(name);
        const test::Outcome outcome =
            test::run_drover(flags + words + "--per_device_train_batch_size 4 --output_dir " + name + " 2>&1",
                             folder_.path().string());
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
        expect_records(name, expected.at(name));
    }
    // Two replicas share the rows of each micro-batch; a vocabulary in two parts has the same entropy.
    for (const auto& [name, words] :
         {std::pair("replicas", "--per_device_train_batch_size 2 "),
          std::pair("tensor", "--per_device_train_batch_size 4 --tensor_parallel_size 2 "),
          std::pair("stages", "--per_device_train_batch_size 4 --pipeline_parallel_size 2 ")}) {
        const test::Outcome outcome = shell(
            fmt::format("{} -np 2 {} {}{}--output_dir {}", mpirun(), DROVER_BINARY, flags, words, name));
        ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
        expect_records(name, expected.at("full"), std::string(name) != "replicas");
    }
}

TEST_F(SftCommand, SavesTheTemplateAndTheEndThatItLearned) {
    const std::string text = "{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}";
    write_file_atomically(folder_ / "plain.jinja", text);
    const test::Outcome outcome =
        run("--chat_template_path plain.jinja --eos_token '<|endoftext|>' --output_dir out");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(read_text_file(folder_ / "out/chat_template.jinja"), text);
    EXPECT_EQ(read_json_file(folder_ / "out/tokenizer_config.json").at("eos_token"), "<|endoftext|>");
    const Json id = read_json_file(folder_ / "out/config.json").at("eos_token_id");
    EXPECT_EQ(id, 1);
    const Json ends = read_json_file(folder_ / "out/generation_config.json").at("eos_token_id");
    EXPECT_EQ(ends.is_array() ? ends[0] : ends, id);
}

/// The model's other templates go along, into checkpoints too, unless one is given to take their place.
TEST_F(SftCommand, SavesAdditionalTemplates) {
    fs::copy(test::example_path("tokenizers/chat-1k"), folder_ / "tokenizer");
    fs::create_directory(folder_ / "tokenizer/additional_chat_templates");
    write_file_atomically(folder_ / "tokenizer/additional_chat_templates/tool_use.jinja", "{{ tools }}");
    const std::string file = "additional_chat_templates/tool_use.jinja";
    const std::string flags = "--tokenizer_name tokenizer --save_strategy steps --save_steps 2 --output_dir ";
    ASSERT_EQ(run(flags + "out").exit_code, 0);
    for (const char* saved : {"out", "out/checkpoint-2"})
        EXPECT_EQ(read_text_file(folder_ / saved / file), "{{ tools }}") << saved;
    fs::remove_all(folder_ / "out/checkpoint-4");
    fs::remove(folder_ / "out/trainer_state.json");
    const test::Outcome resumed = run(flags + "out");  // its checkpoint is whole
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_GT(count_of(resumed.output, "Continuing training from global step 2"), 0u) << resumed.output;
    write_file_atomically(folder_ / "out/checkpoint-4" / file, "changed");
    const test::Outcome damaged = run(flags + "out --max_steps 5");
    EXPECT_GT(count_of(damaged.output, file + " was changed after it was written") +
                  count_of(damaged.output, file + " has 7 bytes instead of 11"),
              0u)
        << damaged.output;

    const test::Outcome converted = test::run_drover(
        "convert --input_dir out --output_dir converted --output_format bin 2>&1", folder_.path().string());
    ASSERT_EQ(converted.exit_code, 0) << converted.output;
    EXPECT_EQ(read_text_file(folder_ / "converted" / file), "{{ tools }}");

    fs::copy(test::example_path("tokenizers/chat-1k/chat_template.jinja"), folder_ / "own.jinja");
    ASSERT_EQ(run(flags + "own --chat_template_path own.jinja").exit_code, 0);
    EXPECT_FALSE(fs::exists(folder_ / "own" / file));
}

TEST_F(SftCommand, TrainsAndRecordsWhatTrlRecords) {
    const test::Outcome outcome =
        run("--assistant_only_loss --validation_file rows.jsonl --eval_strategy steps --eval_steps 2 "
            "--output_dir out");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    std::int64_t tokens = 0;
    int records = 0, evaluations = 0;
    for (const Json& record : log_of("out")) {
        if (record.contains("loss")) {
            ++records;
            EXPECT_GT(record.at("num_tokens").get<std::int64_t>(), tokens);
            tokens = record.at("num_tokens").get<std::int64_t>();
            EXPECT_GT(record.at("entropy").get<double>(), 0);
            EXPECT_LE(record.at("mean_token_accuracy").get<double>(), 1);
        }
        if (record.contains("eval_loss")) {
            ++evaluations;
            const double accuracy = record.at("eval_mean_token_accuracy").get<double>();
            EXPECT_GE(accuracy, 0);
            EXPECT_LE(accuracy, 1);
            EXPECT_FALSE(record.contains("eval_accuracy"));
            EXPECT_EQ(record.at("eval_num_tokens").get<std::int64_t>(), tokens);
        }
    }
    EXPECT_EQ(records, 4);
    EXPECT_GE(evaluations, 2);
    for (const char* file : {"config.json", "chat_template.jinja", "tokenizer.json", "training_args.json"})
        EXPECT_TRUE(fs::exists(folder_ / "out" / file)) << file;
    EXPECT_LT(losses("out").back(), losses("out").front());
}

TEST_F(SftCommand, SamplesDoNotChangeTraining) {
    const std::string flags = "--validation_file rows.jsonl --eval_strategy steps --eval_steps 2 ";
    ASSERT_EQ(run(flags + "--output_dir plain").exit_code, 0);
    const test::Outcome outcome = run(flags +
                                      "--eval_prompts prompts.txt --eval_prompts_max_new_tokens 5 "
                                      "--report_to tensorboard --logging_dir board --output_dir out");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(losses("out"), losses("plain"));
    EXPECT_EQ(read_text_file(folder_ / "out/model.safetensors"),
              read_text_file(folder_ / "plain/model.safetensors"));
    const std::string lines = read_text_file(folder_ / "out/eval_samples.jsonl");
    EXPECT_EQ(count_of(lines, "\"prompt\": \"How high is the lighthouse?\""), 3u)
        << lines;  // two in training
    EXPECT_EQ(count_of(outcome.output, "> Hello!"), 3u) << outcome.output;
    std::string events;
    for (const auto& entry : fs::directory_iterator(folder_ / "board"))
        events += read_text_file(entry.path());
    EXPECT_EQ(count_of(events, "eval_samples/text_summary"), 3u);
    write_file_atomically(folder_ / "question.txt", "Hello!\n");
    // The last samples are those of the saved model.
    const Json last = parse_json(lines.substr(lines.rfind('{')), "the last line");
    const test::Outcome answer = test::run_drover(
        "generate --model out --chat --max_new_tokens 5 --dtype bfloat16 2>/dev/null < question.txt",
        folder_.path().string());
    EXPECT_EQ(last.at("text").get<std::string>() + "\n", answer.output);
}

TEST_F(SftCommand, SamplesOnAMeshAreThoseOfOneProcess) {
    const std::string flags =
        "--bf16 no --validation_file rows.jsonl --eval_strategy steps --eval_steps 2 --eval_prompts "
        "prompts.txt "
        "--eval_prompts_max_new_tokens 4 ";
    const test::Outcome alone = run(flags + "--gradient_accumulation_steps 2 --output_dir one");
    ASSERT_EQ(alone.exit_code, 0) << alone.output;
    for (const std::string& mesh :
         {std::string("--fsdp full_shard"),
          std::string("--tensor_parallel_size 2 --gradient_accumulation_steps 2")}) {
        fs::remove_all(folder_ / "two");
        const test::Outcome two = shell(fmt::format("{} -np 2 {} {} 2>&1", mpirun(), DROVER_BINARY,
                                                    command(flags + mesh + " --output_dir two")));
        ASSERT_EQ(two.exit_code, 0) << two.output;
        EXPECT_EQ(read_text_file(folder_ / "two/eval_samples.jsonl"),
                  read_text_file(folder_ / "one/eval_samples.jsonl"))
            << mesh;
    }
}

TEST_F(SftCommand, EvalMeasuresTheSameRows) {
    const std::string loss =
        "--assistant_only_loss --chat_template_path " + test::example_path("tokenizers/chat-1k").string();
    ASSERT_EQ(run("--bf16 no --do_eval --validation_file rows.jsonl --output_dir out " + loss).exit_code, 0);
    const auto eval = [&](const std::string& rest) {
        return test::run_drover("eval --model out --data rows.jsonl --json " + rest, folder_.path().string());
    };
    const test::Outcome measured = eval("--sft --max_length 64 " + loss + " 2>/dev/null");
    ASSERT_EQ(measured.exit_code, 0) << measured.output;
    const Json results = read_json_file(folder_ / "out/eval_results.json");
    EXPECT_NEAR(parse_json(measured.output, "eval").at("loss").get<double>(),
                results.at("eval_loss").get<double>(), 1e-6);
    EXPECT_NE(eval("2>&1").output.find("eval with --sft"), std::string::npos);
    EXPECT_EQ(eval("--max_length 64 2>&1").exit_code, 2);
    EXPECT_EQ(eval("--sft --block_size 64 2>&1").exit_code, 2);
}

TEST_F(SftCommand, RunClmTrainsOnTheSameRows) {
    ASSERT_EQ(run("--bf16 no --output_dir out").exit_code, 0);
    std::string words = command("--validation_split_percentage 0 --output_dir clm");
    words.replace(0, 3, "run_clm --sft --do_train");
    const std::string name = "--dataset_name";
    words.replace(words.find(name), name.size(), "--train_file");
    const test::Outcome clm = test::run_drover(words + " 2>&1", folder_.path().string());
    ASSERT_EQ(clm.exit_code, 0) << clm.output;
    EXPECT_EQ(losses("clm"), losses("out"));
}

/// Streamed examples are those of the file in their order, also after a resumption.
TEST_F(SftCommand, StreamsItsExamples) {
    const std::string flags = "--packing --assistant_only_loss --chat_template_path " +
                              test::example_path("tokenizers/chat-1k").string() +
                              " --save_strategy steps --save_steps 2 ";
    const test::Outcome cached = run(flags + "--train_sampling_strategy sequential --output_dir cached"),
                        streamed = run(flags + "--streaming --output_dir streamed");
    ASSERT_EQ(cached.exit_code, 0) << cached.output;
    ASSERT_EQ(streamed.exit_code, 0) << streamed.output;
    EXPECT_EQ(losses("streamed"), losses("cached"));
    ASSERT_EQ(losses("streamed").size(), 4u);
    fs::create_directories(folder_ / "resumed");
    fs::copy(folder_ / "streamed/checkpoint-2", folder_ / "resumed/checkpoint-2",
             fs::copy_options::recursive);
    const test::Outcome resumed = run(flags + "--streaming --output_dir resumed");
    ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_TRUE(read_text_file(folder_ / "resumed/model.safetensors") ==
                read_text_file(folder_ / "streamed/model.safetensors"));
}

/// Whether a flag changes the losses, or what is evaluated.
TEST_F(SftCommand, EveryFlagOfTheRowsActs) {
    write_file_atomically(folder_ / "plain.jinja",
                          "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
    std::string special, pairs;
    for (int row = 0; row < 8; ++row) {
        special += R"({"messages": [{"role": "user", "content": "a <|im_end|> b"}, )"
                   R"({"role": "assistant", "content": "c"}]})"
                   "\n";
        pairs += R"({"prompt": "one two three", "completion": " four five"})"
                 "\n";
    }
    write_file_atomically(folder_ / "special.jsonl", special);
    write_file_atomically(folder_ / "pairs.jsonl", pairs);
    const std::string evaluates = "--validation_file rows.jsonl --eval_strategy steps --eval_steps 2 ";
    struct Case {
        std::string both, flag;
    };
    int number = 0;
    for (const Case& one : {Case{"", "--assistant_only_loss"}, Case{"", "--max_length 16"},
                            Case{"--max_length 16 ", "--truncation_mode keep_end"},
                            Case{"", "--chat_template_path plain.jinja"},
                            Case{"--dataset_name special.jsonl ", "--allow_special_tokens"},
                            Case{"--dataset_name pairs.jsonl ", "--completion_only_loss no"},
                            Case{"--dataset_name pairs.jsonl ", "--eos_token <|endoftext|>"},
                            Case{evaluates + "--packing ", "--eval_packing no"}}) {
        SCOPED_TRACE(one.flag);
        const std::string before = fmt::format("before-{}", number), after = fmt::format("after-{}", number);
        ++number;
        std::string flag = one.flag;
        if (const auto at = flag.find('<'); at != std::string::npos)
            flag = flag.substr(0, at) + "'" + flag.substr(at) + "'";
        const test::Outcome first = run(one.both + "--output_dir " + before);
        ASSERT_EQ(first.exit_code, 0) << first.output;
        const test::Outcome second = run(one.both + flag + " --output_dir " + after);
        ASSERT_EQ(second.exit_code, 0) << second.output;
        EXPECT_NE(losses(before), losses(after));
    }
    // More padding changes no number; the plan has longer rows.
    const test::Outcome padded = run("--pad_to_multiple_of 64 --dry_run"), plain = run("--dry_run");
    EXPECT_NE(padded.output.substr(padded.output.find("Memory:")),
              plain.output.substr(plain.output.find("Memory:")));
}

TEST_F(SftCommand, EveryFlagOfTheSamplesActs) {
    const std::string flags =
        "--bf16 no --validation_file rows.jsonl --do_eval --eval_prompts prompts.txt --max_steps 1 ";
    int number = 0;
    const auto samples = [&](const std::string& more) {
        const std::string output = fmt::format("out-{}", number++);
        const test::Outcome outcome = run(flags + more + " --output_dir " + output);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        return read_text_file(folder_ / output / "eval_samples.jsonl");
    };
    const std::string greedy = samples(""), warm = samples("--eval_prompts_temperature 2");
    EXPECT_NE(samples("--eval_prompts_max_new_tokens 2"), greedy);
    EXPECT_NE(warm, greedy);
    EXPECT_EQ(samples("--eval_prompts_temperature 2 --eval_prompts_top_k 1"), greedy);
    EXPECT_NE(samples("--eval_prompts_temperature 2 --eval_prompts_top_p 0.3"), warm);
}

TEST_F(SftCommand, BalancesExpertsAsTrlDoes) {
    const auto run_mixtral = [&](const std::string& more, const std::string& output) {
        std::string words = command(more + " --output_dir " + output);
        const std::string llama = "--model_type llama";
        words.replace(words.find(llama), llama.size(), "--model_type mixtral");
        return test::run_drover(words + " 2>&1", folder_.path().string());
    };
    ASSERT_EQ(run_mixtral("", "default").exit_code, 0);
    ASSERT_EQ(run_mixtral("--router_aux_loss_coef 0", "none").exit_code, 0);
    ASSERT_EQ(run_mixtral("--router_aux_loss_coef 1", "strong").exit_code, 0);
    EXPECT_LT(losses("none").front(), losses("default").front());
    EXPECT_LT(losses("default").front(), losses("strong").front());
    EXPECT_EQ(read_json_file(folder_ / "default/config.json").at("output_router_logits"), true);
    EXPECT_EQ(read_json_file(folder_ / "none/config.json").at("output_router_logits"), false);
    const test::Outcome dense = run("--router_aux_loss_coef 1 --output_dir out");
    EXPECT_EQ(dense.exit_code, 2);
    EXPECT_NE(dense.output.find("the model has no experts"), std::string::npos) << dense.output;
    const test::Outcome unused = run("--gmm --dry_run --output_dir unused");
    EXPECT_EQ(unused.exit_code, 0) << unused.output;
    EXPECT_NE(unused.output.find("--gmm is not used, because the model has no experts."), std::string::npos)
        << unused.output;
}

TEST_F(SftCommand, ReadsAYamlFile) {
    write_file_atomically(folder_ / "run.yaml",
                          "# TRL's parser reads such files\n"
                          "learning_rate: 5.0e-4\n"
                          "packing: true\n"
                          "max_length: null\n"
                          "env:\n"
                          "  DROVER_CACHE: own-cache\n");
    const test::Outcome outcome = run("--config run.yaml --output_dir out");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;  // --max_length of the words replaces null
    EXPECT_TRUE(fs::exists(folder_ / "own-cache"));
    const Json arguments = read_json_file(folder_ / "out/training_args.json");
    EXPECT_EQ(arguments.at("learning_rate"), 1e-3);  // of the words
    EXPECT_EQ(arguments.at("packing"), true);
    // A pipe can be read once.
    const test::Outcome piped = test::run_shell(
        fmt::format("mkfifo pipe && (timeout 60 cat run.yaml > pipe &) && timeout 60 {} {} 2>&1",
                    DROVER_BINARY, command("--config pipe --dry_run --output_dir piped")),
        folder_.path().string());
    ASSERT_EQ(piped.exit_code, 0) << piped.output;
    EXPECT_NE(piped.output.find("(file pipe;"), std::string::npos) << piped.output;
    write_file_atomically(folder_ / "wrong.yaml", "no_such_flag: 1\n");
    const test::Outcome refused = run("--config wrong.yaml");
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.output.find("no_such_flag"), std::string::npos) << refused.output;
}

TEST_F(SftCommand, SaysWhatIsMissing) {
    const test::Outcome outcome = run("--eval_strategy steps --eval_steps 2 --output_dir out");
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.output.find("--validation_split_percentage"), std::string::npos) << outcome.output;
    const test::Outcome prompts =
        run("--validation_file rows.jsonl --do_eval --eval_prompts none.txt --output_dir out");
    EXPECT_EQ(prompts.exit_code, 1);
    EXPECT_NE(prompts.output.find("none.txt"), std::string::npos) << prompts.output;
    const test::Outcome nothing =
        test::run_drover("sft --model_name_or_path model --output_dir out 2>&1", folder_.path().string());
    EXPECT_EQ(nothing.exit_code, 2);
    EXPECT_NE(nothing.output.find("There is no data to train on."), std::string::npos) << nothing.output;
}

/// A run whose rows have no target would end well and have trained nothing.
TEST_F(SftCommand, RefusesDataFromWhichNothingIsLearned) {
    write_file_atomically(folder_ / "rows.jsonl",
                          R"({"prompt": "one two three four five six seven", "completion": " eight"})"
                          "\n");
    for (const char* rows : {"", "--packing ", "--streaming ", "--streaming --packing "}) {
        const test::Outcome outcome = run(std::string(rows) + "--max_length 4 --output_dir out");
        EXPECT_EQ(outcome.exit_code, 1) << rows << outcome.output;
        EXPECT_NE(outcome.output.find("nothing is to be learned"), std::string::npos) << outcome.output;
    }
}

}  // namespace
}  // namespace drover
