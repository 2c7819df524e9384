#include "core/machine_memory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/golden.h"

namespace drover {
namespace {

TEST(MachineMemory, LimitsOfBothKindsOfControlGroups) {
    const test::TemporaryFolder folder;
    EXPECT_EQ(memory_limit_of_group(folder.path()), std::nullopt);
    std::filesystem::create_directory(folder / "memory");
    std::ofstream(folder / "memory/memory.limit_in_bytes") << "7000000000\n";
    EXPECT_EQ(memory_limit_of_group(folder.path()), 7'000'000'000u);
    std::ofstream(folder / "memory.max") << "max\n";
    EXPECT_EQ(memory_limit_of_group(folder.path()), 7'000'000'000u);
    std::ofstream(folder / "memory.max") << "123456789\n";
    EXPECT_EQ(memory_limit_of_group(folder.path()), 123'456'789u);
}

TEST(MachineMemory, ThereIsSome) {
    EXPECT_GT(usable_memory(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace drover
