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

/// Gradients of two units, and activations that are done with before these are written.
std::vector<Tensor> make_with_lent_memory(Arena& arena) {
    std::vector<Tensor> tensors = {arena.make(MemoryUse::gradients, DType::u8, {1024}),
                                   arena.make(MemoryUse::gradients, DType::u8, {500}),
                                   arena.make(MemoryUse::parameters, DType::u8, {256}),
                                   arena.make(MemoryUse::gradients, DType::u8, {512})};
    for (const std::size_t i : {1, 3, 0}) arena.lend(tensors[i]);
    for (const std::int64_t bytes : {1300, 400, 200})
        tensors.push_back(arena.make_in_lent(MemoryUse::mlp_activations, DType::u8, {bytes}));
    tensors.push_back(arena.make(MemoryUse::scratch, DType::u8, {100}));
    return tensors;
}

TEST(Arena, LentMemoryIsUsedTwice) {
    Arena measuring = Arena::measuring(Device::cpu);
    make_with_lent_memory(measuring);
    constexpr std::size_t own = 1024 + 512 + 256 + 512;
    const MemoryPlan& plan = measuring.plan();
    EXPECT_EQ(plan.total, own + 256 + 256) << "the last of the activations finds no room; and scratch";
    EXPECT_EQ(plan[MemoryUse::gradients_after_activations], 1536u + 512u);
    EXPECT_EQ(plan[MemoryUse::gradients], 0u);
    EXPECT_EQ(plan[MemoryUse::mlp_activations], 256u);
    std::size_t sum = 0;
    for (const std::size_t bytes : plan.by_use) sum += bytes;
    EXPECT_EQ(sum, plan.total);
    EXPECT_NE(plan.table().find("activations, then gradients"), std::string::npos);

    Arena real(allocate_host_memory(plan.total), plan.total, Device::cpu);
    const auto tensors = make_with_lent_memory(real);
    EXPECT_EQ(real.plan().total, plan.total);
    EXPECT_EQ(tensors[4].raw(), tensors[0].raw()) << "two gradients next to each other are one piece";
    EXPECT_EQ(tensors[5].raw(), tensors[3].raw());
}

TEST(Arena, TheSmallestLentPieceWithRoomIsTaken) {
    Arena arena = Arena::measuring(Device::cpu);
    const Tensor large = arena.make(MemoryUse::gradients, DType::u8, {1024});
    arena.make(MemoryUse::parameters, DType::u8, {256});
    const Tensor small = arena.make(MemoryUse::gradients, DType::u8, {512});
    arena.lend(large);
    arena.lend(small);
    const auto make = [&](std::int64_t bytes) {
        return arena.make_in_lent(MemoryUse::mlp_activations, DType::u8, {bytes}).raw();
    };
    EXPECT_EQ(make(300), small.raw());
    EXPECT_EQ(make(1024), large.raw());
    EXPECT_EQ(arena.plan().total, 1024u + 256u + 512u);
    EXPECT_EQ(arena.plan()[MemoryUse::gradients_after_activations], 1024u + 512u);
    make(1);
    EXPECT_EQ(arena.plan().total, 1024u + 256u + 512u + 256u) << "what was lent is used once";
}

TEST(Arena, WhatAScopeTookOfLentMemoryIsLentAgain) {
    Arena arena = Arena::measuring(Device::cpu);
    const Tensor gradient = arena.make(MemoryUse::gradients, DType::u8, {512});
    arena.lend(gradient);
    for (int turn = 0; turn < 2; ++turn) {
        const Arena::Scope scope(arena);
        EXPECT_EQ(arena.make_in_lent(MemoryUse::scratch, DType::u8, {512}).raw(), gradient.raw());
    }
    EXPECT_EQ(arena.plan().total, 512u);
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
