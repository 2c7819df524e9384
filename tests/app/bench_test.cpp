#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <string>

#include "backend/ops/list.h"
#include "core/json.h"
#include "core/json_text.h"
#include "support/golden.h"
#include "support/run_drover.h"

namespace drover {
namespace {

using test::Outcome;
using test::run_drover;

class Bench : public ::testing::Test {
  protected:
    std::string write_config(const char* name, const std::string& text) {
        std::ofstream(folder_ / name) << text;
        return (folder_ / name).string();
    }
    std::string llama() {
        return write_config("llama.json", R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 32,
            "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})");
    }
    std::string mixtral() {
        return write_config("mixtral.json", R"({"model_type": "mixtral", "vocab_size": 96, "hidden_size": 32,
            "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
            "num_local_experts": 4, "sliding_window": 5, "output_router_logits": true, "router_jitter_noise": 0.1})");
    }
    /// Expects exactly one object on stdout.
    Json object(const std::string& arguments) {
        const Outcome outcome = run_drover(arguments + " 2>/dev/null");
        EXPECT_EQ(outcome.exit_code, 0) << arguments;
        EXPECT_TRUE(outcome.output.starts_with("{")) << outcome.output;
        return parse_json(outcome.output, "stdout");
    }
    void expect_error(const std::string& arguments, int exit_code, const std::string& part) {
        const Outcome outcome = run_drover(arguments + " 2>&1");
        EXPECT_EQ(outcome.exit_code, exit_code) << arguments << "\n" << outcome.output;
        EXPECT_TRUE(outcome.output.starts_with("drover: ")) << outcome.output;
        EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
    }

    test::TemporaryFolder folder_;
    // One thread: with matrices this small, several only wait for each other.
    const std::string small_ = " --batch 2 --seq 16 --steps 3 --threads 1";
};

TEST_F(Bench, JsonHoldsTheMeasurements) {
    for (const std::string dtype : {"float32", "bfloat16"}) {
        const Json report = object("bench --json --model " + llama() + " --dtype " + dtype + small_);
        for (const char* key : {"tokens_per_second", "tflops", "mfu", "step_ms", "first_step_seconds"})
            EXPECT_GT(report.at(key).get<double>(), 0) << key;
        const auto count = report.at("parameters").get<std::int64_t>();
        EXPECT_EQ(count, 2 * 96 * 32 + 2 * (32 * 64 + 32 * 32 + 3 * 32 * 48 + 2 * 32) + 32);
        EXPECT_GT(report.at("peak_memory_bytes").get<std::int64_t>(),
                  report.at("planned_memory_bytes").get<std::int64_t>());
        // 6·(N − V·H) + 6·L·H·T per token
        const double flops_per_token = 6.0 * static_cast<double>(count - 96 * 32) + 6 * 2 * 32 * 16;
        EXPECT_NEAR(1e12 * report.at("tflops").get<double>() / report.at("tokens_per_second").get<double>(),
                    flops_per_token, 1e-6 * flops_per_token);
        EXPECT_NEAR(report.at("tokens_per_second").get<double>() * report.at("step_ms").get<double>(),
                    2 * 16 * 1e3, 1e-3);
        EXPECT_LT(report.at("loss").get<double>(), 6);
    }
}

/// Of 2 × 256 positions 52 have a label, so the vocabulary's products have 64 rows instead of 512.
TEST_F(Bench, TargetsAreTheShareOfPositionsWithALabel) {
    const std::string run =
        "bench --json --dtype float32 --batch 2 --seq 256 --steps 3 --threads 1 --model " + llama() +
        " --targets ";
    const auto product_flops = [](const Json& report) {
        double flops = 0;
        for (const Json& operation : report.at("operations"))
            if (operation.at("name") == "gemm forward")
                flops += 1e6 * operation.at("gflops").get<double>() * operation.at("ms").get<double>();
        return flops;
    };
    const Json all = object(run + "1"), tenth = object(run + "0.1");
    const double saved = 2.0 * (512 - 64) * 96 * 32;
    EXPECT_NEAR(product_flops(all) - product_flops(tenth), saved, 1e-6 * product_flops(all));
    EXPECT_EQ(tenth.at("targets"), 0.1);
    EXPECT_GT(tenth.at("loss").get<double>(), 0);
    const auto flops_per_token = [](const Json& report) {
        return 1e12 * report.at("tflops").get<double>() / report.at("tokens_per_second").get<double>();
    };
    EXPECT_NEAR(flops_per_token(all) - flops_per_token(tenth), 0.9 * 6 * 96 * 32, 1);
    expect_error("bench --targets 1.5 --model " + llama(), 2, "--targets");
}

/// Only the examples' tokens count; packed rows hold several of them, and less padding.
TEST_F(Bench, ExamplesAreOneToARowOrPacked) {
    const std::string run = "bench --json --dtype float32 --batch 4 --seq 64 --steps 5 --threads 1 --model " +
                            llama() + " --example_length 12";
    const Json padded = object(run), packed = object(run + " --packed --targets 0.5");
    const auto tokens = [](const Json& report) {  // of the one step that is timed
        return report.at("tokens_per_second").get<double>() * report.at("step_ms").get<double>() / 1e3;
    };
    EXPECT_GT(tokens(padded), 4 * 2);
    EXPECT_LT(tokens(padded), 4 * 40);
    EXPECT_GT(tokens(packed), 4 * 40);
    EXPECT_LE(tokens(packed), 4 * 64);
    EXPECT_NEAR(tokens(packed), std::round(tokens(packed)), 1e-6);
    // Each of the four batches has another size and its turn before time counts; full rows have one size.
    EXPECT_EQ(padded.at("warm_up_steps"), 4);
    EXPECT_EQ(object("bench --json --dtype float32 --model " + llama() + small_).at("warm_up_steps"), 2);
    expect_error("bench --example_length 12 --steps 4 --model " + llama(), 2,
                 "--steps is 4, and the first 4 are for warm-up");
    EXPECT_EQ(padded.at("packed"), false);
    EXPECT_EQ(packed.at("packed"), true);
    expect_error("bench --packed --model " + llama(), 2, "--example_length");
    expect_error("bench --packed --example_length 0 --model " + llama(), 2, "--example_length is 0");
}

/// 7 matrices in each of 2 blocks have adapters: r · (in + out) parameters each.
TEST_F(Bench, LoraTrainsAdaptersAlone) {
    const std::string run = "bench --json --dtype float32 --model " + llama() + small_;
    const Json whole = object(run), lora = object(run + " --lora_r 4 --lora_compare");
    constexpr std::int64_t adapters = 2 * 4 * (2 * (32 + 32) + 2 * (32 + 16) + 3 * (32 + 48));
    EXPECT_EQ(whole.at("trained_parameters"), whole.at("parameters"));
    EXPECT_EQ(lora.at("trained_parameters"), adapters);
    EXPECT_EQ(lora.at("lora_r"), 4);
    // 4 per frozen weight in products and 6 per adapter's, instead of 6 per weight
    const auto flops_per_token = [](const Json& report) {
        return 1e12 * report.at("tflops").get<double>() / report.at("tokens_per_second").get<double>();
    };
    const double in_products = whole.at("parameters").get<double>() - 96 * 32;
    EXPECT_NEAR(flops_per_token(lora), flops_per_token(whole) - 2 * in_products + 6 * adapters, 1);
    const Json& steps = lora.at("comparison");
    ASSERT_EQ(steps.size(), 3u);
    EXPECT_EQ(steps[0].at("trained_parameters"), whole.at("parameters"));
    EXPECT_EQ(steps[1].at("trained_parameters"), 32);
    EXPECT_EQ(steps[2].at("trained_parameters"), adapters);
    EXPECT_EQ(steps[2].at("step_ms"), lora.at("step_ms"));
    EXPECT_EQ(steps[0].at("planned_memory_bytes"), whole.at("planned_memory_bytes"));
    for (const Json& step : steps) EXPECT_GT(step.at("tokens_per_second").get<double>(), 0);

    const Json two = object(run + " --lora_r 4 --lora_target_modules q_proj,v_proj --lora_dropout 0.1");
    EXPECT_EQ(two.at("trained_parameters"), 2 * 4 * ((32 + 32) + (32 + 16)));
    EXPECT_FALSE(two.contains("comparison"));

    const Outcome text = run_drover("bench --lora_r 4 --lora_compare --model " + llama() + small_ + " 2>&1");
    for (const char* part :
         {"of them trained", "everything", "one norm", "adapters, r = 4", "LoRA's own cost"})
        EXPECT_NE(text.output.find(part), std::string::npos) << part << "\n" << text.output;

    expect_error("bench --lora_compare --model " + llama(), 2, "--lora_r");
    expect_error("bench --lora_r 0 --lora_compare --model " + llama(), 2, "--lora_r is 0");
    expect_error("bench --lora_r 4 --lora_target_modules w1 --model " + llama(), 2,
                 "--lora_target_modules is \"w1\"");
    expect_error("bench --lora_r 4 --model " + mixtral(), 2, "experts");
}

/// FSDP with one process computes the same; only the additional work is measured.
TEST_F(Bench, FsdpAloneComputesTheSame) {
    for (const std::string& model : {llama(), mixtral()}) {
        const std::string run = "bench --json --dtype float32 --model " + model + small_;
        const Json plain = object(run), sharded = object(run + " --fsdp --comm_stats");
        EXPECT_EQ(plain.at("loss"), sharded.at("loss"));
        EXPECT_GT(sharded.at("planned_memory_bytes"), plain.at("planned_memory_bytes"));
        // Each leaf is gathered (the last block's only once) and scattered.
        EXPECT_GT(sharded.at("communication").at("collectives").get<double>(), 2 * 2 * 9);
        EXPECT_GT(sharded.at("communication").at("under_way_seconds").get<double>(), 0);
        EXPECT_FALSE(plain.contains("communication"));
    }
    expect_error("bench --comm_stats --model " + llama(), 2, "--fsdp");
}

TEST_F(Bench, OperationsOfAStepAreAllThere) {
    const Json report =
        object("bench --json --optim sgd --layers 3 --recompute full --model " + llama() + small_);
    std::map<std::string, std::int64_t> calls;
    double share = 0;
    for (const Json& operation : report.at("operations")) {
        calls[operation.at("name")] = operation.at("calls");
        share += operation.at("share").get<double>();
    }
    EXPECT_EQ(calls["gemm weight gradient"], 3 * 4 + 1);
    EXPECT_EQ(calls["gemm data gradient"], 3 * 4 + 1);
    EXPECT_EQ(calls["gemm forward"], 3 * (4 + 3) + 1);  // again in backward, except the last one
    EXPECT_EQ(calls["attention"], 2 * 3);
    EXPECT_EQ(calls["attention backward"], 3);
    EXPECT_EQ(calls["sgd"], 1);
    EXPECT_GT(share, 0);
    EXPECT_LE(share, 1);
}

TEST_F(Bench, TextNamesWhatWasMeasured) {
    const Outcome outcome = run_drover("bench --model " + mixtral() + small_ + " 2>&1");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    for (const char* part :
         {"1 thread;", "tok/s", "GFLOP/s", "MFU", "optimizer moments", "peak resident memory", "first step",
          "expert gemm forward", "of peak", "outside operations"})
        EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
}

TEST_F(Bench, OpsRunsEachOperationAlone) {
    const std::string size = " --batch 1 --seq 8 --threads 1 --model ";
    const Json dense = object("bench ops --json --dtype float32" + size + llama());
    const Json experts = object("bench ops --json --dtype bfloat16" + size + mixtral());
    std::set<std::string> timed;
    for (const Json* report : {&dense, &experts})
        for (const Json& operation : report->at("operations"))
            timed.insert(operation.at("operation").get<std::string>());
    const char* const listed[] = {
#define DROVER_NAME(name, Listed) #name,
        DROVER_OPERATIONS(DROVER_NAME)
#undef DROVER_NAME
    };
    for (const char* name : listed)
        EXPECT_TRUE(timed.contains(name))
            << "bench ops has no line for " << name << ": add one to src/app/bench_ops.cpp";
    int stochastic = 0;
    for (const Json& operation : experts.at("operations"))
        stochastic += operation.at("name") == "adamw" && operation.at("of") == "stochastic";
    EXPECT_EQ(stochastic, 1);
    for (const Json* report : {&dense, &experts})
        for (const Json& operation : report->at("operations"))
            EXPECT_GT(operation.at("of_peak").get<double>(), 0);
    const Json without_products = object("bench ops --json --memory-bound --dtype float32" + size + llama());
    std::set<std::string> products = {"gemm", "fp8_gemm", "attention", "attention_backward",
                                      "cached_attention"};
    std::size_t memory_bound = 0;
    for (const Json& operation : dense.at("operations"))
        memory_bound += !products.contains(operation.at("operation").get<std::string>());
    EXPECT_EQ(without_products.at("operations").size(), memory_bound);
    for (const Json& operation : without_products.at("operations"))
        EXPECT_TRUE(operation.contains("gb_per_second")) << operation;
}

TEST_F(Bench, Fp8TakesARecipe) {
    const std::string config = write_config(
        "wide.json", R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 32, "head_dim": 16,
            "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4})");
    const Json plain = object("bench --json --model " + config + small_),
               fp8 = object("bench --json --fp8 tensorwise --model " + config + small_);
    EXPECT_EQ(plain.at("fp8"), "none");
    EXPECT_EQ(fp8.at("fp8"), "tensorwise");
    EXPECT_GT(fp8.at("planned_memory_bytes"), plain.at("planned_memory_bytes"));
    const auto count = [](const Json& report, const std::string& name) {
        const Json& operations = report.at("operations");
        return std::count_if(operations.begin(), operations.end(),
                             [&](const Json& operation) { return operation.at("name") == name; });
    };
    EXPECT_EQ(count(plain, "fp8 gemm"), 0);
    EXPECT_EQ(count(fp8, "fp8 gemm"), 1);
    expect_error("bench --fp8 fast --model " + config, 2, "Use none, tensorwise or blockwise.");
    expect_error("bench --fp8 tensorwise --model " + llama(), 2,
                 "head_dim is 8, but FP8 products take multiples of 16.");
}

TEST_F(Bench, GmmRunsEveryProductOfEveryMixture) {
    const std::string sizes = "--tokens 40 --mixture 4,32,24,2 --mixture 3,16,8,1";
    const Json report = object("bench gmm --json --device cpu --dtype float32 " + sizes);
    ASSERT_EQ(report.at("products").size(), 2u * 6);
    for (const Json& product : report.at("products"))
        EXPECT_GT(product.at("tflops").at("chosen").get<double>(), 0) << product;
    EXPECT_EQ(report.at("products").at(11).at("mixture"), "3,16,8,1");
    const Outcome text = run_drover("bench gmm --device cpu " + sizes + " 2>&1");
    EXPECT_EQ(text.exit_code, 0) << text.output;
    EXPECT_NE(text.output.find("gate and up"), std::string::npos) << text.output;
}

TEST_F(Bench, GmmRunsProductsInFp8) {
    const Json report = object("bench gmm --json --device cpu --fp8 --tokens 40 --mixture 4,32,16,2");
    EXPECT_EQ(report.at("fp8"), true);
    ASSERT_EQ(report.at("products").size(), 6u);
    for (const Json& product : report.at("products")) {
        EXPECT_GT(product.at("tflops").at("chosen").get<double>(), 0) << product;
        EXPECT_TRUE(product.at("name").get<std::string>().starts_with("fp8 expert gemm")) << product;
    }
    expect_error("bench gmm --device cpu --fp8 --mixture 4,32,24,2", 2, "multiple of 16");
}

TEST_F(Bench, EveryMoeModeGivesTheSameLoss) {
    const auto loss = [&](const std::string& mode) {
        const Json report =
            object("bench --json --dtype float32 --moe " + mode + " --model " + mixtral() + small_);
        EXPECT_EQ(report.at("moe"), mode);
        return report.at("loss").get<double>();
    };
    const double grouped = loss("gmm");
    EXPECT_NEAR(loss("gmm_stack"), grouped, 1e-5);
    EXPECT_NEAR(loss("static"), grouped, 1e-5);
}

TEST_F(Bench, FindsConfigsByName) {
    EXPECT_EQ(object("bench --json --model llama-5m" + small_).at("parameters"), 5261568);
    expect_error("bench --model llama-5", 2, "llama-134m, llama-5m");
}

TEST_F(Bench, WrongFlagsAreOneSentence) {
    expect_error("bench --model " + (folder_ / "none.json").string(), 1, "none.json");
    expect_error("bench --dtype int8 --model " + llama(), 1, "--dtype");
    expect_error("bench --dtype float16 --model " + llama(), 2, "--dtype");
    expect_error("bench --optim adam --model " + llama(), 2, "--optim");
    expect_error("bench --recompute some --model " + llama(), 2, "--recompute");
    expect_error("bench --steps 2", 2, "--steps");
    expect_error("bench --batch 0", 2, "--batch");
    expect_error("bench ops --layers 2", 2, "--layers");
    expect_error("bench --model llama-5m ops", 2, "--model");
    expect_error("bench opz", 2, "opz");
    expect_error("bench --moe dense --model " + mixtral(), 2, "--moe");
    expect_error("bench gmm --device cpu --mixture 2,8,8,3", 2, "--mixture");
    expect_error("bench gmm --device cpu --mixture 2,8,8,1x", 2, "--mixture");
    expect_error("bench --model llama-5m gmm", 2, "--model");
}

TEST_F(Bench, HelpSaysHowFlopsAreCounted) {
    EXPECT_NE(run_drover("bench --help all").output.find("6 · (N − V · H) + 6 · L · H · T"), std::string::npos);
    EXPECT_NE(run_drover("bench ops --help").output.find("GB/s"), std::string::npos);
}

}  // namespace
}  // namespace drover
