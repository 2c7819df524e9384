#pragma once

#include <algorithm>

#include "backend/cuda/kernels/any_type.cuh"
#include "backend/cuda/kernels/leaf_chunks.cuh"
#include "backend/cuda/kernels/leaf_noise.cuh"

/// The part common to all optimizers: clip the gradient, read the master copy or the parameter, make the
/// step, and write back the result, rounded as requested. All leaves of the same types are one launch.
namespace drover::cuda {

/// A leaf in an update, as kernels see it.
struct UpdatedLeaf {
    void* param;
    const void* gradient;
    float* master;    ///< may be null
    void* moment[2];  ///< may be null
    std::int64_t count;
    LeafNoise noise;
    float weight_decay;
    DType param_type, gradient_type, moment_type[2];
    std::int64_t wide;  ///< whether all are aligned for eights; this wide so that rows have no padding

    UpdatedLeaf() = default;
    template <class Leaf>
    UpdatedLeaf(const Leaf& leaf, const Tensor& first_moment, const Tensor& second_moment)
        : param(leaf.param.raw()),
          gradient(leaf.gradient.raw()),
          master(elements<float>(leaf.master)),
          moment{first_moment.raw(), second_moment.raw()},
          count(leaf.param.numel()),
          noise(leaf.place, leaf.param),
          weight_decay(leaf.weight_decay),
          param_type(leaf.param.dtype()),
          gradient_type(leaf.gradient.dtype()),
          moment_type{first_moment.dtype(), second_moment.dtype()} {
        const auto bits = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data); };
        wide = (bits(param) | bits(gradient) | bits(master) | bits(moment[0]) | bits(moment[1])) % 16 == 0;
    }

    /// Whether its parameter, its gradient and the moments that it has are of these types.
    template <class P, class G, class M>
    bool has_types() const {
        const auto fits = [](const void* data, DType actual, DType wanted) {
            return !data || actual == wanted;
        };
        return param_type == device_dtype<P> && gradient_type == device_dtype<G> &&
               fits(moment[0], moment_type[0], device_dtype<M>) &&
               fits(moment[1], moment_type[1], device_dtype<M>);
    }

  private:
    template <class T>
    static constexpr DType device_dtype = std::is_same_v<T, float>      ? DType::f32
                                          : std::is_same_v<T, bfloat_t> ? DType::bf16
                                                                        : DType::f16;
};

/// x rounded to one of its two neighbours in bf16: to the one larger in magnitude with a probability
/// proportional to x's distance from the smaller one. Values that bf16 represents exactly are unchanged.
__device__ inline float rounded_stochastically(float x, std::uint32_t noise) {
    return x == x ? __uint_as_float((__float_as_uint(x) + (noise >> 16)) & 0xFFFF0000u) : x;
}

/// A `Step` is an optimizer. It has
///   Row: UpdatedLeaf or a type derived from it
///   moments: the most numbers that it keeps per element
///   Constants constants(row, scalars): the constants of a leaf, computed once per block
///   Cursor: made from (constants, index of an element); next() advances it by one
///   after(constants, cursor, g, before, m, v): the element's new value; updates m and v in place
template <class P, class G, class M, bool stochastic, class Step>
__global__ void __launch_bounds__(chunk_threads, is_any<P> || sizeof(M) == 4 ? 3 : 4)
    update_chunks(const LeafChunks<typename Step::Row> leaves, const Step step, const float* scalars,
                  std::uint64_t seed) {
    const Chunk chunk = leaves.chunk();
    const typename Step::Row& row = leaves.rows[chunk.leaf];
    __shared__ typename Step::Constants constants_of_block;
    __shared__ bool skips;  // read together with the others: alone it would delay every block
    if (threadIdx.x == 0) {
        skips = scalars[StepScalar::skips] != 0;
        constants_of_block = step.constants(row, scalars);
    }
    __syncthreads();
    if (skips) return;
    const typename Step::Constants constants = constants_of_block;
    const float clip_factor = scalars[StepScalar::clip_factor];
    void* const param = row.param;
    const void* const gradient = row.gradient;
    float* const master = stochastic ? nullptr : row.master;  // stochastic rounding has no master copy
    void* const first = Step::moments > 0 ? row.moment[0] : nullptr;
    void* const second = Step::moments > 1 ? row.moment[1] : nullptr;
    const DType param_type = row.param_type, gradient_type = row.gradient_type;
    const DType first_type = row.moment_type[0], second_type = row.moment_type[1];
    const bool wide = row.wide;
    const LeafWords noise(row.noise, seed, scalars[StepScalar::step]);

    for_each_eight(chunk, [&](std::int64_t at, int count) {
        typename Step::Cursor cursor(constants, at);
        if (wide && count == 8) {
            Registers<G> g_loaded = load_eight_of<G>(gradient, gradient_type, at);
            Registers<M> m_loaded, v_loaded;
            if (first) m_loaded = load_eight_of<M>(first, first_type, at);
            if (second) v_loaded = load_eight_of<M>(second, second_type, at);
            float before[8], g[8], m[8] = {}, v[8] = {};
            if (master)
                to_floats(load_eight_streaming(master + at), before);
            else
                to_floats_of<P>(load_eight_of<P>(param, param_type, at), param_type, before);
            to_floats_of<G>(g_loaded, gradient_type, g);
            if (first) to_floats_of<M>(m_loaded, first_type, m);
            if (second) to_floats_of<M>(v_loaded, second_type, v);
#pragma unroll
            for (int e = 0; e < 8; ++e, cursor.next())
                before[e] = Step::after(constants, cursor, g[e] * clip_factor, before[e], m[e], v[e]);
            if (first) store_eight_of<M>(first, first_type, at, m);
            if (second) store_eight_of<M>(second, second_type, at, v);
            if (master) store_eight_streaming(master + at, to_eight<float>(before));
            if constexpr (stochastic) {
                std::uint32_t words[8];
                noise.draw_eight(at, words);
#pragma unroll
                for (int e = 0; e < 8; ++e) before[e] = rounded_stochastically(before[e], words[e]);
            }
            store_eight_of<P>(param, param_type, at, before);
            return;
        }
#pragma unroll 1
        for (int e = 0; e < count; ++e, cursor.next()) {
            const std::int64_t i = at + e;
            float m = first ? load_one_of(first, first_type, i) : 0.f;
            float v = second ? load_one_of(second, second_type, i) : 0.f;
            const float before = master ? master[i] : load_one_of(param, param_type, i);
            float after = Step::after(constants, cursor,
                                      load_one_of(gradient, gradient_type, i) * clip_factor, before, m, v);
            if (first) store_one_of(first, first_type, i, m);
            if (second) store_one_of(second, second_type, i, v);
            if (master) master[i] = after;
            if constexpr (stochastic) after = rounded_stochastically(after, noise.draw_one(i));
            store_one_of(param, param_type, i, after);
        }
    });
}

/// For steps that do not depend on an element's position.
struct NoCursor {
    template <class Constants>
    __device__ NoCursor(const Constants&, std::int64_t) {}
    __device__ void next() {}
};

/// The usual types, which have their own kernels; the last is for all others.
enum class UpdateTypes { all_f32, all_bf16, f32_moments, f32_gradients_and_moments, any };

inline UpdateTypes types_of(const UpdatedLeaf& leaf) {
    if (leaf.has_types<float, float, float>()) return UpdateTypes::all_f32;
    if (leaf.has_types<bfloat_t, bfloat_t, bfloat_t>()) return UpdateTypes::all_bf16;
    if (leaf.has_types<bfloat_t, bfloat_t, float>()) return UpdateTypes::f32_moments;
    if (leaf.has_types<bfloat_t, float, float>()) return UpdateTypes::f32_gradients_and_moments;
    return UpdateTypes::any;
}

/// Calls body.template operator()<P, G, M>().
template <class Body>
void with_update_types(UpdateTypes types, const Body& body) {
    switch (types) {
        case UpdateTypes::all_f32:
            return body.template operator()<float, float, float>();
        case UpdateTypes::all_bf16:
            return body.template operator()<bfloat_t, bfloat_t, bfloat_t>();
        case UpdateTypes::f32_moments:
            return body.template operator()<bfloat_t, bfloat_t, float>();
        case UpdateTypes::f32_gradients_and_moments:
            return body.template operator()<bfloat_t, float, float>();
        case UpdateTypes::any:
            return body.template operator()<Any, Any, Any>();
    }
}

/// Updates leaves of the same types by chunks of their elements.
template <class Step>
void update_leaves_of(const Launch& launch, UpdateTypes types, const LeafChunks<typename Step::Row>& leaves,
                      const Tensor& scalars, const UpdateRounding& rounding, const Step& step) {
    if (leaves.chunks() == 0) return;
    with_update_types(types, [&]<class P, class G, class M>() {
        auto* kernel = update_chunks<P, G, M, false, Step>;
        if constexpr (!std::is_same_v<P, float>)
            if (rounding.stochastic) kernel = update_chunks<P, G, M, true, Step>;
        kernel<<<leaves.chunks(), chunk_threads, 0, launch.stream>>>(
            leaves, step, elements<const float>(scalars), rounding.seed);
    });
}

/// Updates all leaves.
template <class Step>
void update_leaves(const Launch& launch, std::vector<typename Step::Row> rows, const Tensor& scalars,
                   const UpdateRounding& rounding, const Step& step, const char* name) {
    using Row = typename Step::Row;
    if (rows.empty()) return;
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return types_of(a) < types_of(b); });
    const LeafTable<Row> table(launch, rows);
    for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
        const UpdateTypes types = types_of(rows[begin]);
        while (end < rows.size() && types_of(rows[end]) == types) ++end;
        update_leaves_of(launch, types, table.part(begin, end), scalars, rounding, step);
        check_launch(name);
    }
}

}  // namespace drover::cuda
