#include "core/machine_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "core/group_tree.h"

namespace drover {
namespace {

using test::GroupTree;

TEST(MachineMemory, TheSmallestLimitUpTheTreeOfVersion2) {
    GroupTree tree("0::/user.slice/job/step\n",
                   "31 22 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
    EXPECT_EQ(tree.limit(), std::nullopt);
    tree.write("sys/fs/cgroup/user.slice/job/step/memory.max", "max\n");
    EXPECT_EQ(tree.limit(), std::nullopt);
    tree.write("sys/fs/cgroup/user.slice/job/memory.max", "7000000000\n");
    EXPECT_EQ(tree.limit(), 7'000'000'000u);
    tree.write("sys/fs/cgroup/user.slice/memory.max", "9000000000\n");
    EXPECT_EQ(tree.limit(), 7'000'000'000u);
    tree.write("sys/fs/cgroup/user.slice/job/step/memory.max", "123456789\n");
    EXPECT_EQ(tree.limit(), 123'456'789u);
    tree.write("sys/fs/cgroup/user.slice/other/memory.max", "5\n");  // not this process's
    EXPECT_EQ(tree.limit(), 123'456'789u);
}

TEST(MachineMemory, TheMemoryHierarchyOfVersion1) {
    GroupTree tree("5:cpu,cpuacct:/elsewhere\n4:memory:/batch/job_7\n0::/\n",
                   "32 22 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                   "33 22 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    tree.write("sys/fs/cgroup/cpu/elsewhere/memory.limit_in_bytes", "5\n");
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    tree.write("sys/fs/cgroup/memory/batch/job_7/memory.limit_in_bytes", "2000000000\n");
    EXPECT_EQ(tree.limit(), 2'000'000'000u);
    tree.write("sys/fs/cgroup/memory/batch/memory.limit_in_bytes", "1000000000\n");
    EXPECT_EQ(tree.limit(), 1'000'000'000u);
}

/// A container has its own group mounted at the top, and may or may not see its name.
TEST(MachineMemory, AContainersGroupIsTheTop) {
    for (const char* group : {"/docker/abc", "/", "/../../other"}) {
        GroupTree tree(
            std::string("4:memory:") + group + "\n",
            "33 22 0:28 /docker/abc /sys/fs/cgroup/memory ro master:9 - cgroup cgroup rw,memory\n");
        tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000000\n");
        EXPECT_EQ(tree.limit(), 3'000'000'000u) << group;
    }
    GroupTree tree("4:memory:/docker/abc/inner\n",
                   "33 22 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    tree.write("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "1000000000\n");
    EXPECT_EQ(tree.limit(), 1'000'000'000u);
}

TEST(MachineMemory, WithoutGroupsThereIsNoLimit) {
    EXPECT_EQ(control_group_limit(test::TemporaryFolder().path()), std::nullopt);
    EXPECT_EQ(GroupTree("", "").limit(), std::nullopt);
}

TEST(MachineMemory, ThereIsSome) {
    EXPECT_GT(usable_memory(), std::size_t{1} << 20);
}

TEST(MachineMemory, TheLimitOfTheAddressSpaceIsKnown) {
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
    if (before.rlim_max != RLIM_INFINITY) GTEST_SKIP() << "the address space is limited already";
    // Sanitizers reserve terabytes; none of the memory added here is used.
    constexpr std::size_t limit = std::size_t{1} << 46;
    const rlimit lowered{.rlim_cur = limit, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &lowered), 0);
    const std::optional<std::size_t> left = address_space_left();
    ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
    ASSERT_TRUE(left.has_value());
    EXPECT_GT(*left, limit / 2);
    EXPECT_LT(*left, limit);
    EXPECT_EQ(address_space_left().has_value(), before.rlim_cur != RLIM_INFINITY);
}

}  // namespace
}  // namespace drover
