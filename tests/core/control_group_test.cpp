#include "core/control_group.h"

#include <gtest/gtest.h>

#include "core/group_tree.h"

namespace drover {
namespace {

using test::GroupTree;

TEST(ControlGroup, TheSmallestQuotaUpTheTreeOfVersion2) {
    GroupTree tree("0::/job/step\n", "31 22 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
    EXPECT_EQ(tree.quota(), std::nullopt);
    tree.write("sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
    EXPECT_EQ(tree.quota(), std::nullopt);
    tree.write("sys/fs/cgroup/job/cpu.max", "250000 100000\n");
    EXPECT_EQ(tree.quota(), 2.5);
    tree.write("sys/fs/cgroup/cpu.max", "800000 100000\n");
    EXPECT_EQ(tree.quota(), 2.5);
    tree.write("sys/fs/cgroup/elsewhere/cpu.max", "1 100000\n");  // not this process's
    EXPECT_EQ(tree.quota(), 2.5);
}

TEST(ControlGroup, TheQuotaOfVersion1HasTwoFiles) {
    GroupTree tree("5:cpu,cpuacct:/job\n4:memory:/elsewhere\n",
                   "32 22 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(tree.quota(), std::nullopt);
    tree.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n");
    EXPECT_EQ(tree.quota(), std::nullopt);  // without a period
    tree.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(tree.quota(), 0.5);
}

}  // namespace
}  // namespace drover
