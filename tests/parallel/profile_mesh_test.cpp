#include <gtest/gtest.h>
#include <omp.h>

#include <map>
#include <mutex>
#include <set>

#include "core/json_text.h"
#include "core/machine_identity.h"
#include "model/block_shape.h"
#include "parallel/threads_run.h"
#include "support/golden.h"
#include "train/engine/communication_plan.h"
#include "train/engine/train_engine.h"
#include "train/profile/profiled_run.h"

namespace drover {
namespace {

namespace fs = std::filesystem;
using Kind = ProfileSpan::Kind;

/// Bytes by the names of collectives: "all_gather data".
using Traffic = std::map<std::string, double>;

struct Ranks {
    std::vector<RankProfile> profiles;
    std::vector<Traffic> planned;
    fs::path written;
};

struct Case {
    MeshShape shape;
    Sharding sharding = Sharding::replicated;
    int micro_batches = 2;
    Recompute recompute = Recompute::none;
};

/// Trains on ranks that are threads, and profiles the third and the fourth step.
Ranks profiled(const test::MeshModel& model, const Case& mesh_case, const fs::path& folder) {
    const auto count = static_cast<std::size_t>(mesh_case.shape.ranks());
    Ranks ranks{
        .profiles = std::vector<RankProfile>(count), .planned = std::vector<Traffic>(count), .written = {}};
    std::mutex guard;
    run_as_threads(mesh_case.shape.ranks(), {}, [&](World& world) {
        omp_set_num_threads(1);
        const Mesh mesh(world, mesh_case.shape, key_value_copies(model.config, mesh_case.shape.tp));
        const auto backend = make_cpu_backend();
        TrainEngineOptions options{.model = {.precision = Precision::fp32(),
                                             .recompute = {mesh_case.recompute},
                                             .rows = 2,
                                             .row_length = 8},
                                   .sharding = mesh_case.sharding};
        options.pipeline.micro_batches = mesh_case.micro_batches;
        Traffic planned;
        for (const PlannedCollective& part :
             plan_communication(model.config, options, mesh, Device::cpu, mesh_case.micro_batches))
            planned[fmt::format("{} {}", name_of(part.kind), part.axis)] += static_cast<double>(part.bytes);
        TrainEngine engine(model.config, options, *backend, mesh);
        engine.allocate();
        engine.initialize_weights(1);
        Profiler profiler(
            *backend, mesh, {.steps = 2, .folder = folder},
            [&](CollectiveObserver* observer, UnderWay) { world.observe(observer); },
            [](const std::string&) {});
        test::ProfiledSteps steps;
        const std::vector<Batch> batches(
            static_cast<std::size_t>(mesh_case.micro_batches),
            Batch::full_rows(2, 8, std::vector<std::int32_t>(16, 3), std::vector<std::int32_t>(16, 3)));
        steps.run(profiler, 5, [&] { engine.step(batches, 1e-3); });
        const std::lock_guard lock(guard);
        const auto rank = static_cast<std::size_t>(mesh.rank());
        ranks.profiles[rank] = *profiler.profile();
        ranks.planned[rank] = planned;
        if (mesh.rank() == 0) ranks.written = profiler.written();
    });
    return ranks;
}

Traffic sent_in_step(const RankProfile& profile, const ProfileStep& step) {
    Traffic sent;
    for (const ProfileLane& lane : profile.lanes)
        for (const ProfileSpan& span : lane.spans)
            if (span.kind == Kind::collective && span.begin >= step.begin && span.end <= step.end)
                sent[span.name] += span.bytes;
    return sent;
}

TEST(ProfileOnAMesh, CollectivesSendWhatWasPlanned) {
    const test::MeshModel model = test::mesh_models()[1];
    for (const Case& mesh_case : {Case{{.data = 2, .tp = 2}, Sharding::zero3}, Case{{.pp = 2}},
                                  Case{{.dcn = 2, .data = 2}, Sharding::zero1}}) {
        const test::TemporaryFolder folder;
        const Ranks ranks = profiled(model, mesh_case, folder.path());
        for (std::size_t rank = 0; rank < ranks.profiles.size(); ++rank) {
            const RankProfile& profile = ranks.profiles[rank];
            ASSERT_EQ(profile.steps.size(), 2u);
            for (const ProfileLane& lane : profile.lanes) test::expect_nested(lane);
            ASSERT_FALSE(ranks.planned[rank].empty());
            for (const ProfileStep& step : profile.steps) {
                Traffic sent = sent_in_step(profile, step);
                for (const auto& [name, bytes] : ranks.planned[rank])
                    EXPECT_EQ(sent[name], bytes) << "rank " << rank << ", " << name;
                for (const auto& [name, bytes] : sent)
                    EXPECT_TRUE(bytes == 0 || ranks.planned[rank].contains(name))
                        << name << " was not planned, and sent " << bytes;
            }
        }
    }
}

/// No rank is done with a sum before every rank has begun it.
TEST(ProfileOnAMesh, RanksAreOnOneClock) {
    const test::TemporaryFolder folder;
    const Ranks ranks =
        profiled(test::mesh_models()[1], {.shape = {.data = 3}, .sharding = Sharding::zero3}, folder.path());
    // The clocks are compared by messages, which take a while on a busy machine.
    double clock_errors = 0;
    for (const RankProfile& profile : ranks.profiles) clock_errors += profile.clock_error;
    EXPECT_EQ(ranks.profiles[0].clock_error, 0);
    EXPECT_GT(clock_errors, 0);
    std::map<std::string, std::vector<std::pair<double, double>>> sums;  // latest begin, first end
    for (const RankProfile& profile : ranks.profiles) {
        std::map<std::string, std::size_t> number;
        for (const ProfileLane& lane : profile.lanes)
            for (const ProfileSpan& span : lane.spans) {
                if (!span.name.starts_with("all_reduce") || span.begin < profile.steps[0].begin) continue;
                auto& all = sums[span.name];
                const std::size_t place = number[span.name]++;
                if (place == all.size()) all.emplace_back(0, 1e9);
                all[place].first = std::max(all[place].first, span.begin);
                all[place].second = std::min(all[place].second, span.end);
            }
    }
    ASSERT_FALSE(sums.empty());
    for (const auto& [name, all] : sums)
        for (const auto& [latest_begin, first_end] : all)
            EXPECT_LE(latest_begin, first_end + clock_errors) << name;
}

TEST(ProfileOnAMesh, EachRankShowsItsLayersAndWhatIsComputedAgain) {
    const test::TemporaryFolder folder;
    const test::MeshModel model = test::pipeline_models(4)[0];
    const Ranks ranks = profiled(
        model, {.shape = {.pp = 2}, .micro_batches = 2, .recompute = Recompute::full}, folder.path());
    for (int rank = 0; rank < 2; ++rank) {
        const ProfileLane& operations = ranks.profiles[static_cast<std::size_t>(rank)].lanes.front();
        std::set<std::string> places;
        for (const ProfileSpan& span : operations.spans)
            if (span.kind == Kind::operation) places.insert(scopes_of(operations, span));
        for (int layer = 0; layer < 4; ++layer)
            for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
                for (const char* place : {"forward {}/Model/DecoderLayer {}/Attention",
                                          "backward {}/Model/DecoderLayer {}/Attention",
                                          "backward {}/Model/DecoderLayer {}/recompute/Attention"}) {
                    const std::string name = fmt::format(fmt::runtime(place), micro_batch, layer);
                    EXPECT_EQ(places.contains(name), layer / 2 == rank) << name << " on rank " << rank;
                }
    }
}

TEST(ProfileOnAMesh, WritesAFilePerRankAndOneOfAll) {
    const test::TemporaryFolder folder;
    const Ranks ranks =
        profiled(test::mesh_models()[0], {.shape = {.data = 3}, .sharding = Sharding::zero3}, folder.path());
    ASSERT_EQ(ranks.written.filename(), "all_ranks.json.gz");
    std::set<std::string> files;
    for (const auto& entry : fs::directory_iterator(ranks.written.parent_path()))
        files.insert(entry.path().filename().string());
    std::set<std::string> expected = {"all_ranks.json.gz"};
    for (const char* rank : {"-rank0", "-rank1", "-rank2"})
        for (const char* kind : {".xplane.pb", ".trace.json.gz"}) expected.insert(host_name() + rank + kind);
    EXPECT_EQ(files, expected);

    // The file of all ranks holds what theirs do.
    std::map<int, std::size_t> all, each;
    const auto count = [](const fs::path& file, std::map<int, std::size_t>& events) {
        const Json trace = parse_json(test::unzipped(file), file.string());
        for (const Json& event : trace.at("traceEvents")) ++events[event.at("pid")];
    };
    count(ranks.written, all);
    for (const std::string& name : files)
        if (name.ends_with(".trace.json.gz")) count(ranks.written.parent_path() / name, each);
    EXPECT_EQ(all, each);
    EXPECT_EQ(all.size(), 3u);
}

}  // namespace
}  // namespace drover
