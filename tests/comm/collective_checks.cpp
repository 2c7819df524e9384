#include "comm/collective_checks.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace drover::test {
namespace {

/// More than a piece of every reduction and than what a broadcast sends directly, given the tests' scratch
/// memory.
constexpr std::int64_t awkward_counts[] = {0, 1, 7, 1000, 20001};

/// Any rank can tell what another one has: element i of rank r's buffer number `salt`.
template <class T>
T element(int rank, std::int64_t i, int salt) {
    std::uint64_t x = static_cast<std::uint64_t>(i) * 1000003u + static_cast<std::uint64_t>(rank * 64 + salt);
    x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
    x ^= x >> 32;
    if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(x);
    } else {
        // Of different magnitudes, so that another order of summation would show.
        const int exponent = static_cast<int>(x >> 16 & 0xFFFF) % 24 - 24;
        return T(std::ldexp(static_cast<float>(x & 0xFFFF) - 32768.f, exponent));
    }
}

template <class T>
std::vector<T> buffer(int rank, std::int64_t count, int salt) {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = element<T>(rank, i, salt);
    return values;
}

/// What no element is, to see what was not written.
template <class T>
std::vector<T> unwritten(std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    if (count > 0) std::memset(values.data(), 0x5A, values.size() * sizeof(T));
    return values;
}

template <class T>
T reduced(Reduction reduction, int size, std::int64_t i, int salt) {
    using Wide = std::conditional_t<std::is_integral_v<T>,
                                    std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, int>>,
                                    std::conditional_t<std::is_same_v<T, double>, double, float>>;
    if (reduction == Reduction::max) {
        T best = element<T>(0, i, salt);
        for (int r = 1; r < size; ++r) {
            const T next = element<T>(r, i, salt);
            if constexpr (std::is_arithmetic_v<T>) {
                if (next > best) best = next;
            } else if (static_cast<float>(next) > static_cast<float>(best)) {
                best = next;
            }
        }
        return best;
    }
    Wide sum = static_cast<Wide>(element<T>(0, i, salt));
    for (int r = 1; r < size; ++r) sum = static_cast<Wide>(sum + static_cast<Wide>(element<T>(r, i, salt)));
    return static_cast<T>(sum);
}

template <class T>
Tensor tensor(std::vector<T>& values) {
    return Tensor::of(values.data(), {static_cast<std::int64_t>(values.size())});
}

template <class T, class Expected>
void expect(const std::vector<T>& got, const Expected& expected, std::string_view what,
            const Communicator& axis) {
    for (std::size_t i = 0; i < got.size(); ++i) {
        const T want = expected(static_cast<std::int64_t>(i));
        if (std::memcmp(&want, &got[i], sizeof(T)) != 0)
            throw std::runtime_error(fmt::format("{} of {} {} over {} ranks: element {} of rank {} is wrong",
                                                 what, got.size(), name_of(dtype_of<T>), axis.size(), i,
                                                 axis.rank()));
    }
}

/// The order of one rank's buffers as numbers from 0 on, so that each operation has other values.
struct Salt {
    int value = 0;
    int next() { return value = (value + 1) % 64; }
};

template <class T>
void check_all_reduce(Communicator& axis, std::int64_t count, Salt& salt) {
    for (const Reduction reduction : {Reduction::sum, Reduction::max}) {
        const int s = salt.next();
        auto x = buffer<T>(axis.rank(), count, s);
        axis.all_reduce({}, tensor(x), reduction);
        expect(
            x, [&](std::int64_t i) { return reduced<T>(reduction, axis.size(), i, s); }, "all_reduce", axis);
    }
}

template <class T>
void check_reduce_scatter(Communicator& axis, std::int64_t each, Salt& salt) {
    for (const bool in_place : {false, true}) {
        if (axis.size() == 1 && !in_place) continue;
        const int s = salt.next();
        auto whole = buffer<T>(axis.rank(), each * axis.size(), s);
        auto part = unwritten<T>(each);
        const Tensor own = tensor(whole).rows(each * axis.rank(), each);
        axis.reduce_scatter({}, tensor(whole), in_place ? own : tensor(part));
        if (in_place) std::copy_n(own.data<T>(), each, part.begin());
        const std::int64_t begin = each * axis.rank();
        expect(
            part, [&](std::int64_t i) { return reduced<T>(Reduction::sum, axis.size(), begin + i, s); },
            "reduce_scatter", axis);
    }
}

template <class T>
void check_all_gather(Communicator& axis, std::int64_t each, Salt& salt) {
    for (const bool in_place : {false, true}) {
        if (axis.size() == 1 && !in_place) continue;
        const int s = salt.next();
        auto part = buffer<T>(axis.rank(), each, s);
        auto whole = unwritten<T>(each * axis.size());
        const Tensor own = tensor(whole).rows(each * axis.rank(), each);
        if (in_place) std::copy(part.begin(), part.end(), own.data<T>());
        axis.all_gather({}, in_place ? own : tensor(part), tensor(whole));
        expect(
            whole, [&](std::int64_t i) { return element<T>(static_cast<int>(i / each), i % each, s); },
            "all_gather", axis);
    }
}

template <class T>
void check_broadcast(Communicator& axis, std::int64_t count, Salt& salt) {
    for (int root = 0; root < axis.size(); ++root) {
        const int s = salt.next();
        auto x = axis.rank() == root ? buffer<T>(root, count, s) : unwritten<T>(count);
        axis.broadcast({}, tensor(x), root);
        expect(
            x, [&](std::int64_t i) { return element<T>(root, i, s); }, "broadcast", axis);
    }
}

/// Rows of three elements; some ranks send nothing to some others.
template <class T>
void check_all_to_all(Communicator& axis, std::int64_t scale, Salt& salt) {
    const int s = salt.next();
    const auto rows = [&](int from, int to) -> std::int64_t {
        return (from + 2 * to) % 3 == 0 ? 0 : (scale + from) / (to + 1);
    };
    std::vector<std::int64_t> rows_to, rows_from;
    for (int r = 0; r < axis.size(); ++r) {
        rows_to.push_back(rows(axis.rank(), r));
        rows_from.push_back(rows(r, axis.rank()));
    }
    const auto sum = [](const std::vector<std::int64_t>& v) {
        return std::accumulate(v.begin(), v.end(), std::int64_t{0});
    };
    const std::int64_t spare = 2;  // rows of `to` that stay as they were
    auto from = buffer<T>(axis.rank(), sum(rows_to) * 3, s);
    auto to = unwritten<T>((sum(rows_from) + spare) * 3);
    const Tensor from_rows = Tensor::of(from.data(), {sum(rows_to), 3});
    const Tensor to_rows = Tensor::of(to.data(), {sum(rows_from) + spare, 3});
    if (axis.size() == 1) return axis.all_to_all({}, from_rows, rows_to, from_rows, rows_from);
    axis.all_to_all({}, from_rows, rows_to, to_rows, rows_from);

    auto expected = unwritten<T>(static_cast<std::int64_t>(to.size()));
    std::size_t place = 0;
    for (int r = 0; r < axis.size(); ++r) {
        std::int64_t before = 0;
        for (int q = 0; q < axis.rank(); ++q) before += rows(r, q);
        for (std::int64_t i = 0; i < rows(r, axis.rank()) * 3; ++i)
            expected[place++] = element<T>(r, before * 3 + i, s);
    }
    expect(
        to, [&](std::int64_t i) { return expected[static_cast<std::size_t>(i)]; }, "all_to_all", axis);
}

/// Everyone sends to the next rank and receives from the one before.
template <class T>
void check_ring(Communicator& axis, std::int64_t count, Salt& salt) {
    if (axis.size() == 1) return;
    const int s = salt.next();
    const int next = (axis.rank() + 1) % axis.size(), before = (axis.rank() + axis.size() - 1) % axis.size();
    auto out = buffer<T>(axis.rank(), count, s);
    auto in = unwritten<T>(count);
    Pending sent = axis.start_send({}, tensor(out), next);
    axis.receive({}, tensor(in), before);
    axis.wait({}, std::move(sent));
    expect(
        in, [&](std::int64_t i) { return element<T>(before, i, s); }, "receive", axis);
}

template <class T>
void check_moving(Communicator& axis, Salt& salt) {
    for (const std::int64_t count : awkward_counts) {
        check_all_gather<T>(axis, count, salt);
        check_broadcast<T>(axis, count, salt);
        check_all_to_all<T>(axis, count, salt);
        check_ring<T>(axis, count, salt);
    }
    axis.barrier({});
}

template <class T>
void check_reducing(Communicator& axis, Salt& salt) {
    for (const std::int64_t count : awkward_counts) {
        check_all_reduce<T>(axis, count, salt);
        check_reduce_scatter<T>(axis, count, salt);
    }
}

/// A NaN wins wherever it is; infinities are ordinary.
void check_max_of_special_values(Communicator& axis) {
    const float nan = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();
    for (int r = 0; r < axis.size(); ++r) {
        std::vector<float> x = {axis.rank() == r ? nan : 1.f, axis.rank() == r ? infinity : 1.f,
                                axis.rank() == r ? 1.f : -infinity};
        axis.all_reduce({}, tensor(x), Reduction::max);
        if (x[0] == x[0] || x[1] != infinity || x[2] != 1.f)
            throw std::runtime_error(fmt::format("max of special values gives {} {} {}", x[0], x[1], x[2]));
    }
}

}  // namespace

std::vector<int> all_ranks(const World& world) {
    std::vector<int> ranks(static_cast<std::size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

void check_collectives(World& world) {
    const auto axis = world.make_communicator("all", all_ranks(world));
    Salt salt;
    check_moving<float>(*axis, salt);
    check_moving<bf16>(*axis, salt);
    check_moving<f16>(*axis, salt);
    check_moving<double>(*axis, salt);
    check_moving<std::int32_t>(*axis, salt);
    check_moving<std::int64_t>(*axis, salt);
    check_moving<std::uint8_t>(*axis, salt);
    check_reducing<float>(*axis, salt);
    check_reducing<bf16>(*axis, salt);
    check_reducing<f16>(*axis, salt);
    check_reducing<double>(*axis, salt);
    check_reducing<std::int32_t>(*axis, salt);
    check_reducing<std::int64_t>(*axis, salt);
    check_max_of_special_values(*axis);
}

void check_overlap(World& world) {
    const auto axis = world.make_communicator("all", all_ranks(world));
    const int size = axis->size(), rank = axis->rank();
    if (size == 1) return;
    for (int repetition = 0; repetition < 20; ++repetition) {
        auto sum = buffer<float>(rank, 5000, 0);
        auto part = buffer<bf16>(rank, 3000, 1);
        auto whole = unwritten<bf16>(3000 * size);
        auto grads = buffer<double>(rank, 400 * size, 2);
        auto shard = unwritten<double>(400);
        auto out = buffer<std::int32_t>(rank, 77, 3);
        auto in = unwritten<std::int32_t>(77);
        auto x = rank == 0 ? buffer<float>(0, 10, 4) : unwritten<float>(10);
        const int next = (rank + 1) % size, before = (rank + size - 1) % size;

        Pending received = axis->start_receive({}, tensor(in), before);
        Pending reduced_sum = axis->start_all_reduce({}, tensor(sum), Reduction::sum);
        Pending gathered = axis->start_all_gather({}, tensor(part), tensor(whole));
        Pending scattered = axis->start_reduce_scatter({}, tensor(grads), tensor(shard));
        Pending sent = axis->start_send({}, tensor(out), next);
        Pending passed = axis->start_barrier({});
        {
            // Dropped: waits by itself.
            const Pending dropped = axis->start_broadcast({}, tensor(x), 0);
        }
        expect(
            x, [&](std::int64_t i) { return element<float>(0, i, 4); }, "dropped broadcast", *axis);
        // In another order on every rank.
        Pending* pending[] = {&received, &reduced_sum, &gathered, &scattered, &sent, &passed};
        for (int i = 0; i < 6; ++i) axis->wait({}, std::move(*pending[(i * 5 + rank + repetition) % 6]));

        expect(
            sum, [&](std::int64_t i) { return reduced<float>(Reduction::sum, size, i, 0); }, "all_reduce",
            *axis);
        expect(
            whole, [&](std::int64_t i) { return element<bf16>(static_cast<int>(i / 3000), i % 3000, 1); },
            "all_gather", *axis);
        expect(
            shard, [&](std::int64_t i) { return reduced<double>(Reduction::sum, size, 400 * rank + i, 2); },
            "reduce_scatter", *axis);
        expect(
            in, [&](std::int64_t i) { return element<std::int32_t>(before, i, 3); }, "receive", *axis);
    }
}

void check_mesh(World& world, int columns) {
    const int row = world.rank() / columns, column = world.rank() % columns, rows = world.size() / columns;
    std::vector<int> in_row, in_column;
    for (int c = 0; c < columns; ++c) in_row.push_back(row * columns + c);
    // Against the order of the world.
    for (int r = rows - 1; r >= 0; --r) in_column.push_back(r * columns + column);
    const auto tp = world.make_communicator("tp", in_row);
    const auto data = world.make_communicator("data", in_column);
    if (tp->rank() != column || data->rank() != rows - 1 - row)
        throw std::runtime_error("a rank stands in the wrong place of its axis");

    for (int repetition = 0; repetition < 10; ++repetition) {
        std::vector<float> a(3000, static_cast<float>(world.rank() + 1)), b = a;
        std::vector<float> all(static_cast<std::size_t>(3000 * rows));
        Pending gathered = data->start_all_gather({}, tensor(a), rows > 1 ? tensor(all) : tensor(a));
        tp->all_reduce({}, tensor(b), Reduction::sum);  // overtakes nothing, and is not overtaken
        Pending summed = data->start_all_reduce({}, tensor(b), Reduction::sum);
        tp->barrier({});
        data->wait({}, std::move(summed));
        data->wait({}, std::move(gathered));
        const float total = static_cast<float>(world.size() * (world.size() + 1) / 2);
        expect(
            b, [&](std::int64_t) { return total; }, "all_reduce over both axes", *data);
        if (rows > 1)
            expect(
                all,
                [&](std::int64_t i) {
                    return static_cast<float>(in_column[static_cast<std::size_t>(i / 3000)] + 1);
                },
                "all_gather beside another axis", *data);
    }
}

void check_messages(World& world) {
    const auto axis = world.make_communicator("pp", all_ranks(world));
    const auto other = world.make_communicator("other", all_ranks(world));
    const int size = world.size(), rank = world.rank();
    if (size == 1) return;
    // Rank 0 sends everything before the collectives that the others call first; each channel keeps its
    // order.
    constexpr int count = 12;
    std::vector<std::vector<std::int32_t>> boxes;
    std::vector<Pending> pending;
    std::vector<double> x(2000, 1.0);
    if (rank == 0) {
        for (int to = 1; to < size; ++to)
            for (int i = 0; i < count; ++i) boxes.push_back(buffer<std::int32_t>(to, i * 500, i));
        for (int i = 0; i < count; ++i)
            for (int to = 1; to < size; ++to)
                pending.push_back(
                    (i % 2 == 0 ? axis : other)
                        ->start_send({}, tensor(boxes[static_cast<std::size_t>((to - 1) * count + i)]), to));
        axis->all_reduce({}, tensor(x), Reduction::sum);
        for (std::size_t i = 0; i < pending.size(); ++i) {
            const std::size_t message = i / static_cast<std::size_t>(size - 1);
            (message % 2 == 0 ? axis : other)->wait({}, std::move(pending[i]));
        }
    } else {
        axis->all_reduce({}, tensor(x), Reduction::sum);
        for (const int parity : {1, 0})  // the other axis's messages first
            for (int i = parity; i < count; i += 2) {
                auto in = unwritten<std::int32_t>(i * 500);
                (parity == 0 ? axis : other)->receive({}, tensor(in), 0);
                expect(
                    in, [&](std::int64_t k) { return element<std::int32_t>(rank, k, i); }, "receive", *axis);
            }
    }
    expect(
        x, [&](std::int64_t) { return static_cast<double>(size); }, "all_reduce beside messages", *axis);
}

}  // namespace drover::test
