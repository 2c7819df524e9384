#include <fmt/format.h>
#include <gtest/gtest.h>

#include "app/checkpoint_runs.h"
#include "core/json_text.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::Outcome;

class ResumeCommand : public test::CheckpointRuns {};

void change_byte(const fs::path& file, std::size_t at) {
    std::string bytes = read_text_file(file);
    ASSERT_LT(at, bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_file_atomically(file, bytes);
}

/// Ten samples per epoch in five steps; stopped in the second epoch, between two records.
TEST_F(ResumeCommand, GoesOnAsIfItHadNotBeenStopped) {
    const std::string mixtral =
        fmt::format("--config_name '{}'", test::golden_path("run_clm/configs/mixtral.json").string());
    const std::vector<std::string> runs = {
        "--max_steps 12",
        "--max_steps 12 --gradient_accumulation_steps 3 --optim adafactor --lr_scheduler_type cosine",
        "--max_steps 12 --bf16 --streaming --neftune_noise_alpha 5",
        "--max_steps 12 --dtype bfloat16 --stochastic_rounding --data_seed 7 " + mixtral,
        "--max_steps 12 --optim sgd --optim_args momentum=0.9 --save_buffer_gb 0 " + mixtral,
    };
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const std::string whole = fmt::format("whole-{}", i), resumed = fmt::format("resumed-{}", i);
        const std::string more = runs[i] + " --save_steps 7";
        const Outcome first = train(whole, more);
        ASSERT_EQ(first.exit_code, 0) << first.output;
        EXPECT_EQ(first.output.find("resuming"), std::string::npos);

        fs::create_directories(folder_ / resumed);
        fs::copy(checkpoint(whole, 7), checkpoint(resumed, 7), fs::copy_options::recursive);
        const Outcome second = train(resumed, more);
        ASSERT_EQ(second.exit_code, 0) << second.output;
        EXPECT_NE(second.output.find("Checkpoint detected, resuming training at"), std::string::npos);
        EXPECT_NE(second.output.find("Continuing training from global step 7"), std::string::npos);
        EXPECT_EQ(second.output.find("Warning"), std::string::npos) << second.output;
        test::expect_equal_state(checkpoint(resumed, 12), checkpoint(whole, 12));
        EXPECT_EQ(read_text_file(folder_ / resumed / "model.safetensors"),
                  read_text_file(folder_ / whole / "model.safetensors"));
    }
}

TEST_F(ResumeCommand, NamesADamagedCheckpointAndTakesTheOneBefore) {
    struct Damage {
        const char* name;
        std::function<void(const fs::path&)> make;
        const char* said;
    };
    const std::vector<Damage> damages = {
        {"bit", [](const fs::path& folder) { change_byte(folder / "optimizer.safetensors", 100'000); },
         "optimizer.safetensors was changed"},
        {"state-bit", [](const fs::path& folder) { change_byte(folder / "drover_state.json", 20); },
         "drover_state.json"},
        {"cut", [](const fs::path& folder) { fs::resize_file(folder / "model.safetensors", 1000); },
         "model.safetensors has 1000 bytes instead of"},
        {"missing", [](const fs::path& folder) { fs::remove(folder / "trainer_state.json"); },
         "trainer_state.json is missing"},
        {"no-state", [](const fs::path& folder) { fs::remove(folder / "drover_state.json"); },
         "drover_state.json is missing"},
    };
    const std::string more = "--max_steps 8 --save_steps 2";
    ASSERT_EQ(train("whole", more).exit_code, 0);
    for (const Damage& damage : damages) {
        const std::string output = fmt::format("damaged-{}", damage.name);
        fs::copy(folder_ / "whole", folder_ / output, fs::copy_options::recursive);
        fs::remove_all(checkpoint(output, 8));
        damage.make(checkpoint(output, 6));

        const Outcome named = train(
            output, more + fmt::format(" --resume_from_checkpoint '{}'", checkpoint(output, 6).string()));
        EXPECT_EQ(named.exit_code, 1) << named.output;
        EXPECT_NE(named.output.find(damage.said), std::string::npos) << named.output;

        const Outcome automatic = train(output, more);
        ASSERT_EQ(automatic.exit_code, 0) << automatic.output;
        EXPECT_NE(automatic.output.find("checkpoint-6 is not a complete checkpoint"), std::string::npos)
            << automatic.output;
        EXPECT_NE(automatic.output.find(damage.said), std::string::npos) << automatic.output;
        EXPECT_NE(automatic.output.find("Continuing training from global step 4"), std::string::npos);
        // The damaged one was replaced in the meantime.
        for (const std::int64_t step : {6, 8})
            test::expect_equal_state(checkpoint(output, step), checkpoint("whole", step));
    }
}

TEST_F(ResumeCommand, DoesWhatItIsTold) {
    const std::string more = "--max_steps 4 --save_steps 2";
    ASSERT_EQ(train("out", more).exit_code, 0);

    const Outcome no = train("out", more + " --resume_from_checkpoint False");
    EXPECT_EQ(no.exit_code, 1);
    EXPECT_NE(no.output.find("--overwrite_output_dir"), std::string::npos) << no.output;
    EXPECT_NE(no.output.find("--resume_from_checkpoint is False, but"), std::string::npos) << no.output;

    const Outcome over = train("out", more + " --overwrite_output_dir");
    EXPECT_EQ(over.exit_code, 0) << over.output;
    EXPECT_EQ(over.output.find("Continuing"), std::string::npos) << over.output;

    const Outcome older =
        train("out", more + fmt::format(" --resume_from_checkpoint '{}'", checkpoint("out", 2).string()));
    EXPECT_EQ(older.exit_code, 0) << older.output;
    EXPECT_NE(older.output.find("global step 2"), std::string::npos) << older.output;

    const Outcome newest = train("out", "--max_steps 6 --save_steps 3 --resume_from_checkpoint True");
    EXPECT_EQ(newest.exit_code, 0) << newest.output;
    EXPECT_NE(newest.output.find("global step 4"), std::string::npos) << newest.output;
    EXPECT_NE(newest.output.find("save_steps: 3 (from args) != 2 (from trainer_state.json)"),
              std::string::npos)
        << newest.output;
    EXPECT_NE(newest.output.find("max_steps: 6 (now) != 4"), std::string::npos) << newest.output;

    const Outcome done = train("out", "--max_steps 6 --save_steps 3");
    EXPECT_EQ(done.exit_code, 0) << done.output;
    EXPECT_EQ(steps_in("out").back(), 6);

    EXPECT_EQ(train("empty", more + " --resume_from_checkpoint True").exit_code, 1);
    EXPECT_EQ(train("empty", more + " --resume_from_checkpoint nowhere").exit_code, 1);

    const Outcome other = train("out", "--max_steps 9 --optim adafactor");
    EXPECT_EQ(other.exit_code, 1);
    EXPECT_NE(other.output.find("--optim"), std::string::npos) << other.output;
}

TEST_F(ResumeCommand, LoadingStepNamesTheCheckpoint) {
    const std::string more = "--max_steps 6 --save_steps 2";
    ASSERT_EQ(train("whole", more).exit_code, 0);
    const auto copy_to = [&](const std::string& output) {
        fs::create_directories(folder_ / output);
        for (const std::int64_t step : {2, 4})
            fs::copy(checkpoint("whole", step), checkpoint(output, step), fs::copy_options::recursive);
    };
    copy_to("second");
    const Outcome second = train("second", more + " --loading_step 2");
    ASSERT_EQ(second.exit_code, 0) << second.output;
    EXPECT_NE(second.output.find("Continuing training from global step 2\n"), std::string::npos)
        << second.output;
    test::expect_equal_state(checkpoint("second", 6), checkpoint("whole", 6));

    copy_to("latest");
    const Outcome latest = train("latest", more + " --loading_step latest_if_exists");
    ASSERT_EQ(latest.exit_code, 0) << latest.output;
    EXPECT_NE(latest.output.find("Continuing training from global step 4\n"), std::string::npos)
        << latest.output;
    EXPECT_EQ(train("empty", more + " --loading_step latest_if_exists").exit_code, 0);

    copy_to("none");
    const Outcome refused = train("none", more + " --loading_step -1 --seed 7");
    EXPECT_EQ(refused.exit_code, 1) << refused.output;
    EXPECT_NE(refused.output.find("--loading_step is -1, but"), std::string::npos) << refused.output;
    EXPECT_NE(refused.output.find("--overwrite_output_dir"), std::string::npos) << refused.output;
    EXPECT_EQ(steps_in("none"), (std::vector<std::int64_t>{2, 4}));
    EXPECT_EQ(train("fresh", more + " --loading_step -1").exit_code, 0);
    EXPECT_EQ(train("fresh", more + " --loading_step -1").exit_code, 1);
    const Outcome none = train("none", more + " --loading_step -1 --seed 7 --overwrite_output_dir");
    ASSERT_EQ(none.exit_code, 0) << none.output;
    EXPECT_EQ(none.output.find("Continuing training"), std::string::npos) << none.output;
    ASSERT_EQ(train("over", more + " --seed 7").exit_code, 0);
    EXPECT_EQ(read_text_file(folder_ / "none/model.safetensors"),
              read_text_file(folder_ / "over/model.safetensors"));

    const Outcome absent = train("latest", more + " --loading_step 3");
    EXPECT_EQ(absent.exit_code, 1) << absent.output;
    EXPECT_NE(absent.output.find("checkpoint-3"), std::string::npos) << absent.output;
    EXPECT_NE(absent.output.find("There are checkpoint-2, checkpoint-4"), std::string::npos) << absent.output;
    EXPECT_EQ(train("latest", more + " --loading_step two").exit_code, 2);
    EXPECT_EQ(train("latest", more + " --loading_step 2 --resume_from_checkpoint True").exit_code, 2);
}

TEST_F(ResumeCommand, ACompleteRunIsLeftAsItIs) {
    const std::string validation =
        fmt::format(" --validation_file '{}'", test::golden_path("run_clm/validation.txt").string());
    ASSERT_EQ(train("out", "--max_steps 4 --save_steps 2" + validation).exit_code, 0);
    const auto contents = [&] {
        std::map<std::string, std::string> files;
        for (const auto& entry : fs::recursive_directory_iterator(folder_ / "out"))
            if (entry.is_regular_file()) files[entry.path().string()] = read_text_file(entry.path());
        return files;
    };
    const auto before = contents();
    const Outcome again = train("out", "--max_steps 4 --save_steps 2 --learning_rate 1" + validation);
    EXPECT_EQ(again.exit_code, 0) << again.output;
    EXPECT_NE(again.output.find("already complete: 4 of 4 steps"), std::string::npos) << again.output;
    EXPECT_NE(again.output.find("\n\tlearning_rate: 1.0 (now) != "), std::string::npos) << again.output;
    EXPECT_EQ(contents(), before);

    const Outcome fewer = train("out", "--max_steps 3 --save_steps 2" + validation);
    EXPECT_EQ(fewer.exit_code, 0) << fewer.output;
    EXPECT_NE(fewer.output.find("already complete: 4 steps are done, 3 were requested"), std::string::npos)
        << fewer.output;
    EXPECT_EQ(contents(), before);

    // Killed just before its last file.
    for (const char* more : {"", " --resume_from_checkpoint True --overwrite_output_dir"}) {
        fs::remove(folder_ / "out/README.md");
        const Outcome card = train("out", "--max_steps 4 --save_steps 2" + validation + more);
        EXPECT_EQ(card.exit_code, 0) << card.output;
        EXPECT_EQ(
            card.output.find("--overwrite_output_dir without --resume_from_checkpoint") != std::string::npos,
            *more != 0)
            << card.output;
        EXPECT_EQ(contents(), before);
    }

    const Outcome evaluated =
        train("out", "--max_steps 4 --save_steps 2 --learning_rate 1 --do_eval" + validation);
    EXPECT_EQ(evaluated.exit_code, 0) << evaluated.output;
    EXPECT_NE(evaluated.output.find("already complete"), std::string::npos) << evaluated.output;
    auto after = contents();
    const Json results = read_json_file(folder_ / "out/eval_results.json");
    EXPECT_GT(results.at("epoch").get<double>(), 0);
    for (const char* name : {"eval_results.json", "all_results.json"})
        after.erase((folder_ / "out" / name).string());
    auto trained = before;
    trained.erase((folder_ / "out/all_results.json").string());
    EXPECT_EQ(after, trained);
    // The trained model was evaluated.
    const Outcome alone =
        train("alone", fmt::format("--do_train no --do_eval --model_name_or_path '{}' --config_name '{}' {}",
                                   (folder_ / "out").string(), (folder_ / "out").string(), validation));
    EXPECT_EQ(alone.exit_code, 0) << alone.output;
    EXPECT_EQ(read_json_file(folder_ / "alone/eval_results.json").at("eval_loss"), results.at("eval_loss"));

    // A run that was killed after its last checkpoint has more to write.
    const std::string model = read_text_file(folder_ / "out/model.safetensors");
    fs::remove(folder_ / "out/model.safetensors");
    EXPECT_EQ(train("out", "--max_steps 4 --save_steps 2" + validation).exit_code, 0);
    EXPECT_EQ(read_text_file(folder_ / "out/model.safetensors"), model);
}

TEST_F(ResumeCommand, WhatIsNotAsItWasIsListed) {
    const Json config = read_json_file(test::golden_path("run_clm/configs/llama.json"));
    const std::string text = read_text_file(test::golden_path("run_clm/train.txt"));
    const auto put = [&](const char* name, const std::string& content) {
        write_file_atomically(folder_ / name, content);
        return (folder_ / name).string();
    };
    put("config.json", config.dump());
    put("train.txt", text);
    const std::string files =
        fmt::format("--config_name '{}' --train_file '{}' ", (folder_ / "config.json").string(),
                    (folder_ / "train.txt").string());
    ASSERT_EQ(train("whole", files + "--max_steps 2 --save_steps 2").exit_code, 0);

    const auto resumed = [&](const std::string& more) {
        fs::remove_all(folder_ / "out");
        fs::create_directories(folder_ / "out");
        fs::copy(checkpoint("whole", 2), checkpoint("out", 2), fs::copy_options::recursive);
        return train("out", files + "--max_steps 3 --save_strategy no " + more);
    };
    const auto expect_listed = [&](const std::string& more, const std::vector<std::string>& lines) {
        const Outcome outcome = resumed(more);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        const std::size_t block = outcome.output.find("will differ from the one that was stopped");
        ASSERT_NE(block, std::string::npos) << outcome.output;
        EXPECT_EQ(outcome.output.find("will differ from the one that was stopped", block + 1),
                  std::string::npos);
        for (const std::string& line : lines)
            EXPECT_NE(outcome.output.find("\n\t" + line, block), std::string::npos) << line << "\n"
                                                                                    << outcome.output;
    };
    const Outcome alike = resumed("");
    EXPECT_EQ(alike.exit_code, 0) << alike.output;
    EXPECT_EQ(alike.output.find("hash of"), std::string::npos) << alike.output;
    EXPECT_EQ(alike.output.find("\n\tconfig "), std::string::npos) << alike.output;

    expect_listed("--gradient_accumulation_steps 2", {"rows of an update, over all processes: 4 (now) != 2"});
    expect_listed("--hf_compat 4.57 --preprocessing_num_workers 2",
                  {"hf_compat: '4.57' (now) != '5'", "preprocessing_num_workers: 2 (now) != None"});
    expect_listed("--streaming", {"streaming: True (now) != False"});
    expect_listed("--train_sampling_strategy sequential", {"train_sampling_strategy: 'sequential'"});
    Json edited = config;
    edited["rope_theta"] = 500000.0;
    edited["rms_norm_eps"] = 1e-3;
    put("config.json", edited.dump());
    put("train.txt", "A first line that was not there.\n" + text);
    expect_listed("", {"config rope_theta: 500000.0 (now) != 10000.0 (checkpoint)",
                       "config rms_norm_eps: 0.001 (now)", "hash of the training text: 'content "});
    put("config.json", config.dump());
    put("train.txt", text);
    // A tokenizer with two tokens exchanged.
    const fs::path tokenizer = fs::path(DROVER_SOURCE_DIR) / "examples/tokenizers/shakespeare-4k";
    fs::copy(tokenizer, folder_ / "tokenizer", fs::copy_options::recursive);
    std::string json = read_text_file(tokenizer / "tokenizer.json");
    const std::size_t first = json.find(": 2992,"), second = json.find(": 2993,");
    ASSERT_TRUE(first != std::string::npos && second != std::string::npos);
    std::swap(json[first + 5], json[second + 5]);
    put("tokenizer/tokenizer.json", json);
    expect_listed(fmt::format("--tokenizer_name '{}'", (folder_ / "tokenizer").string()),
                  {"hash of the tokenizer: "});
}

/// Not even root can follow a link to itself.
TEST_F(ResumeCommand, AnUnreadableCheckpointIsPassedOver) {
    ASSERT_EQ(train("out", "--max_steps 4 --save_steps 2").exit_code, 0);
    fs::create_directories(checkpoint("out", 6));
    for (const char* name : {"optimizer.pt", "trainer_state.json", "drover_state.json"})
        fs::create_symlink(name, checkpoint("out", 6) / name);
    fs::create_symlink("checkpoint-8", checkpoint("out", 8));
    const Outcome outcome = train("out", "--max_steps 5 --save_steps 2");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("checkpoint-6 is not a complete checkpoint, and is passed over"),
              std::string::npos)
        << outcome.output;
    EXPECT_NE(outcome.output.find("global step 4\n"), std::string::npos) << outcome.output;
}

TEST_F(ResumeCommand, AModelAloneIsNotResumedFrom) {
    ASSERT_EQ(train("out", "--max_steps 2 --save_steps 1 --save_only_model").exit_code, 0);
    EXPECT_FALSE(fs::exists(checkpoint("out", 1) / "optimizer.safetensors"));
    const Outcome again = train("out", "--max_steps 4");
    EXPECT_EQ(again.exit_code, 1);
    EXPECT_NE(again.output.find("--save_only_model"), std::string::npos) << again.output;
}

TEST_F(ResumeCommand, KeepsTheNewestCheckpointsAndClearsLeftovers) {
    fs::create_directories(folder_ / "out/checkpoint-99.partial");
    const Outcome outcome = train("out", "--max_steps 8 --save_steps 2 --save_total_limit 2");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("Removed checkpoint-99.partial"), std::string::npos) << outcome.output;
    EXPECT_EQ(steps_in("out"), (std::vector<std::int64_t>{6, 8}));
    for (const auto& entry : fs::directory_iterator(folder_ / "out"))
        EXPECT_NE(entry.path().extension(), ".partial") << entry.path();
}

TEST_F(ResumeCommand, IgnoreDataSkipBeginsTheEpochAgain) {
    ASSERT_EQ(train("out", "--max_steps 4 --save_steps 2").exit_code, 0);
    const Outcome skipped = train("out", "--max_steps 6 --ignore_data_skip --logging_steps 1");
    ASSERT_EQ(skipped.exit_code, 0) << skipped.output;
    ASSERT_EQ(train("whole", "--max_steps 6 --logging_steps 1").exit_code, 0);
    EXPECT_NE(test::timeless_history(folder_ / "out/trainer_state.json"),
              test::timeless_history(folder_ / "whole/trainer_state.json"));
}

}  // namespace
}  // namespace drover
