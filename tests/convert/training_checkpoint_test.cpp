#include "convert/training_checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "convert/checkpoints.h"
#include "convert/dcp_checkpoint.h"
#include "convert/full_optimizer.h"
#include "convert/nxd_optimizer.h"
#include "convert/open_training_checkpoint.h"
#include "convert/zero_checkpoint.h"
#include "core/sha256.h"
#include "fuzz/torch_pickle_input.h"
#include "io/checkpoint_manifest.h"
#include "io/raw_files.h"
#include "model/config.h"
#include "support/errors.h"

namespace drover {
namespace {

namespace fs = std::filesystem;

fs::path sharded_run(const std::string& name) {
    return test::golden_path("sharded_runs/" + name) / "checkpoint-4";
}

std::string hex_sha256(std::string_view bytes) {
    std::string text;
    for (const unsigned char byte : Sha256().add(bytes).digest()) text += fmt::format("{:02x}", byte);
    return text;
}

/// Type, shape and SHA-256 of tensors by name, as the oracle's account has them.
using Account = std::map<std::string, std::string>;

Account account_of(const std::vector<PlannedTensor>& tensors, const TensorSource& source) {
    test::TemporaryFolder folder;
    ConversionPlan plan;
    plan.files.push_back(safetensors_file("tensors.safetensors", tensors));
    // Small buffers, so that tensors are made of many.
    write_conversion(plan, source, folder.path(), {}, {.buffer_bytes = 200, .flush_bytes = 5000});
    const SafetensorsFile written(folder / "tensors.safetensors");
    Account account;
    for (const SafetensorsEntry& entry : written.header().entries) {
        const Tensor tensor = written.tensor(entry.name);
        account[entry.name] =
            fmt::format("{} {} {}", name_of(tensor.dtype()), Json(entry.shape).dump(),
                        hex_sha256({static_cast<const char*>(tensor.raw()), tensor.bytes()}));
    }
    return account;
}

/// The entries whose names begin with `prefix`, without it.
Account with_prefix(const Json& account, const std::string& prefix) {
    Account found;
    for (const auto& [name, value] : account.items())
        if (name.starts_with(prefix))
            found[name.substr(prefix.size())] =
                fmt::format("{} {} {}", value.at("dtype").get<std::string>(), value.at("shape").dump(),
                            value.at("sha256").get<std::string>());
    return found;
}

class TrainingCheckpoints : public ::testing::TestWithParam<std::string> {};

/// Fused experts are whole in the accounts, and in ours cut: Mixtral is judged by its run.
TEST_P(TrainingCheckpoints, HaveTheStateThatTheirProgramTells) {
    const fs::path folder = sharded_run(GetParam());
    const Json run = read_json_file(folder.parent_path() / "whole_run.json");
    const bool sharded = fs::exists(folder / "pytorch_model_fsdp_0");
    const bool full = fs::exists(folder / "pytorch_model_fsdp.bin");
    const fs::path weights = sharded ? folder / "pytorch_model_fsdp_0"
                             : full  ? folder / "pytorch_model_fsdp.bin"
                                     : folder;
    const std::optional<TrainingCheckpoint> checkpoint =
        open_training_checkpoint(weights, {.model_key = "model"});
    ASSERT_TRUE(checkpoint);
    EXPECT_EQ(checkpoint->optimizer.updates, 4);
    EXPECT_EQ(checkpoint->step.value_or(4), 4);
    Account states = with_prefix(run.at("state"), "");
    std::erase_if(states, [](const auto& entry) { return entry.first.starts_with("weight/"); });
    EXPECT_EQ(account_of(checkpoint->states, *checkpoint->source), states);
    // DeepSpeed's own tool, where there is one, has all weights.
    const Account weights_of_run = run.contains("zero_to_fp32") ? with_prefix(run.at("zero_to_fp32"), "")
                                                                : with_prefix(run.at("state"), "weight/");
    EXPECT_EQ(account_of(checkpoint->weights, *checkpoint->source), weights_of_run);
}

INSTANTIATE_TEST_SUITE_P(Golden, TrainingCheckpoints,
                         ::testing::Values("zero1_bf16", "zero2", "zero2_frozen", "zero3", "zero3_frozen",
                                           "fsdp_sharded", "fsdp_full"));

TEST(ZeroCheckpoint, IsFoundByTheFolderOfTheStepToo) {
    const fs::path folder = sharded_run("zero2");
    EXPECT_TRUE(ZeroCheckpoint::is_one(folder));
    EXPECT_TRUE(ZeroCheckpoint::is_one(folder / "global_step4"));
    EXPECT_FALSE(ZeroCheckpoint::is_one(sharded_run("fsdp_full")));
    EXPECT_EQ(ZeroCheckpoint(folder / "global_step4").tensors().size(),
              ZeroCheckpoint(folder).tensors().size());
    EXPECT_EQ(home_of_checkpoint(folder / "global_step4"), folder);
    EXPECT_NE(ZeroCheckpoint(folder).optimizer().settings.find("learning rate 0.00625"), std::string::npos);
}

TEST(ZeroCheckpoint, CutsFusedExperts) {
    const ZeroCheckpoint zero(sharded_run("zero3_mixtral"));
    std::vector<std::string> names;
    for (const PlannedTensor& state : zero.states()) names.push_back(state.name);
    EXPECT_EQ(std::ranges::count(names, "exp_avg/model.layers.0.block_sparse_moe.experts.2.w3.weight"), 1);
    EXPECT_EQ(std::ranges::count(names, "exp_avg_sq/model.layers.0.block_sparse_moe.gate.weight"), 1);
}

/// A copy of a checkpoint, to be damaged.
class DamagedCheckpoint : public ::testing::Test {
  protected:
    fs::path copy(const fs::path& from) {
        fs::copy(from, folder_ / "copy", fs::copy_options::recursive);
        return folder_ / "copy";
    }
    /// A file of torch.save in which `change` was done to the entry with this end, with right checksums.
    template <class Change>
    static std::string changed(const std::string& bytes, std::string_view entry, Change&& change) {
        const StoredZip zip(bytes, "golden");
        std::vector<std::pair<std::string, std::string>> entries;
        for (const auto& [name, found] : zip.entries()) {
            entries.emplace_back(name, found.content);
            if (name.ends_with(entry)) change(entries.back().second);
        }
        return test::stored_archive(entries);
    }
    /// Makes steps that are 4 in a file 5: all of them, or the first ones.
    static void change_steps(const fs::path& file, int most = 1000) {
        const float four = 4, five = 5;
        test::write_raw(file, changed(test::read_raw(file), "", [&](std::string& content) {
                            if (content.size() != sizeof four ||
                                std::memcmp(content.data(), &four, sizeof four) != 0 || most-- <= 0)
                                return;
                            std::memcpy(content.data(), &five, sizeof five);
                        }));
    }
    static void read_all(const std::vector<PlannedTensor>& tensors, const TensorSource& source) {
        std::vector<std::byte> bytes;
        for (const PlannedTensor& tensor : tensors)
            for (const Block& block : tensor.blocks) {
                bytes.resize(static_cast<std::size_t>(block.row_count * block.column_count * 8));
                copy_block(source.view(block.item), block.row_begin, block.row_count, block.column_begin,
                           block.column_count, bytes.data(), block.column_count);
            }
    }
    static void open_nxd(const fs::path& folder) {
        const ShardedCheckpoint model(folder, {}, {}, {}, "model");
        const NxdOptimizer optimizer(folder, model);
        const NxdSettings settings{.kv_multiplier = 1, .config = std::nullopt};
        if (!fs::exists(folder / "optim/dp_rank_01_tp_rank_00_pp_rank_00.pt"))
            for (const std::string& kind : optimizer.kinds())
                read_all(optimizer.tensors(kind, settings), optimizer);
    }

    test::TemporaryFolder folder_;
};

TEST_F(DamagedCheckpoint, ZeroNamesWhatIsMissing) {
    const fs::path folder = copy(sharded_run("zero3"));
    const fs::path ranks = folder / "global_step4";
    fs::rename(ranks / "zero_pp_rank_2_mp_rank_00_optim_states.pt", folder / "kept");
    test::expect_error([&] { ZeroCheckpoint{folder}; }, {"2 ranks", "3 saved it"});
    fs::copy(folder / "kept", ranks / "zero_pp_rank_3_mp_rank_00_optim_states.pt");
    test::expect_error([&] { ZeroCheckpoint{folder}; }, {"no optimizer's file of rank 2"});
    fs::rename(ranks / "zero_pp_rank_3_mp_rank_00_optim_states.pt",
               ranks / "zero_pp_rank_2_mp_rank_01_optim_states.pt");
    test::expect_error([&] { ZeroCheckpoint{folder}; }, {"tensor or pipeline parallelism"});
    fs::rename(ranks / "zero_pp_rank_2_mp_rank_01_optim_states.pt",
               ranks / "zero_pp_rank_2_mp_rank_00_optim_states.pt");
    fs::remove(ranks / "zero_pp_rank_1_mp_rank_00_model_states.pt");
    test::expect_error([&] { ZeroCheckpoint{folder}; }, {"zero_pp_rank_1_mp_rank_00_model_states.pt"});
}

TEST_F(DamagedCheckpoint, ZeroSeesFilesOfAnotherModel) {
    const fs::path folder = copy(sharded_run("zero2"));
    const char* const second = "global_step4/zero_pp_rank_1_mp_rank_00_optim_states.pt";
    fs::copy_file(sharded_run("zero2_frozen") / second, folder / second,
                  fs::copy_options::overwrite_existing);
    test::expect_error([&] { ZeroCheckpoint{folder}; }, {"elements"});
    fs::copy_file(sharded_run("zero3") / second, folder / second, fs::copy_options::overwrite_existing);
    test::expect_error([&] { ZeroCheckpoint{folder}; }, {second});
}

TEST_F(DamagedCheckpoint, OfDifferentStepsIsRefused) {
    const fs::path zero = copy(sharded_run("zero2"));
    change_steps(zero / "global_step4/zero_pp_rank_1_mp_rank_00_optim_states.pt");
    test::expect_error([&] { ZeroCheckpoint(zero).optimizer(); },
                       {"4 updates of", "zero_pp_rank_0", "5 of", "zero_pp_rank_1", "different steps"});
    fs::remove_all(zero);
    const fs::path nxd = copy(test::golden_path("nxd_runs/zero1/step_4"));
    change_steps(nxd / "optim/dp_rank_01_tp_rank_00_pp_rank_01.pt");
    test::expect_error([&] { open_nxd(nxd); }, {"4 updates of", "5 of", "different steps"});
    fs::remove_all(nxd);
    const fs::path full = copy(sharded_run("fsdp_full"));
    change_steps(full / "optimizer.bin", 1);
    test::expect_error([&] { FullOptimizer(full / "optimizer.bin").optimizer(); },
                       {"4 of", "different steps"});
}

/// With right checksums, so that the readers see what is wrong and not the archive.
TEST_F(DamagedCheckpoint, AnyFlippedBitOfAPickleIsAnErrorOrDoesNotMatter) {
    const auto expect_readable = [&](const fs::path& from, const std::string& name, auto&& open) {
        SCOPED_TRACE(name);
        const fs::path folder = copy(from);
        const std::string whole = test::read_raw(folder / name);
        std::size_t refused = 0, bits = 0;
        for (std::size_t i = 0, size = 1; i < size; i += 11, ++bits) {
            test::write_raw(folder / name, changed(whole, "/data.pkl", [&](std::string& pickle) {
                                size = pickle.size();
                                pickle[i] = static_cast<char>(pickle[i] ^ (1 << (i / 11 % 8)));
                            }));
            refused += !test::accepts([&] { open(folder); });
        }
        EXPECT_GT(refused, bits / 4);
        EXPECT_LT(refused, bits);
        fs::remove_all(folder);
    };
    const auto open_zero = [](const fs::path& folder) {
        const ZeroCheckpoint zero(folder);
        read_all(zero.tensors(), zero);
        read_all(zero.states(), zero);
        zero.optimizer();
    };
    for (const std::string run : {"zero1_bf16", "zero3_frozen"}) {
        const bool cut = run == "zero3_frozen";
        const std::string rank = "global_step4/zero_pp_rank_0_mp_rank_00_";
        expect_readable(sharded_run(run),
                        cut ? rank + "model_states.pt" : "global_step4/mp_rank_00_model_states.pt",
                        open_zero);
        expect_readable(
            sharded_run(run),
            cut ? rank + "optim_states.pt" : "global_step4/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
            open_zero);
    }
    expect_readable(sharded_run("fsdp_full"), "optimizer.bin", [](const fs::path& folder) {
        const FullOptimizer optimizer(folder / "optimizer.bin");
        read_all(optimizer.states(), optimizer);
        optimizer.optimizer();
    });
    expect_readable(test::golden_path("nxd_runs/whole/step_4"), "optim/dp_rank_00_tp_rank_00_pp_rank_00.pt",
                    [](const fs::path& folder) { open_nxd(folder); });
}

TEST(NxdOptimizer, ListsWhatThereIsOfEveryParameter) {
    const fs::path folder = test::golden_path("nxd_runs/zero1/step_4");
    ASSERT_TRUE(NxdOptimizer::is_one(folder));
    const ShardedCheckpoint model(folder, {}, {}, {}, "model");
    const NxdOptimizer optimizer(folder, model);
    EXPECT_EQ(optimizer.kinds(), (std::vector<std::string>{"exp_avg", "exp_avg_sq", "master"}));
    EXPECT_EQ(optimizer.optimizer().updates, 4);
    EXPECT_FALSE(NxdOptimizer::is_one(test::golden_path("nxd/gqa_trn1")));
}

TEST_F(DamagedCheckpoint, NxdNamesWhatIsMissing) {
    const fs::path folder = copy(test::golden_path("nxd_runs/zero1/step_4"));
    const auto open = [&] { open_nxd(folder); };
    const fs::path last = folder / "optim/dp_rank_02_tp_rank_01_pp_rank_01.pt";
    fs::rename(last, folder / "kept");
    test::expect_error(open, {"data rank 2, tensor rank 1, pipeline rank 1"});
    // Of another stage, whose parameters are others.
    fs::copy(folder / "optim/dp_rank_02_tp_rank_01_pp_rank_00.pt", last);
    test::expect_error(open, {last.string()});
    // Of another number of data ranks.
    for (const char* const rank :
         {"tp_rank_00_pp_rank_00", "tp_rank_00_pp_rank_01", "tp_rank_01_pp_rank_00", "tp_rank_01_pp_rank_01"})
        fs::remove(folder / fmt::format("optim/dp_rank_02_{}.pt", rank));
    test::expect_error(open, {"exp_avg", "with 2 data ranks it would be"});
}

TEST(TrainingCheckpoint, WhoseSomeWeightsWereFrozenCannotBeContinued) {
    const fs::path folder = sharded_run("zero2_frozen");
    const auto checkpoint = open_training_checkpoint(folder, {});
    test::expect_error(
        [&] { plan_resumable(*checkpoint, ModelConfig::from_path(folder), 1 << 20, folder.string()); },
        {"no exp_avg of model.embed_tokens.weight", "--output_format safetensors"});
}

TEST(TrainingCheckpoint, OfAnotherModelIsRefused) {
    const auto checkpoint = open_training_checkpoint(sharded_run("zero2"), {});
    const auto plan = [&](const fs::path& config) {
        plan_resumable(*checkpoint, ModelConfig::from_path(config), 1 << 20, "input");
    };
    test::expect_error([&] { plan(sharded_run("zero3")); }, {"input"});
    test::expect_error([&] { plan(test::golden_path("hf/llama-single")); }, {"input", "the shape"});
}

TEST(CommonStep, IsOneNumber) {
    CommonStep step("input");
    test::expect_error([&] { step.value(); }, {"input", "how many updates"});
    step.add(7, "a");
    step.add(7, "b");
    EXPECT_EQ(step.value(), 7);
    test::expect_error([&] { step.add(8, "c"); }, {"7 updates of \"a\" and 8 of \"c\"", "different steps"});
    test::expect_error([&] { step.add(0.5, "d"); }, {"the step of \"d\" is 0.5"});
}

/// A conversion to a checkpoint of ours: complete with its manifest, or absent.
TEST(ConversionWriter, MakesACheckpointAppearWhole) {
    const fs::path golden = sharded_run("zero2");
    const auto checkpoint = open_training_checkpoint(golden, {});
    ConversionPlan plan = plan_resumable(*checkpoint, ModelConfig::from_path(golden), 20000, "input");
    plan.checkpoint = "checkpoint-4";
    plan.run_state = R"({"loop":null})";
    plan.texts["trainer_state.json"] = "{}";
    test::TemporaryFolder folder;
    // Interrupted after some bytes, and begun again.
    struct Interrupted {};
    EXPECT_THROW(write_conversion(plan, *checkpoint->source, folder.path(),
                                  [](std::uint64_t written, std::uint64_t) {
                                      if (written > 60000) throw Interrupted();
                                  },
                                  {.buffer_bytes = 2000, .flush_bytes = 10000}),
                 Interrupted);
    EXPECT_FALSE(fs::exists(folder / "checkpoint-4"));
    EXPECT_TRUE(fs::exists(folder / "convert.journal"));
    std::uint64_t first = 0;
    write_conversion(plan, *checkpoint->source, folder.path(),
                     [&](std::uint64_t written, std::uint64_t) { first = first == 0 ? written : first; },
                     {.buffer_bytes = 2000, .flush_bytes = 10000});
    EXPECT_GT(first, 40000u);
    EXPECT_EQ(find_damage(folder / "checkpoint-4"), std::nullopt);
    EXPECT_FALSE(fs::exists(folder / "convert.journal"));
    EXPECT_FALSE(fs::exists(folder / "convert.partial"));
    test::expect_error([&] { write_conversion(plan, *checkpoint->source, folder.path()); },
                       {"checkpoint-4 already exists"});
}

}  // namespace
}  // namespace drover
