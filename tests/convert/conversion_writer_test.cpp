#include "convert/conversion_writer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "convert/checkpoints.h"
#include "convert/dcp_checkpoint.h"
#include "convert/meta_checkpoint.h"
#include "io/raw_files.h"
#include "support/errors.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using test::content_of_model;
using test::NxdCase;
using test::TemporaryFolder;

struct Interrupted {};

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
        names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

TEST(ConversionWriter, SmallBuffersAndOtherTypesGiveTheSameElements) {
    const FullCheckpoint model(test::golden_path("hf/llama-sharded-bin"), {});
    TemporaryFolder folder;
    for (const ModelFormat format : {ModelFormat::safetensors, ModelFormat::bin, ModelFormat::checkpoint})
        for (const std::uint64_t buffer : {1, 100, 1 << 20})
            for (const std::uint64_t shard : {1000, 1 << 20}) {
                const auto to = folder / fmt::format("{}-{}-{}", static_cast<int>(format), buffer, shard);
                const auto path = format == ModelFormat::checkpoint ? to / "checkpoint.pt" : to;
                // To float32 and back is exact.
                write_conversion(plan_model(whole_model(model, DType::f32), format, shard), model, to, {},
                                 {.buffer_bytes = buffer, .flush_bytes = 3000});
                const FullCheckpoint wide(path, {});
                EXPECT_EQ(wide.items()[0].dtype, DType::f32);
                write_conversion(plan_model(whole_model(wide, DType::bf16), format, shard), wide, to / "back",
                                 {}, {.buffer_bytes = buffer, .flush_bytes = 3000});
                EXPECT_EQ(content_of_model(format == ModelFormat::checkpoint ? to / "back/checkpoint.pt"
                                                                             : to / "back"),
                          content_of_model(test::golden_path("hf/llama-sharded")));
                EXPECT_EQ(ModelWeights(path).files().size() > 1,
                          shard == 1000 && format != ModelFormat::checkpoint);
            }
}

TEST(ConversionWriter, ShardsAsTransformersDoes) {
    const auto golden = test::golden_path("hf/llama-sharded");
    const FullCheckpoint model(golden, {});
    TemporaryFolder folder;
    write_conversion(plan_model(whole_model(model, {}), ModelFormat::safetensors, 12'000), model,
                     folder.path());
    for (const std::string& name : names_in(folder.path()))
        EXPECT_TRUE(test::read_raw(folder / name) == test::read_raw(golden / name)) << name;
    EXPECT_EQ(names_in(folder.path()).size(), 5u);
}

TEST(ConversionWriter, AnInterruptedConversionGoesOnWhereItWas) {
    const NxdCase golden("gqa_trn1");
    const FullCheckpoint model(golden.full(), {});
    const ConversionLimits limits{.buffer_bytes = 64, .flush_bytes = 1000};
    for (const bool xser : {false, true}) {
        NxdSettings settings = golden.settings;
        settings.xser = xser;
        const ConversionPlan plan = plan_shards_of_model(model, settings);
        TemporaryFolder whole, folder;
        write_conversion(plan, model, whole.path(), {}, limits);
        std::uint64_t written = 0, first = 0, again = 0;
        const auto total = plan.bytes();
        for (std::uint64_t stop = total / 5; stop < total; stop += total / 5) {
            first = 0;
            EXPECT_THROW(write_conversion(
                             plan, model, folder.path(),
                             [&](std::uint64_t now, std::uint64_t all) {
                                 EXPECT_EQ(all, total);
                                 if (first == 0) first = now;
                                 if (now > stop) throw Interrupted();
                                 written = now;
                             },
                             limits),
                         Interrupted);
            EXPECT_GT(first, again);  // it did not begin anew
            again = first;
            EXPECT_EQ(names_in(folder.path()),
                      (std::vector<std::string>{"convert.journal", "convert.partial"}));
        }
        write_conversion(plan, model, folder.path(), {}, limits);
        EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"model"});
        std::size_t files = 0;
        for (const auto& entry : fs::recursive_directory_iterator(whole.path())) {
            if (!entry.is_regular_file()) continue;
            ++files;
            const auto name = fs::relative(entry.path(), whole.path());
            EXPECT_TRUE(test::read_raw(folder.path() / name) == test::read_raw(entry.path())) << name;
        }
        EXPECT_EQ(files, plan.files.size());
    }
}

TEST(ConversionWriter, AKilledConversionGoesOn) {
    const NxdCase golden("mixtral");
    const FullCheckpoint model(golden.full(), {});
    const ConversionPlan plan = plan_shards_of_model(model, golden.settings);
    TemporaryFolder folder;
    const ConversionLimits limits{.buffer_bytes = 100, .flush_bytes = 500};
    for (int part = 1; part < 8; ++part) {
        const pid_t child = fork();
        if (child == 0) {
            write_conversion(
                plan, model, folder.path(),
                [&](std::uint64_t now, std::uint64_t all) {
                    if (now > all * static_cast<std::uint64_t>(part) / 8) raise(SIGKILL);
                },
                limits);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        EXPECT_TRUE(WIFSIGNALED(status)) << part;
        EXPECT_FALSE(fs::exists(folder / "model"));
    }
    write_conversion(plan, model, folder.path(), {}, limits);
    const ShardedCheckpoint found = test::open_shards(folder.path()),
                            expected = test::open_shards(golden.folder);
    for (std::int64_t rank = 0; rank < 2; ++rank)
        EXPECT_EQ(test::content_of_rank(found, {.tensor = rank, .pipeline = 1, .experts = rank}),
                  test::content_of_rank(expected, {.tensor = rank, .pipeline = 1, .experts = rank}));
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"model"});
}

TEST(ConversionWriter, BeginsAnewWhenPartOfItIsGone) {
    const FullCheckpoint model(test::golden_path("hf/llama-sharded"), {});
    const ConversionPlan plan = plan_model(whole_model(model, {}), ModelFormat::safetensors, 12'000);
    TemporaryFolder folder;
    const auto run = [&](std::uint64_t stop) {
        std::uint64_t first = 0;
        try {
            write_conversion(plan, model, folder.path(),
                             [&](std::uint64_t now, std::uint64_t) {
                                 if (first == 0) first = now;
                                 if (now > stop) throw Interrupted();
                             },
                             {.buffer_bytes = 64, .flush_bytes = 100});
        } catch (const Interrupted&) {
        }
        return first;
    };
    run(30'000);
    EXPECT_GT(run(30'000), 25'000u);
    fs::remove(folder / "convert.partial/model-00001-of-00004.safetensors");
    EXPECT_LE(run(30'000), 64u);
    test::write_raw(folder / "convert.journal", "{\"plan\": 3}");
    EXPECT_LE(run(1 << 20), 64u);
    EXPECT_EQ(content_of_model(folder.path()), content_of_model(test::golden_path("hf/llama-sharded")));
}

TEST(ConversionWriter, AnotherConversionBeginsAnew) {
    const FullCheckpoint model(test::golden_path("hf/llama-single"), {});
    TemporaryFolder folder;
    const ConversionLimits limits{.buffer_bytes = 64, .flush_bytes = 100};
    const auto run = [&](std::optional<DType> dtype, std::uint64_t stop) {
        std::uint64_t first = 0;
        try {
            write_conversion(
                plan_model(whole_model(model, dtype), ModelFormat::checkpoint, 0), model, folder.path(),
                [&](std::uint64_t now, std::uint64_t) {
                    if (first == 0) first = now;
                    if (now > stop) throw Interrupted();
                },
                limits);
        } catch (const Interrupted&) {
        }
        return first;
    };
    const std::uint64_t start = run({}, 30'000);
    EXPECT_GT(run({}, 30'000), 25'000u);
    EXPECT_LE(run(DType::bf16, 1'000'000), start);
    EXPECT_EQ(FullCheckpoint(folder / "checkpoint.pt", {}).items()[0].dtype, DType::bf16);
}

TEST(ConversionWriter, NeverReplacesWhatIsThere) {
    const FullCheckpoint model(test::golden_path("hf/llama-single"), {});
    TemporaryFolder folder;
    test::write_raw(folder / "model.safetensors", "mine");
    const auto write = [&](ModelFormat format) {
        write_conversion(plan_model(whole_model(model, {}), format, 1 << 20), model, folder.path());
    };
    test::expect_error([&] { write(ModelFormat::safetensors); },
                       {(folder / "model.safetensors").string(), "already exists", "--output_dir"});
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"model.safetensors"});
    write(ModelFormat::bin);
    EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"model.safetensors", "pytorch_model.bin"}));
}

TEST(ConversionWriter, KeepsASecondConversionOutOfTheFolder) {
    const FullCheckpoint model(test::golden_path("hf/llama-single"), {});
    const ConversionPlan plan = plan_model(whole_model(model, {}), ModelFormat::bin, 1 << 20);
    TemporaryFolder folder;
    bool was_refused = false;
    write_conversion(plan, model, folder.path(), [&](std::uint64_t, std::uint64_t) {
        if (was_refused) return;
        test::expect_error([&] { write_conversion(plan, model, folder.path()); },
                           {"Another process is converting into", folder.path().string(), "--output_dir"});
        was_refused = true;
    });
    EXPECT_TRUE(was_refused);
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"pytorch_model.bin"});
    // What a process that ended left behind keeps nothing out.
    fs::create_directory(folder / "again");
    test::write_raw(folder / "again/convert.lock", "");
    write_conversion(plan, model, folder / "again");
    EXPECT_EQ(names_in(folder / "again"), std::vector<std::string>{"pytorch_model.bin"});
}

/// Changes one bit of these elements of a tensor in a file.
void damage_elements(const fs::path& file, const std::string& elements) {
    std::string bytes = test::read_raw(file);
    const auto at = bytes.find(elements);
    ASSERT_NE(at, std::string::npos) << file;
    bytes[at + elements.size() / 2] ^= 1;
    fs::permissions(file, fs::perms::owner_write, fs::perm_options::add);
    test::write_raw(file, bytes);
}

std::string elements_of(const TensorSource& source, std::size_t item) {
    const StridedTensor view = source.view(item);
    return {reinterpret_cast<const char*>(view.data),
            static_cast<std::size_t>(view.rows() * view.columns() * (bits_of(view.dtype) / 8))};
}

TEST(ConversionWriter, FindsDamagedElementsByTheirChecksum) {
    TemporaryFolder folder;
    const auto expect_found = [&](const TensorSource& source, const ConversionPlan& plan,
                                  const std::string& name) {
        SCOPED_TRACE(name);
        test::expect_error([&] { write_conversion(plan, source, folder / "out"); },
                           {name, "is damaged: the checksum of its entry"});
        for (const std::string& made : names_in(folder / "out"))
            EXPECT_TRUE(made.starts_with("convert.")) << made;
        fs::remove_all(folder / "out");
    };
    const auto whole = [](std::vector<PlannedTensor> tensors) {
        return plan_model(std::move(tensors), ModelFormat::checkpoint, 0);
    };
    const auto copied = [&](const char* golden) {
        fs::copy(test::golden_path(golden), folder / golden, fs::copy_options::recursive);
        return folder / golden;
    };
    fs::create_directories(folder / "hf");
    fs::create_directories(folder / "nxd");
    fs::create_directories(folder / "meta");
    fs::create_directories(folder / "dcp");
    {
        const FullCheckpoint model(copied("hf/llama-sharded-bin"), {});
        damage_elements(folder / "hf/llama-sharded-bin/pytorch_model-00001-of-00002.bin",
                        elements_of(model, 3));
        expect_found(model, whole(whole_model(model, {})), "pytorch_model-00001-of-00002.bin");
    }
    for (const char* name : {"gqa_padded_trn1", "gqa_trn1_fused"}) {  // one of them with a file per tensor
        const std::string golden = fmt::format("nxd/{}", name);
        const ShardedCheckpoint shards = test::open_shards(copied(golden.c_str()));
        for (std::size_t i = 0; i < shards.items().size(); ++i)
            if (shards.items()[i].name == "model.layers.0.mlp.down_proj.weight") {
                const std::string elements = elements_of(shards, i);
                shards.forget();
                for (const fs::path& file : shards.files())
                    if (test::read_raw(file).find(elements) != std::string::npos) {
                        damage_elements(file, elements);
                        break;
                    }
                break;
            }
        expect_found(shards, plan_same_shards(shards, {}), shards.is_xser() ? "tensor_" : "tp_rank_00");
    }
    {
        const MetaCheckpoint meta(copied("meta/llama2"));
        damage_elements(folder / "meta/llama2/consolidated.00.pth", elements_of(meta, 2));
        expect_found(meta, whole(meta.tensors()), "consolidated.00.pth");
    }
    {
        const DcpCheckpoint chunks(copied("dcp/fsdp"), "model");
        const std::string elements = elements_of(chunks, 4);
        chunks.forget();
        for (const fs::path& file : chunks.files())
            if (test::read_raw(file).find(elements) != std::string::npos) damage_elements(file, elements);
        expect_found(chunks, whole(chunks.tensors()), ".distcp");
    }
}

TEST(ConversionWriter, MemoryDoesNotGrowWithTheModel) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer's own memory counts";
#endif
    // A model of 96 MiB (16 tensors of 6 MiB), with a buffer of 1 MiB. A child process converts it to ranks
    // with transposed parts and back, and its peak is compared with that of one that only opens the files.
    TemporaryFolder folder;
    constexpr std::int64_t inner = 1024, hidden = 1536;
    {
        std::vector<std::uint16_t> elements(static_cast<std::size_t>(inner * hidden));
        for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<std::uint16_t>(i * 31);
        const Tensor wide(elements.data(), DType::bf16, {inner, hidden}),
            tall(elements.data(), DType::bf16, {hidden, inner});
        std::map<std::string, Tensor> tensors{{"model.embed_tokens.weight", wide}};
        for (int e = 0; e < 10; ++e)
            for (const char* part : {"w1", "w2", "w3"})
                tensors[fmt::format("model.layers.0.block_sparse_moe.experts.{}.{}.weight", e, part)] =
                    std::string_view(part) == "w2" ? tall : wide;
        write_safetensors(folder / "model.safetensors", tensors);
    }
    ASSERT_GT(fs::file_size(folder / "model.safetensors"), 90u << 20);
    const ConversionLimits limits{.buffer_bytes = 1 << 20, .flush_bytes = 8 << 20};
    const auto peak_of = [&](auto&& work) {
        const pid_t child = fork();
        if (child == 0) {
            work();
            _exit(0);
        }
        int status = 0;
        rusage usage{};
        wait4(child, &status, 0, &usage);
        EXPECT_EQ(status, 0);
        return usage.ru_maxrss >> 10;
    };
    const auto to_ranks = [&](bool write) {
        const FullCheckpoint model(folder / "model.safetensors", {});
        const ConversionPlan plan = plan_shards_of_model(model, {.sizes = {.tensor = 2}});
        if (write) write_conversion(plan, model, folder / "ranks", {}, limits);
    };
    const auto to_full = [&](bool write) {
        const ShardedCheckpoint ranks = test::open_shards(folder / "ranks");
        const ConversionPlan plan =
            plan_model(model_of_shards(ranks, {}), ModelFormat::checkpoint, std::uint64_t{1} << 40);
        if (write) write_conversion(plan, ranks, folder / "full", {}, limits);
    };
    const long opened = peak_of([&] { to_ranks(false); });
    EXPECT_LT(peak_of([&] { to_ranks(true); }), opened + 32);
    EXPECT_LT(peak_of([&] { to_full(true); }), opened + 32);
    EXPECT_EQ(content_of_model(folder / "full/checkpoint.pt"),
              content_of_model(folder / "model.safetensors"));
}

TEST(ConversionPlanOrder, IsThatOfAModelsModules) {
    const FullCheckpoint model(test::golden_path("generate/mixtral"), {});
    EXPECT_EQ(model.items().front().name, "model.embed_tokens.weight");
    EXPECT_EQ(model.items().back().name, "lm_head.weight");
    EXPECT_EQ(layer_of("model.layers.12.mlp.down_proj.weight"), 12);
    EXPECT_EQ(layer_of("model.norm.weight"), -1);
    EXPECT_EQ(layer_of("model.relayers.3.x"), -1);
    EXPECT_TRUE(comes_before("model.layers.9.mlp.up_proj.weight", "model.layers.10.self_attn.q_proj.weight"));
    EXPECT_TRUE(comes_before("model.layers.1.block_sparse_moe.experts.2.w1.weight",
                             "model.layers.1.block_sparse_moe.experts.10.w1.weight"));
    test::expect_error(
        [] {
            count_layers({"model.layers.0.a", "model.layers.2.a"}, "The model");
        },
        {"The model has no layer 1", "layer 2"});
}

}  // namespace
}  // namespace drover
