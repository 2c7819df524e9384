#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/leaf_update.h"

namespace drover::cpu::DROVER_ISA {

void jitter_tokens(const JitterTokens& op) {
    const std::int64_t width = op.x.size(1);
    const float step = static_cast<const float*>(op.scalars.raw())[StepScalar::step];
    const LeafNoise noise({.seed = op.seed}, {.leaf = op.leaf, .row_begin = op.first_token, .columns = width},
                          op.x, step);
    const bool added = op.added;
    const float lowest = (added ? 0.0f : 1.0f) - op.amplitude, per_unit = 2.0f * op.amplitude * 0x1p-24f;
    with_type(op.x.dtype(), [&](auto t) {
        auto* const x = static_cast<decltype(t)*>(op.x.raw());
        for_each_range(op.x.numel(), elements_per_task, [=](std::int64_t begin, std::int64_t end) {
            alignas(64) LeafNoise::Room room;
            while (begin < end) {
                const std::int64_t count = noise.run_length(begin, end - begin);
                const std::uint32_t* words = noise.draw(begin, count, room);
                auto* const piece = x + begin;
                for_each_vector(count, [=](auto at) {
                    Words bits;
                    __builtin_memcpy(&bits, words + at.begin, sizeof bits);
                    const Floats units = __builtin_convertvector(bits_as<Ints>(bits & 0xFFFFFFu), Floats);
                    const Floats before = load(piece, at), noise_here = lowest + per_unit * units;
                    store(piece, at, added ? before + noise_here : before * noise_here);
                });
                begin += count;
            }
        });
    });
}

}  // namespace drover::cpu::DROVER_ISA
