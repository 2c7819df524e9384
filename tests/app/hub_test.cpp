#include <gtest/gtest.h>

#include <fstream>

#include "core/text_file.h"
#include "hub/hub_server.h"
#include "support/background_run.h"
#include "support/run_drover.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::count_of;
using test::Outcome;

/// The program and a server that plays the Hub.
class HubCommands : public testing::Test {
  protected:
    void SetUp() override {
        if (!server_.runs()) GTEST_SKIP() << "python3, which plays the Hub, is not there";
        const fs::path tokenizer = fs::path(DROVER_SOURCE_DIR) / "examples/tokenizers/shakespeare-4k";
        for (const auto& file : fs::directory_iterator(tokenizer))
            server_.add("models/org/tiny/main/" + file.path().filename().string(),
                        read_text_file(file.path()));
        server_.add("models/org/tiny/main/config.json",
                    R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "vocab_size": 4096,
                        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                        "max_position_embeddings": 64})");
        server_.add("models/org/tiny/main/model.safetensors", "never read");
        std::string rows;
        for (int i = 0; i < 200; ++i) rows += "{\"text\": \"To be, or not to be, that is the question.\"}\n";
        server_.add("datasets/org/lines/main/train.jsonl", rows);
        server_.add("datasets/org/lines/main/validation.jsonl", rows + rows);
    }

    Outcome run(const std::string& arguments, const std::string& within = "") const {
        return test::run_shell(
            fmt::format("OMP_NUM_THREADS=1 {} {} {} 2>&1", within, DROVER_BINARY, arguments),
            folder_.path().string());
    }
    static std::string training(const std::string& more) {
        return "run_clm --config_name org/tiny --tokenizer_name org/tiny --dataset_name org/lines --do_train "
               "--block_size 16 --max_steps 4 --per_device_train_batch_size 2 --save_steps 2 --output_dir "
               "out " +
               more;
    }

    test::TemporaryFolder folder_;
    test::HubServer server_{folder_ / "server"};
    test::Variables variables_{[this] {
        auto variables = test::hub_variables(server_, folder_ / "home");
        variables["DROVER_CACHE"] = (folder_ / "drover").string();
        return variables;
    }()};
};

TEST_F(HubCommands, ARunFetchesWhatItNames) {
    const Outcome first = run(training(""));
    ASSERT_EQ(first.exit_code, 0) << first.output;
    EXPECT_TRUE(fs::exists(folder_ / "out/model.safetensors"));
    EXPECT_EQ(server_.requests("model.safetensors").size(), 0u) << "weights are fetched for a config";
    const std::size_t before = server_.requests().size();
    const Outcome second = run(training("--overwrite_output_dir"), "HF_HUB_OFFLINE=1");
    ASSERT_EQ(second.exit_code, 0) << second.output;
    EXPECT_EQ(server_.requests().size(), before);
    const Outcome missing =
        run("run_clm --model_name_or_path org/none --dataset_name org/lines --do_train "
            "--output_dir other");
    EXPECT_EQ(missing.exit_code, 1);
    EXPECT_NE(
        missing.output.find("--model_name_or_path is \"org/none\", and there is no such file or folder. " +
                            server_.address() + " has no model org/none"),
        std::string::npos)
        << missing.output;
    EXPECT_NE(missing.output.find("If it is a path, check its spelling."), std::string::npos)
        << missing.output;
    const Outcome path =
        run("run_clm --model_name_or_path ./no/such/folder --dataset_name org/lines --do_train "
            "--output_dir other");
    EXPECT_NE(path.output.find("not a name of the Hub either"), std::string::npos) << path.output;
}

TEST_F(HubCommands, AMisspelledPathIsNotAskedFor) {
    fs::create_directories(folder_ / "configs");
    fs::create_directories(folder_ / "org");
    const auto expect_refusal = [&](const std::string& model, const std::string& text) {
        const Outcome outcome =
            run("run_clm " + model + " --dataset_name org/lines --do_train --output_dir out");
        EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
        EXPECT_NE(outcome.output.find(text), std::string::npos) << outcome.output;
    };
    expect_refusal("--config_name elsewhere/llama.json",
                   "--config_name is \"elsewhere/llama.json\": there is no such file.");
    expect_refusal("--model_name_or_path configs/checkpoint-99",
                   "there is a folder configs, and nothing of this name in it. Check the path.");
    EXPECT_EQ(server_.requests().size(), 0u);
    // A repository that was fetched is found, whatever folders there are.
    ASSERT_EQ(run("fetch org/tiny").exit_code, 0);
    const Outcome fetched = run(training(""));
    EXPECT_EQ(fetched.exit_code, 0) << fetched.output;
}

TEST_F(HubCommands, ATokenOfTheCommandLineOpensAGatedModel) {
    for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"})
        server_.add(fmt::format("models/org/gated-one/main/{}", name),
                    server_.content(fmt::format("models/org/tiny/main/{}", name)));
    const std::string gated =
        "run_clm --config_name org/gated-one --tokenizer_name org/gated-one --dataset_name org/lines "
        "--do_train "
        "--block_size 16 --max_steps 1 --save_strategy no --output_dir out ";
    const Outcome refused = run(gated);
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_NE(refused.output.find("is gated"), std::string::npos) << refused.output;
    const Outcome allowed = run(gated + "--token hf_right");
    ASSERT_EQ(allowed.exit_code, 0) << allowed.output;
    EXPECT_EQ(allowed.output.find("hf_right"), std::string::npos);
    EXPECT_EQ(read_text_file(folder_ / "out/training_args.json").find("hf_right"), std::string::npos);
}

TEST_F(HubCommands, OneOfSeveralRanksFetches) {
    const Outcome outcome = test::run_shell(
        fmt::format("OMP_NUM_THREADS=1 OMPI_MCA_btl_vader_single_copy_mechanism=none {} --allow-run-as-root "
                    "--oversubscribe --bind-to none -n 2 {} {} 2>&1",
                    DROVER_MPIRUN, DROVER_BINARY, training("--save_strategy no")),
        folder_.path().string());
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    for (const char* file : {"config.json", "train.jsonl", "validation.jsonl"})
        EXPECT_EQ(server_.requests(std::string("/") + file).size(), 1u) << file;
}

TEST_F(HubCommands, ARunUploadsItsModel) {
    const Outcome none = run(training("--push_to_hub"));
    EXPECT_EQ(none.exit_code, 2) << none.output;
    EXPECT_NE(none.output.find("--push_to_hub is given, but there is no token."), std::string::npos);
    const Outcome pushed =
        run(training("--push_to_hub --hub_token hf_right --hub_model_id made "
                     "--hub_strategy checkpoint --hub_private_repo yes --hub_always_push"));
    ASSERT_EQ(pushed.exit_code, 0) << pushed.output;
    EXPECT_NE(pushed.output.find("Uploaded: " + server_.address() + "/tester/made/commit/"),
              std::string::npos)
        << pushed.output;
    EXPECT_EQ(Json::parse(server_.content("created.json"))["private"], true);
    const std::string there = "models/tester/made/main/";
    EXPECT_EQ(server_.content(there + "model.safetensors"),
              read_text_file(folder_ / "out/model.safetensors"));
    EXPECT_EQ(server_.content(there + "README.md"), read_text_file(folder_ / "out/README.md"));
    EXPECT_EQ(server_.content(there + "last-checkpoint/trainer_state.json"),
              read_text_file(folder_ / "out/checkpoint-4/trainer_state.json"));
    EXPECT_FALSE(fs::exists(folder_ / "server" / there / "checkpoint-4"));
    EXPECT_FALSE(fs::exists(folder_ / "server" / there / "drover.lock"));
    EXPECT_FALSE(fs::exists(folder_ / "out/.push"));
    const std::string commits = server_.content("commits.log");
    EXPECT_NE(commits.find("Training in progress, step 2"), std::string::npos) << commits;
    EXPECT_NE(commits.find("End of training"), std::string::npos) << commits;
    EXPECT_EQ(server_.content(there + "training_args.json").find("hf_right"), std::string::npos);
    EXPECT_EQ(pushed.output.find("hf_right"), std::string::npos);
}

TEST_F(HubCommands, AFailedUploadOfACheckpointDoesNotEndTheRun) {
    server_.set_faults({{{"path", "/preupload/"}, {"do", "status"}, {"status", 400}, {"times", 1}}});
    const Outcome pushed = run(
        training("--push_to_hub --hub_token hf_right --push_to_hub_organization tester --hub_revision trial "
                 "--hub_strategy all_checkpoints --hub_always_push"));
    ASSERT_EQ(pushed.exit_code, 0) << pushed.output;
    EXPECT_EQ(count_of(pushed.output, "A checkpoint was not uploaded, and the run continues."), 1u)
        << pushed.output;
    EXPECT_TRUE(fs::exists(folder_ / "server/models/tester/out/trial/checkpoint-4/model.safetensors"));
    EXPECT_TRUE(fs::exists(folder_ / "server/models/tester/out/trial/model.safetensors"));
    const Outcome without = run(training("--overwrite_output_dir --hub_model_id x"));
    EXPECT_NE(without.output.find("--hub_model_id: nothing is uploaded without --push_to_hub."),
              std::string::npos)
        << without.output;
}

TEST_F(HubCommands, FetchPrintsTheFolder) {
    const Outcome fetched = run("fetch org/tiny config.json --include '*.safetensors'");
    ASSERT_EQ(fetched.exit_code, 0) << fetched.output;
    const fs::path snapshot = fetched.output.substr(0, fetched.output.find('\n'));
    EXPECT_EQ(read_text_file(snapshot / "model.safetensors"), "never read");
    EXPECT_FALSE(fs::exists(snapshot / "tokenizer.json"));
    EXPECT_EQ(run("fetch org/tiny --local_dir here --exclude '*.safetensors'").exit_code, 0);
    EXPECT_TRUE(fs::exists(folder_ / "here/tokenizer.json"));
    EXPECT_NE(run("fetch org/lines --repo_type dataset --dry_run").output.find("train.jsonl"),
              std::string::npos);
    EXPECT_FALSE(fs::exists(folder_ / "home/hub/datasets--org--lines"));
    const auto refused = [&](const std::string& arguments, int exit_code, const std::string& words) {
        const Outcome outcome = run(arguments);
        EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
        EXPECT_NE(outcome.output.find(words), std::string::npos) << outcome.output;
    };
    refused("fetch ../x", 2, "is not the name of a repository");
    refused("fetch org/tiny nothing.json", 1, "has no file nothing.json");
    refused("fetch org/tiny --include 'x*'", 1, "No file of the model org/tiny matches");
    refused("fetch org/tiny --local_dir a --cache_dir b", 2, "Both --local_dir and --cache_dir");
    refused("fetch org/tiny --revision v9", 1, "has no revision v9");
    refused("fetch org/lines", 1, "For a dataset, add --repo_type dataset.");
    refused("fetch org/tiny --local_dir /proc/here", 1, "Name another folder with --local_dir.");
}

TEST_F(HubCommands, AFetchOfflineFindsWhatIsInTheCache) {
    const std::string fetched = run("fetch org/tiny config.json").output;
    const std::string offline = "HF_HUB_OFFLINE=1";
    const Outcome again = run("fetch org/tiny config.json", offline);
    EXPECT_EQ(again.exit_code, 0) << again.output;
    EXPECT_NE(fetched.find(again.output), std::string::npos) << again.output;
    for (const auto& [arguments, words] :
         {std::pair{"fetch org/tiny", "The model org/tiny is only in parts in the cache, and HF_HUB_OFFLINE"},
          std::pair{"fetch org/none", "The model org/none is not in the cache, and HF_HUB_OFFLINE"},
          std::pair{"fetch org/tiny --local_dir here", "The network may not be used"}}) {
        const Outcome refused = run(arguments, offline);
        EXPECT_EQ(refused.exit_code, 1) << arguments;
        EXPECT_NE(refused.output.find(words), std::string::npos) << refused.output;
    }
}

TEST_F(HubCommands, AnInterruptedFetchContinues) {
    server_.add("models/org/large/main/model.safetensors", test::noise(400'000));
    server_.set_faults({{{"path", "/cdn/"}, {"do", "stall"}, {"bytes", 250'000}, {"times", 1}}});
    const fs::path blobs = folder_ / "home/hub/models--org--large/blobs";
    {
        test::BackgroundRun stalled("fetch org/large", folder_ / "log");
        ASSERT_TRUE(stalled.wait_until([&] {
            std::error_code ignored;
            for (const auto& file : fs::directory_iterator(blobs, ignored))
                if (file.file_size(ignored) == 250'000) return true;
            return false;
        })) << stalled.output();
        stalled.send(SIGKILL);
        stalled.exit_code();
    }
    const Outcome again = run("fetch org/large");
    ASSERT_EQ(again.exit_code, 0) << again.output;
    EXPECT_EQ(server_.requests("/cdn/").back()["range"], "bytes=250000-");
    EXPECT_EQ(read_text_file(fs::path(again.output.substr(0, again.output.find('\n'))) / "model.safetensors"),
              test::noise(400'000));
}

TEST_F(HubCommands, WithoutLibcurlADownloadSaysSo) {
    const Outcome outcome = run("fetch org/tiny", "DROVER_CURL_MODULE=/no/such/file.so");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_NE(outcome.output.find("Nothing can be fetched from the network or sent there: the module "
                                  "drover_curl.so was not found"),
              std::string::npos)
        << outcome.output;
    EXPECT_NE(outcome.output.find("apt-get install libcurl4"), std::string::npos);
    EXPECT_EQ(run("--version", "DROVER_CURL_MODULE=/no/such/file.so").exit_code, 0);
}

TEST_F(HubCommands, LoginAndTheCache) {
    const Outcome wrong = test::run_shell(fmt::format("echo hf_wrong | {} login 2>&1", DROVER_BINARY));
    EXPECT_EQ(wrong.exit_code, 1);
    EXPECT_NE(wrong.output.find("does not know this token"), std::string::npos) << wrong.output;
    EXPECT_FALSE(fs::exists(folder_ / "home/token"));
    const Outcome right = test::run_shell(fmt::format("echo hf_right | {} login 2>&1", DROVER_BINARY));
    EXPECT_EQ(right.exit_code, 0) << right.output;
    EXPECT_NE(right.output.find("as tester"), std::string::npos);
    EXPECT_EQ(read_text_file(folder_ / "home/token"), "hf_right");
    EXPECT_EQ(run("login --whoami").output, "tester\n");
    EXPECT_EQ(run("login --logout").exit_code, 0);
    EXPECT_FALSE(fs::exists(folder_ / "home/token"));
    ASSERT_EQ(run("fetch org/tiny").exit_code, 0);
    EXPECT_NE(run("cache list").output.find("1 commit  model org/tiny"), std::string::npos);
    EXPECT_EQ(run("cache prune").output, "0 bytes freed.\n");
    EXPECT_EQ(run("cache prune org/tiny").output, "org/tiny is removed.\n");
    EXPECT_NE(run("cache list").output.find("0 repositories"), std::string::npos);
    EXPECT_EQ(run("cache prune org/tiny").exit_code, 1);
}

}  // namespace
}  // namespace drover
