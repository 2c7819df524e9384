#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "comm/world.h"

namespace drover::test {

/// What is tested: a world's own communicators, or another carrier's.
struct Carrier {
    // NOLINTNEXTLINE: a world is a carrier.
    Carrier(World& of_world) : world(of_world) {}
    Carrier(World& of_world, MakeCommunicator other_make, Backend* other_backend, bool is_exact)
        : world(of_world), make_other(std::move(other_make)), backend(other_backend), exact(is_exact) {}

    World& world;
    MakeCommunicator make_other = {};  ///< empty: the world's
    Backend* backend = nullptr;        ///< owns the operands' memory; null: they are on the host
    bool exact = true;                 ///< sums are in rank order and rounded once; a NaN is the largest

    std::unique_ptr<Communicator> make(std::string axis, std::vector<int> ranks) const {
        return make_other ? make_other(std::move(axis), std::move(ranks))
                          : world.make_communicator(std::move(axis), std::move(ranks));
    }
    Stream stream() const { return backend != nullptr ? backend->main_stream() : Stream{}; }
};

/// Elements in the memory that the carrier needs.
template <class T>
class Buffer {
  public:
    Buffer(const Carrier& at, std::vector<T> values) : at_(&at), values_(std::move(values)) {
        if (at.backend == nullptr) return;
        memory_ = at.backend->allocate(values_.size() * sizeof(T));
        at.backend->copy(at.stream(), on_host(), tensor());
        at.backend->synchronize(at.stream());
    }

    Tensor tensor() const {
        if (at_->backend == nullptr) return on_host();
        return Tensor(memory_.get(), dtype_of<T>, on_host().shape(), at_->backend->device());
    }
    operator Tensor() const { return tensor(); }

    /// The elements as they are now.
    const std::vector<T>& values() {
        if (at_->backend != nullptr) {
            at_->backend->copy(at_->stream(), tensor(), on_host());
            at_->backend->synchronize(at_->stream());
        }
        return values_;
    }

  private:
    Tensor on_host() const { return Tensor::of(values_.data(), {static_cast<std::int64_t>(values_.size())}); }

    const Carrier* at_;
    std::vector<T> values_;
    MemoryBlock memory_;
};

/// A function of its arguments, so that any rank can compute another's: element i of rank r's buffer `salt`.
template <class T>
T element(int rank, std::int64_t i, int salt) {
    std::uint64_t x = static_cast<std::uint64_t>(i) * 1000003u + static_cast<std::uint64_t>(rank * 64 + salt);
    x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
    x ^= x >> 32;
    if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(x);
    } else {
        // Of different magnitudes, so that a different order of summation would show.
        const int exponent = static_cast<int>(x >> 16 & 0xFFFF) % 24 - 24;
        return T(std::ldexp(static_cast<float>(x & 0xFFFF) - 32768.f, exponent));
    }
}

template <class T>
std::vector<T> elements(int rank, std::int64_t count, int salt) {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = element<T>(rank, i, salt);
    return values;
}

/// A value that no element has, to detect what was not written.
template <class T>
std::vector<T> unwritten(std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    if (count > 0) std::memset(values.data(), 0x5A, values.size() * sizeof(T));
    return values;
}

/// The reduction over `size` ranks of element i, in rank order.
template <class T>
T reduced(Reduction reduction, int size, std::int64_t i, int salt) {
    using Wide = std::conditional_t<std::is_integral_v<T>,
                                    std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, int>>,
                                    std::conditional_t<std::is_same_v<T, double>, double, float>>;
    if (reduction != Reduction::sum) {
        T best = element<T>(0, i, salt);
        for (int r = 1; r < size; ++r) {
            const T next = element<T>(r, i, salt);
            bool better = false;
            if constexpr (std::is_arithmetic_v<T>)
                better = reduction == Reduction::max ? next > best : next < best;
            else
                better = reduction == Reduction::max ? static_cast<float>(next) > static_cast<float>(best)
                                                     : static_cast<float>(next) < static_cast<float>(best);
            if (better) best = next;
        }
        return best;
    }
    Wide sum = static_cast<Wide>(element<T>(0, i, salt));
    for (int r = 1; r < size; ++r) sum = static_cast<Wide>(sum + static_cast<Wide>(element<T>(r, i, salt)));
    return static_cast<T>(sum);
}

template <class T>
double as_double(T value) {
    if constexpr (std::is_arithmetic_v<T>)
        return static_cast<double>(value);
    else
        return static_cast<double>(static_cast<float>(value));
}

/// How far a sum may be from `reduced` when every partial sum is rounded, in any order.
template <class T>
double sum_slack(const Carrier& at, int size, std::int64_t i, int salt) {
    if (at.exact || std::is_integral_v<T>) return 0;
    const double step = std::is_same_v<T, double>  ? 0x1p-52
                        : std::is_same_v<T, float> ? 0x1p-23
                        : std::is_same_v<T, f16>   ? 0x1p-10
                                                   : 0x1p-7;
    double magnitude = 0;
    for (int r = 0; r < size; ++r) magnitude += std::fabs(as_double(element<T>(r, i, salt)));
    // Subnormal f16 numbers have fewer bits.
    return size * (step * magnitude + (std::is_same_v<T, f16> ? 0x1p-24 : 0));
}

/// Throws unless got[i] has the bits of expected(i), or is closer to it than slack(i).
template <class T, class Expected, class Slack>
void expect_near(const std::vector<T>& got, const Expected& expected, const Slack& slack,
                 std::string_view what, const Communicator& axis) {
    for (std::size_t i = 0; i < got.size(); ++i) {
        const auto index = static_cast<std::int64_t>(i);
        const T want = expected(index);
        if (std::memcmp(&want, &got[i], sizeof(T)) == 0) continue;
        const double allowed = slack(index);
        if (allowed > 0 && std::fabs(as_double(want) - as_double(got[i])) <= allowed) continue;
        throw std::runtime_error(fmt::format(
            "{} of {} {} over {} ranks: element {} of rank {} is {} instead of {}", what, got.size(),
            name_of(dtype_of<T>), axis.size(), i, axis.rank(), as_double(got[i]), as_double(want)));
    }
}

template <class T, class Expected>
void expect(const std::vector<T>& got, const Expected& expected, std::string_view what,
            const Communicator& axis) {
    expect_near(
        got, expected, [](std::int64_t) { return 0.0; }, what, axis);
}

/// The sum over the axis's ranks of their elements from `begin` on.
template <class T>
void expect_sum(const Carrier& at, const std::vector<T>& got, std::int64_t begin, int salt,
                std::string_view what, const Communicator& axis) {
    expect_near(
        got, [&](std::int64_t i) { return reduced<T>(Reduction::sum, axis.size(), begin + i, salt); },
        [&](std::int64_t i) { return sum_slack<T>(at, axis.size(), begin + i, salt); }, what, axis);
}

}  // namespace drover::test
