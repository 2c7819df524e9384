#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "optim/statistics_groups.h"
#include "support/errors.h"

namespace drover {
namespace {

void make(const std::string& name, const Precision& precision) {
    const Mesh mesh;
    make_optimizer(OptimizerSettings::named(name, 0.1), precision, mesh);
}

TEST(Optimizer, EveryNameOfTheTrainerIsKnown) {
    for (const char* name : {"adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "adamw_apex_fused",
                             "adafactor", "sgd", "adagrad", "rmsprop"})
        EXPECT_NO_THROW(make(name, Precision::fp32())) << name;
    test::expect_error<UsageError>([] { make("adamw", Precision::fp32()); },
                                   {"\"adamw\"", "adamw_torch, adamw_torch_fused", "adagrad or rmsprop"});
}

TEST(Optimizer, StochasticRoundingNeedsBf16WithoutMasterCopy) {
    Precision precision = Precision::pure_bf16();
    precision.stochastic_rounding = true;
    EXPECT_NO_THROW(make("adamw_torch", precision));
    precision.master = true;
    test::expect_error<UsageError>([&] { make("adamw_torch", precision); }, {"Stochastic rounding"});
    precision = Precision::fp32();
    precision.stochastic_rounding = true;
    test::expect_error<UsageError>([&] { make("sgd", precision); }, {"Stochastic rounding"});
}

TEST(StatisticsGroups, FollowTheSpecs) {
    std::vector<LeafSpec> specs = {
        {.name = "a", .shape = {4, 3}},
        {.name = "norm", .shape = {5}},
        {.name = "0.w1", .shape = {2, 3}, .statistics_group = "0", .fused_tensor = "experts"},
        {.name = "1.w1", .shape = {2, 3}, .statistics_group = "1", .fused_tensor = "experts"},
        {.name = "0.w3", .shape = {3, 3}, .statistics_group = "0", .fused_tensor = "experts"},
        {.name = "b", .shape = {2, 6}, .statistics_group = "pair"},
        {.name = "pair", .shape = {2, 6}},
        {.name = "c", .shape = {1, 6}, .statistics_group = "pair"}};
    std::vector<OwnedLeaf> owned;
    for (const LeafSpec& spec : specs) owned.push_back({.spec = &spec, .param = {}, .gradient = {}});
    std::vector<const OwnedLeaf*> updated;
    for (const OwnedLeaf& leaf : owned) updated.push_back(&leaf);
    const StatisticsGroups groups(updated);

    ASSERT_EQ(groups.matrices.size(), 5u);  // a, 0, 1, b and c, pair
    EXPECT_EQ(groups.leaves[1].matrix, StatisticsGroups::no_matrix);
    EXPECT_EQ(groups.leaves[2].matrix, groups.leaves[4].matrix);
    EXPECT_NE(groups.leaves[2].matrix, groups.leaves[3].matrix);
    EXPECT_EQ(groups.leaves[4].first_row, 2);
    EXPECT_EQ(groups.matrices[groups.leaves[4].matrix].rows, 5);
    EXPECT_EQ(groups.matrices[groups.leaves[4].matrix].columns, 3);

    EXPECT_EQ(groups.leaves[2].clip_group, groups.leaves[3].clip_group);
    EXPECT_EQ(groups.clip_elements[groups.leaves[2].clip_group], 6 + 6 + 9);
    // Without a clip group, leaves factored together are clipped together; and a group may have the name of
    // another leaf.
    EXPECT_EQ(groups.leaves[5].clip_group, groups.leaves[7].clip_group);
    EXPECT_NE(groups.leaves[5].clip_group, groups.leaves[6].clip_group);
    EXPECT_EQ(groups.clip_elements[groups.leaves[7].clip_group], 12 + 6);
    EXPECT_EQ(groups.clip_elements[groups.leaves[1].clip_group], 5);
}

}  // namespace
}  // namespace drover
