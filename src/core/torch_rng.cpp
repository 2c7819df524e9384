#include "core/torch_rng.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <type_traits>

#include "core/error.h"
#include "core/random_kernels.h"

namespace drover {
namespace {

using random_kernels::block_size;
using random_kernels::DrawTile;
using random_kernels::FloatTile;
using random_kernels::tile_size;

template <class T>
void convert(std::span<const float> from, std::span<T> to) {
    std::transform(from.begin(), from.end(), to.begin(), [](float value) { return static_cast<T>(value); });
}

/// Cuts [0, size) among threads and calls work(begin, end) for each part. `outputs` is the number of
/// generator outputs that the whole spans. Every part jumps to its own place in the stream, so the cut does
/// not affect the results. Returns what the last call returned: the generator after the last element.
template <class Work>
Mt19937 in_parts(std::uint64_t size, std::uint64_t outputs, const Work& work) {
    // A jump takes about as long as half this many outputs.
    constexpr std::uint64_t worth_a_thread = 1u << 20;
    const int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
    const auto parts =
        std::clamp<std::uint64_t>(outputs / worth_a_thread, 1, static_cast<std::uint64_t>(threads));
    if (parts == 1) return work(std::uint64_t{0}, size);

    // Whole blocks, so that no block of a contiguous fill is computed twice.
    const std::uint64_t part_size = (size / parts / block_size + 1) * block_size;
    std::optional<Mt19937> last;
#pragma omp parallel for num_threads(parts) schedule(static, 1)
    for (std::uint64_t part = 0; part < parts; ++part) {
        const std::uint64_t begin = std::min(part * part_size, size);
        const Mt19937 end_state = work(begin, std::min(begin + part_size, size));
        if (part == parts - 1) last = end_state;
    }
    return *last;
}

/// Elements of a long normal fill, read in ascending order; each block of 16 is computed from the 16 outputs
/// at the same position.
class NormalReader {
  public:
    /// `start` is positioned at the fill's first output.
    NormalReader(const Mt19937& start, float mean, float standard_deviation)
        : engine_(start), origin_(start.position()), mean_(mean), standard_deviation_(standard_deviation) {}

    /// Elements [begin, begin + out.size()); begin is not before the end of the last read.
    template <class T>
    void read(std::uint64_t begin, std::span<T> out) {
        while (!out.empty()) {
            if (begin >= tile_end_) make_tile(begin, out.size());
            const std::uint64_t count = std::min<std::uint64_t>(out.size(), tile_end_ - begin);
            convert(std::span<const float>(values_).subspan(begin - tile_begin_, count), out.first(count));
            out = out.subspan(count);
            begin += count;
        }
    }

    /// The generator after the last block that was read.
    const Mt19937& engine() const { return engine_; }

  private:
    void make_tile(std::uint64_t begin, std::uint64_t wanted) {
        const std::uint64_t before = begin % block_size;
        const std::uint64_t whole_blocks = (before + wanted + block_size - 1) / block_size * block_size;
        const std::uint64_t count = std::min<std::uint64_t>(whole_blocks, tile_size);
        tile_begin_ = begin - before;
        tile_end_ = tile_begin_ + count;
        engine_.skip(origin_ + tile_begin_ - engine_.position());
        engine_.fill(std::span(draws_).first(count));
        random_kernels::kernels().normal_tile(draws_, mean_, standard_deviation_, values_);
    }

    Mt19937 engine_;
    std::uint64_t origin_;
    float mean_, standard_deviation_;
    std::uint64_t tile_begin_ = 0, tile_end_ = 0;
    DrawTile draws_{};
    FloatTile values_;
};

/// Outputs that the first pass of a fill of `count` ≥ 16 normals uses. When the count is no multiple of 16,
/// the last 16 elements are replaced by one more block, drawn after that. PyTorch draws all floats first and
/// transforms them then, but halves block by block.
template <class T>
std::uint64_t first_pass_draws(std::uint64_t count) {
    return std::is_same_v<T, float> ? count : count / block_size * block_size;
}

template <class T>
std::uint64_t draws_for_long_normal(std::uint64_t count) {
    return count % block_size == 0 ? count : first_pass_draws<T>(count) + block_size;
}

/// Writes a slice of a fill of slice.rows × slice.columns ≥ 16 normals whose first output is the next one of
/// `start`. Returns the generator somewhere between there and the end of the fill, at the end if the slice is
/// all of it.
template <class T>
Mt19937 write_slice(const Mt19937& start, const MatrixSlice& slice, std::span<T> out, double mean,
                    double standard_deviation) {
    const auto float_mean = static_cast<float>(mean);
    const auto float_deviation = static_cast<float>(standard_deviation);
    const std::uint64_t count = slice.rows * slice.columns;
    const std::uint64_t tail_begin = count % block_size == 0 ? count : count - block_size;
    const std::uint64_t spanned = slice.row_count == 1 ? slice.column_count : slice.row_count * slice.columns;

    Mt19937 engine = in_parts(out.size(), spanned, [&](std::uint64_t position, std::uint64_t end) {
        NormalReader reader(start, float_mean, float_deviation);
        while (position < end) {
            const std::uint64_t row = position / slice.column_count;
            const std::uint64_t column = position % slice.column_count;
            const std::uint64_t length = std::min(end - position, slice.column_count - column);
            const std::uint64_t begin = (slice.row_begin + row) * slice.columns + slice.column_begin + column;
            if (begin >= tail_begin) break;
            reader.read(begin, out.subspan(position, std::min(length, tail_begin - begin)));
            position += length;
        }
        return reader.engine();
    });

    const std::uint64_t last_row = slice.row_begin + slice.row_count;
    const std::uint64_t last_column = slice.column_begin + slice.column_count;
    const bool reaches_tail = !out.empty() && (last_row - 1) * slice.columns + last_column > tail_begin;
    if (!reaches_tail || tail_begin == count) return engine;

    engine.skip(start.position() + first_pass_draws<T>(count) - engine.position());
    NormalReader reader(engine, float_mean, float_deviation);
    std::array<T, block_size> tail;
    reader.read(0, std::span<T>(tail));
    for (std::uint64_t i = 0; i < block_size; ++i) {
        const std::uint64_t row = (tail_begin + i) / slice.columns;
        const std::uint64_t column = (tail_begin + i) % slice.columns;
        if (row < slice.row_begin || row >= last_row || column < slice.column_begin || column >= last_column)
            continue;
        out[(row - slice.row_begin) * slice.column_count + (column - slice.column_begin)] = tail[i];
    }
    return reader.engine();
}

}  // namespace

std::uint64_t TorchRng::next64() {
    const std::uint64_t high = engine_.next();
    return high << 32 | engine_.next();
}

template <class T>
void TorchRng::uniform_elements(std::span<T> out, double low, double high) {
    const auto float_low = static_cast<float>(low);
    const auto float_high = static_cast<float>(high);
    const Mt19937 start = engine_;
    engine_ = in_parts(out.size(), out.size(), [&](std::uint64_t begin, std::uint64_t end) {
        Mt19937 engine = start;
        engine.skip(begin);
        DrawTile draws{};
        FloatTile values;
        while (begin < end) {
            const std::uint64_t count = std::min<std::uint64_t>(end - begin, tile_size);
            engine.fill(std::span(draws).first(count));
            random_kernels::kernels().uniform_tile(draws, float_low, float_high, values);
            const std::span<T> target = out.subspan(begin, count);
            convert(std::span<const float>(values).first(count), target);
            if constexpr (!std::is_same_v<T, float>) {
                // The interval stays half open after rounding as well.
                const T rounded_low(float_low), rounded_high(float_high);
                for (T& value : target) {
                    if (value.bits == rounded_high.bits) value = rounded_low;
                }
            }
            begin += count;
        }
        return engine;
    });
}

double TorchRng::small_normal() {
    if (kept_normal_) {
        const double kept = *kept_normal_;
        kept_normal_.reset();
        return kept;
    }
    constexpr std::uint64_t mask = (std::uint64_t{1} << 53) - 1;
    const double angle = 2.0 * std::numbers::pi * (static_cast<double>(next64() & mask) * 0x1p-53);
    const double radius = std::sqrt(-2.0 * std::log1p(-static_cast<double>(next64() & mask) * 0x1p-53));
    kept_normal_ = radius * std::sin(angle);
    return radius * std::cos(angle);
}

template <class T>
void TorchRng::normal_elements(std::span<T> out, double mean, double standard_deviation) {
    require(standard_deviation >= 0.0, "a normal distribution needs a standard deviation of zero or more");
    if (out.size() < block_size) {
        for (T& value : out) {
            value = static_cast<T>(static_cast<float>(std::fma(small_normal(), standard_deviation, mean)));
        }
        return;
    }
    const std::uint64_t end = position() + draws_for_long_normal<T>(out.size());
    engine_ = write_slice(engine_, {1, out.size(), 0, 1, 0, out.size()}, out, mean, standard_deviation);
    engine_.skip(end - position());
}

template <class T>
void TorchRng::slice_elements(const MatrixSlice& slice, std::span<T> out, double mean,
                              double standard_deviation) const {
    require(standard_deviation >= 0.0, "a normal distribution needs a standard deviation of zero or more");
    require(slice.row_begin <= slice.rows && slice.row_count <= slice.rows - slice.row_begin &&
                slice.column_begin <= slice.columns &&
                slice.column_count <= slice.columns - slice.column_begin &&
                out.size() == slice.row_count * slice.column_count,
            "a slice of random numbers lies inside its matrix and has room for its elements");
    const std::uint64_t count = slice.rows * slice.columns;
    if (count >= block_size) {
        write_slice(engine_, slice, out, mean, standard_deviation);
        return;
    }
    std::array<T, block_size> all;
    TorchRng(*this).fill_normal(std::span<T>(all).first(count), mean, standard_deviation);
    for (std::uint64_t i = 0; i < out.size(); ++i) {
        const std::uint64_t row = slice.row_begin + i / slice.column_count;
        out[i] = all[row * slice.columns + slice.column_begin + i % slice.column_count];
    }
}

std::uint64_t TorchRng::draws_for_normal(std::uint64_t count, DType dtype) const {
    if (count >= block_size) {
        return dtype == DType::f32 ? draws_for_long_normal<float>(count) : draws_for_long_normal<bf16>(count);
    }
    const std::uint64_t to_make = count > 0 && kept_normal_ ? count - 1 : count;
    constexpr std::uint64_t draws_per_pair = 4;
    return (to_make + 1) / 2 * draws_per_pair;
}

void TorchRng::skip_normal(std::uint64_t count, DType dtype) {
    if (count >= block_size) {
        skip(draws_for_normal(count, dtype));
    } else {
        for (std::uint64_t i = 0; i < count; ++i) small_normal();
    }
}

std::int64_t TorchRng::randint(std::int64_t low, std::int64_t high) {
    require(low < high, "an integer is drawn from an interval that is not empty");
    const std::uint64_t width = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    // From here on a remainder of 32 bits would favour small numbers by more than PyTorch allows.
    constexpr std::uint64_t needs_64_bits = std::uint64_t{1} << 28;
    const std::uint64_t draw = width >= needs_64_bits ? next64() : next32();
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + draw % width);
}

std::vector<std::int64_t> TorchRng::randperm(std::int64_t count) {
    require(count >= 0, "a permutation has no negative number of elements");
    std::vector<std::int64_t> permutation(static_cast<std::size_t>(count));
    constexpr std::int64_t large = (std::int64_t{1} << 32) / 20;
    if (count >= large) {
        fill_large_randperm(permutation);
        return permutation;
    }
    std::iota(permutation.begin(), permutation.end(), std::int64_t{0});
    for (std::size_t i = 0; i + 1 < permutation.size(); ++i) {
        std::swap(permutation[i], permutation[i + next32() % (permutation.size() - i)]);
    }
    return permutation;
}

void TorchRng::fill_large_randperm(std::span<std::int64_t> out) {
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t other = next64() % (i + 1);
        out[i] = out[other];
        out[other] = static_cast<std::int64_t>(i);
    }
}

void TorchRng::fill_uniform(std::span<float> out, double low, double high) {
    uniform_elements(out, low, high);
}
void TorchRng::fill_uniform(std::span<bf16> out, double low, double high) {
    uniform_elements(out, low, high);
}
void TorchRng::fill_uniform(std::span<f16> out, double low, double high) {
    uniform_elements(out, low, high);
}
void TorchRng::fill_normal(std::span<float> out, double mean, double standard_deviation) {
    normal_elements(out, mean, standard_deviation);
}
void TorchRng::fill_normal(std::span<bf16> out, double mean, double standard_deviation) {
    normal_elements(out, mean, standard_deviation);
}
void TorchRng::fill_normal(std::span<f16> out, double mean, double standard_deviation) {
    normal_elements(out, mean, standard_deviation);
}
void TorchRng::normal_slice(const MatrixSlice& slice, std::span<float> out, double mean,
                            double standard_deviation) const {
    slice_elements(slice, out, mean, standard_deviation);
}
void TorchRng::normal_slice(const MatrixSlice& slice, std::span<bf16> out, double mean,
                            double standard_deviation) const {
    slice_elements(slice, out, mean, standard_deviation);
}
void TorchRng::normal_slice(const MatrixSlice& slice, std::span<f16> out, double mean,
                            double standard_deviation) const {
    slice_elements(slice, out, mean, standard_deviation);
}

}  // namespace drover
