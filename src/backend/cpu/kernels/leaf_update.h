#pragma once

#include "backend/cpu/kernels/parallel.h"
#include "backend/cpu/kernels/vector_math.h"
#include "core/philox.h"

namespace drover::cpu::DROVER_ISA {

/// x rounded to one of its two neighbours in bf16: to the one larger in magnitude with a probability
/// proportional to x's distance from the smaller one. The upper halves of `noise` decide. Values that bf16
/// represents exactly are unchanged.
[[gnu::always_inline]] inline Floats rounded_stochastically(Floats x, Words noise) {
    const Words rounded = (bits_as<Words>(x) + (noise >> 16)) & 0xFFFF0000u;
    return x == x ? bits_as<Floats>(rounded) : x;
}

/// The random words of a leaf's elements, as CounterRng gives them.
class LeafNoise {
  public:
    /// Elements that are drawn at a time, and room for their words.
    static constexpr std::int64_t most = 512;
    using Room = std::uint32_t[most + 8 + lanes];

    LeafNoise(const UpdateRounding& rounding, const LeafPlace& place, const Tensor& param, float step)
        : seed_(rounding.seed),
          stream_(philox_stream(place.leaf, static_cast<std::uint64_t>(step))),
          place_(place),
          columns_(param.rank() == 2 ? param.size(1) : 1) {
        // Whole rows are contiguous.
        if (columns_ == place.columns) columns_ = param.numel();
    }

    /// How many elements from `begin` on, at most `limit`, are contiguous in the whole leaf and fit into a
    /// Room.
    std::int64_t run_length(std::int64_t begin, std::int64_t limit) const {
        const std::int64_t in_row = columns_ - begin % columns_, longest = in_row < most ? in_row : most;
        return longest < limit ? longest : limit;
    }

    /// The words of `count` such elements. The words after them, up to a whole vector, are meaningless but
    /// may be read.
    const std::uint32_t* draw(std::int64_t begin, std::int64_t count, Room& room) const {
        const std::int64_t row = place_.row_begin + begin / columns_,
                           column = place_.column_begin + begin % columns_;
        return words_from(static_cast<std::uint64_t>(row * place_.columns + column), count, room);
    }

    /// The same for `count` elements, at most `most`, from number `first` of the whole leaf on.
    const std::uint32_t* words_from(std::uint64_t first, std::int64_t count, Room& room) const {
        const std::uint64_t first_block = first / 4;
        const auto blocks =
            static_cast<std::uint32_t>((first % 4 + static_cast<std::uint64_t>(count) + 3) / 4);
        const auto stream_low = static_cast<std::uint32_t>(stream_),
                   stream_high = static_cast<std::uint32_t>(stream_ >> 32);
        for (std::uint32_t i = 0; i < blocks; ++i) {
            const std::uint64_t block = first_block + i;
            const PhiloxWords words =
                philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                            stream_low, stream_high},
                           seed_);
            room[4 * i] = words.w0;
            room[4 * i + 1] = words.w1;
            room[4 * i + 2] = words.w2;
            room[4 * i + 3] = words.w3;
        }
        return room + first % 4;
    }

  private:
    std::uint64_t seed_, stream_;
    LeafPlace place_;
    std::int64_t columns_;  // of this part, or all of its elements when its rows are whole
};

/// The part common to all optimizers, for one leaf: clips the gradient, reads the master copy or the
/// parameter, and writes back the result, rounded as requested.
template <class P, class G>
class LeafUpdate {
  public:
    template <class Leaf>
    LeafUpdate(const Leaf& leaf, const float* scalars, const UpdateRounding& rounding)
        : param_(static_cast<P*>(leaf.param.raw())),
          gradient_(static_cast<const G*>(leaf.gradient.raw())),
          master_(static_cast<float*>(leaf.master.raw())),
          count_(leaf.param.numel()),
          clip_factor_(scalars[StepScalar::clip_factor]),
          stochastic_(rounding.stochastic),
          noise_(rounding, leaf.place, leaf.param, scalars[StepScalar::step]) {}

    /// Elements [begin, end) become step(at, clipped gradient, before), where `at` is a Whole or a Part of
    /// the leaf's elements.
    template <class Step>
    void run(std::int64_t begin, std::int64_t end, const Step& step) const {
        if constexpr (dtype_of<P> == DType::bf16)
            if (stochastic_) {
                alignas(64) LeafNoise::Room room;
                while (begin < end) {
                    const std::int64_t count = noise_.run_length(begin, end - begin);
                    run_piece<true>(begin, count, noise_.draw(begin, count, room), step);
                    begin += count;
                }
                return;
            }
        run_piece<false>(begin, end - begin, nullptr, step);
    }

    /// All elements, on all threads.
    template <class Step>
    void run(const Step& step) const {
        for_each_range(count_, elements_per_task,
                       [&](std::int64_t begin, std::int64_t end) { run(begin, end, step); });
    }

  private:
    template <bool stochastic, class Step>
    [[gnu::always_inline]] void run_piece(std::int64_t begin, std::int64_t count, const std::uint32_t* noise,
                                          const Step& given_step) const {
        // Local copies: the compiler would have to assume that a store changes what a reference refers to.
        const Step step = given_step;
        P* const param = param_;
        const G* const gradient = gradient_;
        float* const master = master_;
        const float clip_factor = clip_factor_;
        for_each_vector(count, [=](auto at) {
            const std::int64_t in_piece = at.begin;
            at.begin += begin;
            const Floats before = master ? load(master, at) : load(param, at);
            Floats after = step(at, load(gradient, at) * clip_factor, before);
            if (master) store(master, at, after);
            if constexpr (stochastic) {
                Words words;
                __builtin_memcpy(&words, noise + in_piece, sizeof words);
                after = rounded_stochastically(after, words);
            }
            store(param, at, after);
        });
    }

    P* param_;
    const G* gradient_;
    float* master_;
    std::int64_t count_;
    float clip_factor_;
    bool stochastic_;
    LeafNoise noise_;
};

/// Whether updates are to be skipped.
inline bool skips(const Tensor& scalars) {
    return static_cast<const float*>(scalars.raw())[StepScalar::skips] != 0;
}

/// Calls body(LeafUpdate) with the types of the leaf's parameter and gradient.
template <class Leaf, class Body>
[[gnu::always_inline]] inline void with_leaf_update(const Leaf& leaf, const float* scalars,
                                                    const UpdateRounding& rounding, const Body& body) {
    with_type(leaf.param.dtype(), [&](auto p) {
        with_type(leaf.gradient.dtype(),
                  [&](auto g) { body(LeafUpdate<decltype(p), decltype(g)>(leaf, scalars, rounding)); });
    });
}

}  // namespace drover::cpu::DROVER_ISA
