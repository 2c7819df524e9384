// Runs on several datasets.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "app/mesh_runs.h"
#include "core/torch_rng.h"
#include "data/sampling/mixture.h"

namespace drover {
namespace {

/// The datasets a and b have different texts. Where nothing is learned and a batch is one row, the loss of a
/// step tells which row it was.
class DatasetMixture : public test::MeshRuns {
  protected:
    void SetUp() override {
        MeshRuns::SetUp();
        const std::string train = read_text_file(test::golden_path("run_clm/train.txt")),
                          validation = read_text_file(test::golden_path("run_clm/validation.txt"));
        write("a/train.txt", train.substr(0, 2500));
        write("b/train.txt", train.substr(train.size() - 1500));
        write("a/validation.txt", validation.substr(0, 1200));
        write("b/validation.txt", validation.substr(validation.size() - 700));
    }
    void write(const std::string& name, const std::string& content) const {
        std::filesystem::create_directories((folder_ / name).parent_path());
        std::ofstream(folder_ / name, std::ios::binary) << content;
    }
    /// Runs in the test's folder, where the datasets are. No limit on the rows unless `flags` have one.
    std::string run_on(const std::string& datasets, const std::string& output, const std::string& flags,
                       int processes = 1) const {
        const test::Outcome outcome =
            train_on(processes, output, "--max_train_samples 1000 --dataset_name " + datasets + " " + flags);
        EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
        return outcome.output;
    }
    std::vector<double> losses(const std::string& output) const {
        std::vector<double> all;
        for (const Json& record : history(output))
            if (record.contains("loss")) all.push_back(record.at("loss"));
        return all;
    }
    Json results(const std::string& output, const std::string& file) const {
        const std::filesystem::path path = folder_ / output / file;
        return parse_python_json(read_text_file(path), path.string());
    }
    void expect_refusal(int exit_code, const std::string& flags, const std::string& part) const {
        const test::Outcome outcome = train("refused", flags);
        EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
        EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
    }

    const std::string observed_ =
        " --learning_rate 0 --per_device_train_batch_size 1 --logging_steps 1 --save_strategy no "
        "--save_final_model no ";
};

TEST_F(DatasetMixture, TrainsOnTheRowsOfItsOrder) {
    std::vector<double> rows;  // the loss of each row
    Mixture mixture{.weights = {3, 1}};
    for (const std::string name : {"a", "b"}) {
        run_on(name, name + "_alone",
               observed_ + "--train_sampling_strategy sequential --num_train_epochs 1");
        const std::vector<double> own = losses(name + "_alone");
        rows.insert(rows.end(), own.begin(), own.end());
        mixture.sizes.push_back(static_cast<std::int64_t>(own.size()));
    }
    ASSERT_EQ(mixture.sizes, (std::vector<std::int64_t>{23, 14}));
    ASSERT_EQ(std::set<double>(rows.begin(), rows.end()).size(), rows.size()) << "losses tell rows apart";
    const auto expected = [&](const Mixture& mixed, bool shuffled) {
        std::vector<double> of_epochs;
        for (const std::int64_t epoch : {0, 1})
            for (const std::int64_t row : mixed_order(mixed, epoch, shuffled, 42))
                of_epochs.push_back(rows[static_cast<std::size_t>(row)]);
        return of_epochs;
    };
    const std::string said = run_on("a,b", "mixed", observed_ + "--dataset_weights 3,1 --num_train_epochs 2");
    EXPECT_EQ(losses("mixed"), expected(mixture, true));
    EXPECT_NE(said.find("  a                    23           3   75.00 %              56      2.43\n"
                        "  b                    14           1   25.00 %              18      1.29\n"),
              std::string::npos)
        << said;
    run_on("a,b", "in_order",
           observed_ + "--dataset_weights 3,1 --num_train_epochs 2 --train_sampling_strategy sequential");
    EXPECT_EQ(losses("in_order"), expected(mixture, false));

    // Without weights they are one dataset.
    const std::string together = run_on("a,b", "joined", observed_ + "--num_train_epochs 2");
    std::vector<double> joined;
    for (const std::uint64_t seed : {42, 43})
        for (const std::int64_t row : TorchRng(seed).randperm(37))
            joined.push_back(rows[static_cast<std::size_t>(row)]);
    EXPECT_EQ(losses("joined"), joined);
    EXPECT_NE(together.find("  b                    14   37.84 %              28      2.00\n"),
              std::string::npos)
        << together;

    // Of at most 16 rows, a gives its first 12.
    run_on("a,b", "limited", observed_ + "--dataset_weights 3,1 --num_train_epochs 1 --max_train_samples 16");
    std::vector<double> limited = losses("limited"), first(rows.begin(), rows.begin() + 12);
    first.insert(first.end(), rows.begin() + 23, rows.begin() + 27);
    std::sort(limited.begin(), limited.end());
    std::sort(first.begin(), first.end());
    EXPECT_EQ(limited, first);

    // A stream has the same shares, in the order of the text.
    run_on("a,b", "streamed", observed_ + "--dataset_weights 3,1 --max_steps 74 --streaming");
    EXPECT_EQ(losses("streamed"), expected(mixture, false));
}

TEST_F(DatasetMixture, ResumesBitForBitInTheMiddleOfAPass) {
    // An update takes 4 of 37 rows, so that step 5 is in the first epoch and step 15 in the second.
    int number = 0;
    for (const std::string more : {"", " --streaming"}) {
        const std::string flags =
            "--dataset_weights 3,1 --gradient_accumulation_steps 2 --learning_rate 1e-2 --max_steps 18 "
            "--save_steps 5" +
            more;
        const std::string whole = "whole" + std::to_string(number),
                          parts = "parts" + std::to_string(number++);
        run_on("a,b", whole, flags);
        for (const std::int64_t begin : {15, 5}) {
            run_on("a,b", parts, flags);
            for (const std::int64_t step : steps_in(parts))
                if (step > begin) std::filesystem::remove_all(checkpoint(parts, step));
            std::filesystem::remove(folder_ / parts / "trainer_state.json");
            const std::string said = run_on("a,b", parts, flags);
            EXPECT_NE(said.find(fmt::format("Continuing training from global step {}\n", begin)),
                      std::string::npos)
                << said;
            EXPECT_EQ(said.find("will differ"), std::string::npos) << said;
            test::expect_equal_state(checkpoint(parts, 18), checkpoint(whole, 18));
        }
    }
    const std::string changed =
        run_on("a,b", "whole0",
               "--dataset_weights 1,3 --gradient_accumulation_steps 2 --max_steps 19 --save_steps 5");
    EXPECT_NE(changed.find("dataset_weights: '1,3' (now) != '3,1'"), std::string::npos) << changed;
    EXPECT_EQ(results("whole0", "checkpoint-18/training_args.json").at("dataset_weights"), "3,1");
}

TEST_F(DatasetMixture, TwoProcessesTrainAsOne) {
    const std::string flags =
        " --dataset_weights 1,2 --learning_rate 1e-2 --logging_steps 1 --num_train_epochs 2 "
        "--dataloader_drop_last --save_strategy no --per_device_train_batch_size ";
    run_on("a,b", "alone", flags + "2");
    run_on("a,b", "pair", flags + "1", 2);
    ASSERT_EQ(losses("alone").size(), 36U);
    expect_same_records("pair", "alone");
}

TEST_F(DatasetMixture, EvaluatesTheValidationDataOfAll) {
    const auto evaluate = [&](const std::string& datasets, const std::string& more) {
        run_on(datasets, "evaluated", "--do_train no --do_eval --per_device_eval_batch_size 1 " + more);
        return results("evaluated", "eval_results.json");
    };
    const auto number = [](const Json& values, const char* key) { return values.at(key).get<double>(); };
    const Json a = evaluate("a", ""), b = evaluate("b", "");
    const double rows_a = number(a, "eval_samples"), rows_b = number(b, "eval_samples");
    ASSERT_NE(rows_a, rows_b);
    const double mean =
        (rows_a * number(a, "eval_loss") + rows_b * number(b, "eval_loss")) / (rows_a + rows_b);
    for (const char* more : {"", "--dataset_weights 9,1", "--streaming"}) {
        const Json both = evaluate("a,b", more);
        EXPECT_EQ(number(both, "eval_samples"), rows_a + rows_b) << more;
        EXPECT_NEAR(number(both, "eval_loss"), mean, 1e-5) << more;
    }
    EXPECT_EQ(number(evaluate("a,b", "--max_eval_samples 6"), "eval_samples"), 6);
}

TEST_F(DatasetMixture, PassesOnWhatIsKnownOfEachDataset) {
    write("c/train.jsonl", R"({"id": "1", "body": "First Citizen: Before we proceed any further, hear me."})"
                           "\n");
    const std::string said =
        run_on("a,c", "columns",
               "--text_column ,body --dataset_weights 1,1 --packing lossless --block_size 8 --max_steps 2 "
               "--validation_split_percentage 0");
    EXPECT_NE(said.find("c: The text is in the column \"body\"; not used: id."), std::string::npos) << said;
    const std::string card = read_text_file(folder_ / "columns/README.md");
    EXPECT_NE(card.find("datasets:\n- a\n- c\n"), std::string::npos) << card;
    EXPECT_NE(card.find("on the datasets a, c."), std::string::npos) << card;
}

TEST_F(DatasetMixture, BadMixturesAreRefusedByName) {
    write("e/train.txt", "First\n");
    write("e/validation.txt", "First\n");
    expect_refusal(1, "--dataset_name a,e --dataset_weights 1,1", "e: The 1 rows of text gave");
    expect_refusal(1, "--dataset_name a,e --dataset_weights 1,1 --streaming --max_steps 9",
                   "Dataset 2 of the mixture is too short");
    write("empty/train.txt", "");
    expect_refusal(1, "--dataset_name a,empty --dataset_weights 1,1", "empty/train.txt is empty");
    expect_refusal(2, "--dataset_name a,b --dataset_weights 1,0", "not a number above 0");
    expect_refusal(2, "--dataset_name a,b --dataset_weights 20,1 --max_train_samples 5",
                   "leaves no row of b");
    expect_refusal(1, "--dataset_name a,nowhere/b", "nowhere/b");
    const std::string tokenize = "tokenize --tokenizer " DROVER_SOURCE_DIR
                                 "/examples/tokenizers/shakespeare-4k --input b/train.txt --output ";
    for (const std::string size : {"16", "32"}) {
        std::filesystem::create_directory(folder_ / ("of" + size));
        ASSERT_EQ(test::run_in(folder_.path().string(),
                               tokenize + "of" + size + "/train.tokens --block_size " + size)
                      .exit_code,
                  0);
    }
    std::string line = words("refused", "--dataset_name of16,of32");
    line.replace(line.find("--block_size 32"), 15, "");
    const test::Outcome differing = test::run_in(folder_.path().string(), line);
    EXPECT_EQ(differing.exit_code, 1) << differing.output;
    EXPECT_NE(differing.output.find("were packed in different ways"), std::string::npos) << differing.output;
    // Text is packed as the token file is.
    run_on("a,of32", "beside", "--dataset_weights 1,1 --max_steps 3");
}

}  // namespace
}  // namespace drover
