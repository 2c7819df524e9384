#include "train/profile/profiler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/json_text.h"
#include "train/golden_run.h"
#include "train/profile/profiled_run.h"

namespace drover::test::profiler_test {
namespace {

using After = ProfilerSettings::After;
using Kind = ProfileSpan::Kind;

/// A model of tests/golden/curve and what profiles it.
struct Profiled {
    Json golden;
    GoldenRun model;
    std::vector<Batch> batches;
    TemporaryFolder folder;
    std::vector<std::string> said;
    Profiler profiler;
    ProfiledSteps steps;
    std::vector<UpdateResult> updates;

    Profiled(const std::string& name, ProfilerSettings settings)
        : golden(read_json_file(golden_path("curve/" + name + ".json"))),
          model(golden, Precision::fp32()),
          batches{batch_of_samples({0, 1}, golden.at("sample_length"), golden.at("config").at("vocab_size"))},
          profiler(
              *model.backend, single_mesh(), in(folder, std::move(settings)),
              [](CollectiveObserver*, UnderWay) {},
              [this](const std::string& line) { said.push_back(line); }) {}

    static ProfilerSettings in(const TemporaryFolder& folder, ProfilerSettings settings) {
        if (settings.folder.empty()) settings.folder = folder.path();
        return settings;
    }
    void run(int count) {
        steps.run(profiler, count, [&] { updates.push_back(model.engine->step(batches, 1e-3)); });
    }
    const ProfileLane& operations() const { return profiler.profile()->lanes.front(); }
    /// The scopes of every operation.
    std::set<std::string> places() const {
        std::set<std::string> places;
        for (const ProfileSpan& span : operations().spans)
            if (span.kind == Kind::operation) places.insert(scopes_of(operations(), span));
        return places;
    }
};

std::vector<std::int64_t> numbers(std::int64_t first, std::int64_t last) {
    std::vector<std::int64_t> list;
    for (; first <= last; ++first) list.push_back(first);
    return list;
}

/// What a profiler asks of the collectives' observation in some steps, and when it is destroyed after them.
std::vector<std::string> observed_in(int steps) {
    const auto backend = make_test_backend();
    const TemporaryFolder folder;
    std::vector<std::string> asked;
    {
        Profiler profiler(
            *backend, single_mesh(), {.steps = 2, .folder = folder.path()},
            [&](CollectiveObserver* observer, UnderWay under_way) {
                asked.push_back(observer != nullptr           ? "begin"
                                : under_way == UnderWay::left ? "leave"
                                                              : "end");
            },
            [](const std::string&) {});
        ProfiledSteps().run(profiler, steps, [] {});
    }
    return asked;
}

TEST(Profiler, WaitsForCollectivesUnlessAnErrorEndsIt) {
    EXPECT_EQ(observed_in(2), (std::vector<std::string>{}));
    EXPECT_EQ(observed_in(3), (std::vector<std::string>{"begin", "leave"}));
    EXPECT_EQ(observed_in(4), (std::vector<std::string>{"begin", "end"}));
}

TEST(Profiler, TakesThreeStepsAfterTheFirstTwo) {
    Profiled run("linear", {.steps = 3});
    run.run(7);
    EXPECT_EQ(steps_of(run.profiler), numbers(3, 5));
}

TEST(Profiler, TakesTheLastStepOfAShortRun) {
    Profiled run("linear", {.steps = 3});
    run.steps.plan.max_steps = 2;
    run.run(2);
    run.profiler.on_train_end(run.steps.view);
    EXPECT_EQ(steps_of(run.profiler), numbers(2, 2));
    EXPECT_FALSE(run.profiler.written().empty());
}

TEST(Profiler, BeginsAfterAStepOfAnEpochAndEndsWithTheTime) {
    Profiled run("linear", {.after = After{.epoch = 1, .step = 0}, .seconds = 0});
    run.steps.state.global_step = 499;
    run.steps.run(run.profiler, 1, [&] { run.model.engine->step(run.batches, 1e-3); });
    EXPECT_EQ(run.steps.state.global_step, 500);
    run.run(3);  // a new epoch
    EXPECT_EQ(steps_of(run.profiler), numbers(502, 502));
}

/// A run that was resumed within an epoch counts the epoch's steps, as a run that was not stopped.
TEST(Profiler, CountsTheStepsOfAnEpochThatWasResumed) {
    Profiled run("linear", {.after = After{.epoch = 0, .step = 12}, .steps = 2});
    run.steps.state.global_step = 10;
    run.run(6);
    EXPECT_EQ(steps_of(run.profiler), numbers(14, 15));
}

TEST(Profiler, SaysThatItNeverBegan) {
    Profiled run("linear", {.after = After{.epoch = 0, .step = 5}});
    run.run(3);
    run.profiler.on_train_end(run.steps.view);
    EXPECT_TRUE(run.profiler.written().empty());
    ASSERT_EQ(run.said.size(), 1u);
    EXPECT_EQ(run.said[0], "Nothing was profiled: training ended before step 5 of epoch 0.");
}

TEST(Profiler, SaysThatARunEndedTooEarly) {
    Profiled run("linear", {.steps = 3});
    run.run(2);  // of 1500: it was stopped
    run.profiler.on_train_end(run.steps.view);
    ASSERT_EQ(run.said.size(), 1u);
    EXPECT_EQ(run.said[0], "Nothing was profiled: training ended within its first steps.");
}

TEST(Profiler, ChangesNoNumber) {
    Profiled with("linear", {.steps = 2}), without("linear", {.after = After{.step = 100}});
    with.run(5);
    without.run(5);
    for (std::size_t i = 0; i < with.updates.size(); ++i) {
        EXPECT_EQ(with.updates[i].loss, without.updates[i].loss) << i;
        EXPECT_EQ(with.updates[i].gradient_norm, without.updates[i].gradient_norm) << i;
    }
    EXPECT_EQ(steps_of(with.profiler), numbers(3, 4));
}

TEST(Profiler, EveryOperationIsInTheScopesOfItsLayer) {
    Profiled run("linear", {.steps = 2});
    run.run(4);
    for (const ProfileLane& lane : run.profiler.profile()->lanes) expect_nested(lane);
    const std::set<std::string> places = run.places();
    for (const char* layer : {"DecoderLayer 0", "DecoderLayer 1"})
        for (const char* direction : {"forward 0/Model/", "backward 0/Model/"})
            for (const char* module :
                 {"/RMSNorm", "/Attention", "/Attention/rotary_emb/RotaryEmbedding", "/MLP"})
                EXPECT_TRUE(places.contains(std::string(direction) + layer + module))
                    << direction << layer << module;
    const std::set<std::string> others = {"loss",
                                          "gradient norm",
                                          "optimizer",
                                          "forward 0/Model/Embedding",
                                          "backward 0/Model/Embedding",
                                          "backward 0/Model/LmHead",
                                          "backward 0/Model/LmHead/RMSNorm"};
    for (const std::string& place : places)
        EXPECT_TRUE(place.find("/DecoderLayer ") != std::string::npos || others.contains(place))
            << "an operation in \"" << place << "\"";
    for (const std::string& place : others) EXPECT_TRUE(places.contains(place)) << place;

    // The same operations in both steps.
    std::map<std::string, int> counts[2];
    const auto& steps = run.profiler.profile()->steps;
    for (const ProfileSpan& span : run.operations().spans)
        if (span.kind == Kind::operation)
            ++counts[span.begin >= steps[1].begin ? 1 : 0]
                    [scopes_of(run.operations(), span) + '/' + span.name];
    EXPECT_EQ(counts[0], counts[1]);
    EXPECT_EQ(counts[0].at("forward 0/Model/DecoderLayer 1/MLP/gemm forward"), 2);
    EXPECT_EQ(counts[0].at("backward 0/Model/DecoderLayer 1/MLP/gemm data gradient"), 2);
    EXPECT_EQ(counts[0].at("backward 0/Model/DecoderLayer 1/MLP/gemm weight gradient"), 2);
}

TEST(Profiler, NamesTheScopesOfExperts) {
    Profiled run("mixtral_adamw", {.steps = 1});
    run.run(3);
    const std::set<std::string> places = run.places();
    const std::string block = "/DecoderLayer 0/MixtralSparseMoeBlock";
    for (const char* place : {"", "/MixtralGmmTop2MLP", "/MixtralGmmTop2MLP/gmm_forward"})
        EXPECT_TRUE(places.contains("forward 0/Model" + block + place)) << place;
    for (const char* place : {"", "/MixtralGmmTop2MLP", "/MixtralGmmTop2MLP/gmm_backward"})
        EXPECT_TRUE(places.contains("backward 0/Model" + block + place)) << place;
}

TEST(Profiler, WritesATraceForViewers) {
    Profiled run("linear", {.steps = 1});
    run.run(3);
    ASSERT_TRUE(run.profiler.written().string().ends_with(".trace.json.gz"));
    const Json trace = parse_json(unzipped(run.profiler.written()), "trace");
    std::map<int, std::string> lanes;
    double step_begin = -1, step_end = -1;
    std::size_t operations = 0;
    std::map<int, std::vector<std::int64_t>> around;  // ends of the spans around the next one, in nanoseconds
    for (const Json& event : trace.at("traceEvents")) {
        if (event.at("ph") == "M" && event.at("name") == "thread_name")
            lanes[event.at("tid")] = event.at("args").at("name");
        if (event.at("ph") != "X") continue;
        EXPECT_EQ(event.at("pid"), 0);
        EXPECT_GE(event.at("dur").get<double>(), 0);
        const double begin = event.at("ts"), end = begin + event.at("dur").get<double>();
        const std::int64_t begin_ns = std::llround(begin * 1e3), end_ns = std::llround(end * 1e3);
        std::vector<std::int64_t>& open = around[event.at("tid")];
        while (!open.empty() && open.back() <= begin_ns) open.pop_back();
        EXPECT_TRUE(open.empty() || end_ns <= open.back()) << event.dump();
        open.push_back(end_ns);
        if (event.at("name") == "step 3") {
            step_begin = begin;
            step_end = end;
        } else if (event.at("cat") == "operation") {
            ++operations;
            EXPECT_EQ(lanes.at(event.at("tid")), tests_use_cuda() ? "main stream" : "operations");
            constexpr double rounding = 0.002;  // of what is written
            EXPECT_GE(begin, step_begin - rounding);
            EXPECT_LE(end, step_end + rounding);
        }
    }
    const auto& spans = run.operations().spans;
    EXPECT_EQ(operations,
              static_cast<std::size_t>(std::count_if(spans.begin(), spans.end(), [](const ProfileSpan& span) {
                  return span.kind == Kind::operation;
              })));
    EXPECT_GT(operations, 50u);
}

TEST(Profiler, ContinuesWhereItCannotWrite) {
    Profiled run("linear", {.steps = 1, .folder = "/proc/drover-profile"});
    testing::internal::CaptureStderr();
    run.profiler.on_train_begin(run.steps.view);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "The profile could not be written to /proc/drover-profile: No such file or directory. The run "
              "continues. Give another --profile_logdir.\n");
    testing::internal::CaptureStderr();
    run.run(5);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "it was said before";
    EXPECT_EQ(steps_of(run.profiler), numbers(3, 3));
    EXPECT_TRUE(run.profiler.written().empty());
    EXPECT_EQ(run.updates.size(), 5u);
}

TEST(Profiler, SumsUpForTheLog) {
    Profiled run("linear", {.steps = 2});
    run.run(4);
    ASSERT_EQ(run.said.size(), 1u);
    const std::string& text = run.said[0];
    EXPECT_TRUE(text.starts_with("Profile of 2 steps of rank 0, ")) << text;
    for (const char* part :
         {"gemm forward, float32", "      DecoderLayer ", "Of 2 layers, DecoderLayer ", "Waiting for data: "})
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

}  // namespace
}  // namespace drover::test::profiler_test
