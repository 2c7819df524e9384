#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/mt19937.h"

namespace drover {

/// A rectangle of a row-major matrix. A vector is a matrix of one row.
struct MatrixSlice {
    std::uint64_t rows, columns;  ///< of the whole matrix
    std::uint64_t row_begin, row_count;
    std::uint64_t column_begin, column_count;
};

/// PyTorch's CPU generator, for initialisation and shuffling: with the same seed and the same calls it gives
/// the same bits as PyTorch 2.15 on a processor with AVX2, on every processor and with any number of threads.
/// (Normals of fewer than 16 elements use the C library's sine, cosine and logarithm in double precision.)
///
/// `fill_*` do what `tensor.normal_()` and `tensor.uniform_()` do on a contiguous tensor of out.size()
/// elements; bf16 and f16 are drawn in float, then rounded. Parameters are doubles, as in Python: fewer than
/// 16 normals are computed with the unrounded ones. Large fills use OpenMP.
class TorchRng {
  public:
    explicit TorchRng(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

    /// Starts over, as `torch.manual_seed`: only the low 32 bits count, and a kept normal is dropped.
    void seed(std::uint64_t seed) { *this = TorchRng(seed); }

    std::uint32_t next32() { return engine_.next(); }
    /// Two outputs, the first one in the high half.
    std::uint64_t next64();

    /// 32-bit outputs used since the seed.
    std::uint64_t position() const { return engine_.position(); }
    /// Drops the next `draws` 32-bit outputs, in about a millisecond for any number.
    void skip(std::uint64_t draws) { engine_.skip(draws); }

    void fill_uniform(std::span<float> out, double low, double high);
    void fill_uniform(std::span<bf16> out, double low, double high);
    void fill_uniform(std::span<f16> out, double low, double high);

    void fill_normal(std::span<float> out, double mean, double standard_deviation);
    void fill_normal(std::span<bf16> out, double mean, double standard_deviation);
    void fill_normal(std::span<f16> out, double mean, double standard_deviation);

    /// A part of what fill_normal would give for a matrix of slice.rows × slice.columns elements, packed,
    /// without moving this generator and without computing the rest. Whole rows cost only themselves; a
    /// column range also generates the raw outputs between its pieces.
    void normal_slice(const MatrixSlice& slice, std::span<float> out, double mean,
                      double standard_deviation) const;
    void normal_slice(const MatrixSlice& slice, std::span<bf16> out, double mean,
                      double standard_deviation) const;
    void normal_slice(const MatrixSlice& slice, std::span<f16> out, double mean,
                      double standard_deviation) const;

    /// Elements [begin, begin + out.size()) of what fill_normal would give for `count` elements.
    void normal_range(std::uint64_t count, std::uint64_t begin, std::span<float> out, double mean,
                      double standard_deviation) const {
        normal_slice({1, count, 0, 1, begin, out.size()}, out, mean, standard_deviation);
    }

    /// 32-bit outputs that a fill of `count` elements (f32, bf16 or f16) uses. For fewer than 16 normals that
    /// depends on whether one is kept from the last such fill, and the fill changes what is kept: skip fills
    /// with skip_normal, not with skip.
    std::uint64_t draws_for_normal(std::uint64_t count, DType dtype = DType::f32) const;
    static std::uint64_t draws_for_uniform(std::uint64_t count) { return count; }
    /// Leaves the generator as a fill of `count` elements would.
    void skip_normal(std::uint64_t count, DType dtype = DType::f32);
    void skip_uniform(std::uint64_t count) { skip(draws_for_uniform(count)); }

    /// `torch.randint`: an integer in [low, high).
    std::int64_t randint(std::int64_t low, std::int64_t high);
    /// One element of `tensor.random_()` on int64: 63 random bits.
    std::int64_t random_int64() { return static_cast<std::int64_t>(next64() & 0x7FFFFFFFFFFFFFFFu); }

    /// `torch.randperm(count)`.
    std::vector<std::int64_t> randperm(std::int64_t count);
    /// What randperm does from 2^32/20 elements on: the inside-out shuffle with 64-bit draws.
    void fill_large_randperm(std::span<std::int64_t> out);

  private:
    template <class T>
    void uniform_elements(std::span<T> out, double low, double high);
    template <class T>
    void normal_elements(std::span<T> out, double mean, double standard_deviation);
    template <class T>
    void slice_elements(const MatrixSlice& slice, std::span<T> out, double mean,
                        double standard_deviation) const;

    /// Standard normal as tensors of fewer than 16 elements get it: they come in pairs, of which the second
    /// is kept.
    double small_normal();

    Mt19937 engine_;
    std::optional<double> kept_normal_;
};

}  // namespace drover
