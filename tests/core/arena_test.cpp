#include "core/arena.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace drover {
namespace {

/// A plan with two phases that share memory.
std::vector<Tensor> make_buffers(Arena& arena) {
    std::vector<Tensor> tensors = {arena.make(MemoryUse::parameters, DType::f32, {3, 5})};
    {
        const Arena::Scope turn(arena);
        tensors.push_back(arena.make(MemoryUse::scratch, DType::bf16, {1000}));
    }
    {
        const Arena::Scope turn(arena);
        tensors.push_back(arena.make(MemoryUse::head, DType::f32, {1000}));
    }
    return tensors;
}

TEST(Arena, MeasuredSizeIsWhatTheRealOneTakes) {
    Arena measuring = Arena::measuring(Device::cpu);
    make_buffers(measuring);
    const std::size_t bytes = measuring.plan().total;
    EXPECT_EQ(bytes, 256u + 4096u);

    Arena real(allocate_host_memory(bytes), bytes, Device::cpu);
    const auto tensors = make_buffers(real);
    EXPECT_EQ(real.plan().total, bytes);
    EXPECT_EQ(tensors[1].raw(), tensors[2].raw()) << "turns share memory";
    EXPECT_NE(tensors[0].raw(), tensors[1].raw());
    for (const Tensor& tensor : tensors)
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.raw()) % Arena::alignment, 0u);
    tensors[2].data<float>()[999] = 1;
}

TEST(Arena, UsesAtThePeakAddUpToTheTotal) {
    Arena arena = Arena::measuring(Device::cpu);
    make_buffers(arena);
    EXPECT_EQ(arena.plan()[MemoryUse::parameters], 256u);
    EXPECT_EQ(arena.plan()[MemoryUse::head], 4096u);
    EXPECT_EQ(arena.plan()[MemoryUse::scratch], 0u) << "the smaller turn is not what decides";
    std::size_t sum = 0;
    for (const std::size_t bytes : arena.plan().by_use) sum += bytes;
    EXPECT_EQ(sum, arena.plan().total);
    EXPECT_NE(arena.plan().table().find("head and loss"), std::string::npos);
}

TEST(ArenaDeathTest, MoreThanPlannedIsABug) {
    Arena arena(allocate_host_memory(256), 256, Device::cpu);
    arena.make(MemoryUse::batch, DType::u8, {200});
    EXPECT_DEATH(arena.make(MemoryUse::batch, DType::u8, {1}), "smaller than its plan");
}

/// Sizes come from command lines and configs.
TEST(Arena, APlanThatCannotBeCountedIsRefused) {
    const std::int64_t large = std::int64_t{1} << 40;
    Arena arena = Arena::measuring(Device::cpu);
    test::expect_error(
        [&] {
            arena.make(MemoryUse::scratch, DType::f32, {large, large});
        },
        {"[1099511627776, 1099511627776]"});
    test::expect_error(
        [&] {
            arena.make(MemoryUse::scratch, DType::f32, {large, large, large, large});
        },
        {"[1099511627776, 1099511627776, 1099511627776, 1099511627776]"});
    for (int i = 0; i < 4; ++i) arena.make(MemoryUse::scratch, DType::f32, {large, 1 << 12});
    test::expect_error(
        [&] {
            arena.make(MemoryUse::scratch, DType::f32, {large, 1 << 12});
        },
        {"[1099511627776, 4096]"});
}

TEST(Arena, MoreMemoryThanThereIsIsRefused) {
    test::expect_error([&] { allocate_host_memory(std::size_t{1} << 50); }, {"1.00 PiB"});
}

}  // namespace
}  // namespace drover
