#include "train/profile/profile_data.h"

#include <gtest/gtest.h>

#include "train/profile/profile_summary.h"
#include "train/profile/profiled_run.h"
#include "train/profile/xplane.h"

namespace drover {
namespace {

using Kind = ProfileSpan::Kind;

std::vector<std::string> names(const ProfileLane& lane) {
    std::vector<std::string> list;
    for (const ProfileSpan& span : lane.spans) list.push_back(span.name);
    return list;
}

TEST(SeparateOverlaps, KeepsWhatIsNestedTogether) {
    const std::vector<ProfileLane> lanes =
        separate_overlaps({.name = "messages",
                           .spans = {{.name = "c", .begin = 2, .end = 5},
                                     {.name = "inner", .begin = 1, .end = 2},
                                     {.name = "outer", .begin = 1, .end = 3},
                                     {.name = "d", .begin = 3, .end = 4}}});
    ASSERT_EQ(lanes.size(), 2u);
    EXPECT_EQ(lanes[0].name, "messages");
    EXPECT_EQ(names(lanes[0]), (std::vector<std::string>{"outer", "inner", "d"}));
    EXPECT_EQ(lanes[1].name, "messages (2)");
    EXPECT_EQ(names(lanes[1]), (std::vector<std::string>{"c"}));
    for (const ProfileLane& lane : lanes) test::expect_nested(lane);
}

/// Two steps of 10 seconds; what lies between them counts nowhere.
RankProfile example() {
    return {
        .rank = 3,
        .machine = "node",
        .steps = {{.number = 7, .begin = 0, .end = 10}, {.number = 8, .begin = 20, .end = 30}},
        .lanes = {
            {.name = "operations",
             .spans =
                 {{.name = "forward 0", .kind = Kind::scope, .begin = 0, .end = 4},
                  {.name = "DecoderLayer 1", .kind = Kind::scope, .begin = 1, .end = 4, .parent = 0},
                  {.name = "norm", .kind = Kind::operation, .begin = 1, .end = 3, .parent = 1, .bytes = 4e9},
                  {.name = "norm", .kind = Kind::operation, .begin = 12, .end = 13}}},
            {.name = "collectives data",
             .spans = {{.name = "all_gather data", .kind = Kind::collective, .begin = 2, .end = 6},
                       {.name = "all_gather data", .kind = Kind::collective, .begin = 11, .end = 19},
                       {.name = "all_gather data", .kind = Kind::collective, .begin = 21, .end = 22}}},
            {.name = "main thread", .spans = {{.name = "wait for data", .begin = 20, .end = 21}}}}};
}

TEST(StepOf, IsTheStepInWhichASpanBegins) {
    const RankProfile profile = example();
    const auto step_at = [&](double begin) { return step_of(profile, {.begin = begin, .end = 99}); };
    EXPECT_EQ(step_at(-1), -1);
    EXPECT_EQ(step_at(0), 0);
    EXPECT_EQ(step_at(9.5), 0);
    EXPECT_EQ(step_at(10), -1) << "where the step ends";
    EXPECT_EQ(step_at(15), -1);
    EXPECT_EQ(step_at(20), 1);
    EXPECT_EQ(step_at(30), -1);
    EXPECT_EQ(step_of({}, {.begin = 1}), -1) << "without steps";
}

TEST(ProfileSummary, CommunicationIsExposedWhereNothingIsComputed) {
    const ProfileWaits waits = waits_of(example());
    EXPECT_DOUBLE_EQ(waits.step, 10);
    EXPECT_DOUBLE_EQ(waits.collectives, 2.5);  // 4 and 1 in two steps
    EXPECT_DOUBLE_EQ(waits.exposed, 2);        // of them 1 behind the norm
    EXPECT_DOUBLE_EQ(waits.data, 0.5);
    const std::string text = profile_summary(example());
    EXPECT_NE(text.find("\n  norm                                                0.5   1000.000     10.0"
                        "                 2.0\n"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("of which 2000.000 ms (20.0 % of the step)"), std::string::npos) << text;
}

TEST(ScopesOf, AreTheNamesFromTheOutside) {
    const RankProfile profile = example();
    EXPECT_EQ(scopes_of(profile.lanes[0], profile.lanes[0].spans[2]), "forward 0/DecoderLayer 1");
    EXPECT_EQ(scopes_of(profile.lanes[0], profile.lanes[0].spans[0]), "");
}

/// The fields of a protobuf message.
struct Fields {
    std::map<int, std::vector<std::string>> bytes;
    std::map<int, std::vector<std::uint64_t>> numbers;

    explicit Fields(std::string_view text) {
        for (std::size_t at = 0; at < text.size();) {
            const std::uint64_t key = varint(text, at);
            const int field = static_cast<int>(key >> 3);
            if ((key & 7) == 2) {
                const std::uint64_t length = varint(text, at);
                bytes[field].emplace_back(text.substr(at, length));
                at += length;
            } else {
                EXPECT_EQ(key & 7, 0u);
                numbers[field].push_back(varint(text, at));
            }
        }
    }
    static std::uint64_t varint(std::string_view text, std::size_t& at) {
        std::uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            const auto byte = static_cast<unsigned char>(text.at(at++));
            value |= std::uint64_t{byte & 0x7fu} << shift;
            if (byte < 0x80) return value;
        }
    }
};

/// The names of a plane's events or stats, by their numbers.
std::map<std::uint64_t, std::string> table(const Fields& plane, int field) {
    std::map<std::uint64_t, std::string> names;
    for (const std::string& entry : plane.bytes.at(field)) {
        const Fields pair(entry), metadata(pair.bytes.at(2).at(0));
        names[pair.numbers.at(1).at(0)] = metadata.bytes.at(2).at(0);
    }
    return names;
}

/// As in xplane.proto.
TEST(Xplane, HasLinesOfEventsWithTheirSteps) {
    constexpr std::int64_t zero = 1'700'000'000'000'000'000;
    const Fields space(xplane_bytes(example(), zero));
    ASSERT_EQ(space.bytes.at(1).size(), 1u);  // a CPU's profile has the plane of the host alone
    EXPECT_EQ(space.bytes.at(4).at(0), "node");
    const Fields plane(space.bytes.at(1)[0]);
    EXPECT_EQ(plane.bytes.at(2).at(0), "/host:CPU");
    std::map<std::uint64_t, std::string> events = table(plane, 4), stats = table(plane, 5);
    std::map<std::string, std::vector<std::string>> found;
    for (const std::string& bytes : plane.bytes.at(3)) {
        const Fields line(bytes);
        EXPECT_EQ(line.numbers.at(3).at(0), static_cast<std::uint64_t>(zero));
        for (const std::string& event_bytes : line.bytes.at(4)) {
            const Fields event(event_bytes);
            std::string text = fmt::format("{} {} {}", events.at(event.numbers.at(1)[0]),
                                           event.numbers.at(2)[0] / 1'000'000'000'000,
                                           event.numbers.at(3)[0] / 1'000'000'000'000);
            if (event.bytes.contains(4))
                for (const std::string& stat_bytes : event.bytes.at(4)) {
                    const Fields stat(stat_bytes);
                    const std::string& name = stats.at(stat.numbers.at(1)[0]);
                    if (name == "group_id") text += fmt::format(" step {}", stat.numbers.at(4)[0]);
                    if (name == "step_name") text += " named " + stat.bytes.at(5)[0];
                }
            found[line.bytes.at(2)[0]].push_back(text);
        }
    }
    EXPECT_EQ(found["steps"],
              (std::vector<std::string>{"train 7 0 10 step 0 named 7", "train 8 20 10 step 1 named 8"}));
    EXPECT_EQ(found["operations"],
              (std::vector<std::string>{"forward 0 0 4 step 0", "DecoderLayer 1 1 3 step 0",
                                        "forward/DecoderLayer_1/norm:Norm 1 2 step 0", "norm:Norm 12 1"}));
    EXPECT_EQ(found["main thread"], (std::vector<std::string>{"wait for data 20 1 step 1"}));
}

TEST(Xplane, AGpuHasAPlaneOfItsOwn) {
    RankProfile profile = example();
    profile.device = Device::cuda;
    profile.lanes[0].on_device = true;
    const Fields space(xplane_bytes(profile, 0));
    ASSERT_EQ(space.bytes.at(1).size(), 2u);
    const Fields plane(space.bytes.at(1)[0]);
    EXPECT_EQ(plane.bytes.at(2).at(0), "/device:GPU:0");
    std::vector<std::string> lines;
    for (const std::string& line : plane.bytes.at(3)) lines.push_back(Fields(line).bytes.at(2)[0]);
    EXPECT_EQ(lines,
              (std::vector<std::string>{"Steps", "Stream #2(operations)", "scopes of the operations"}));
}

}  // namespace
}  // namespace drover
