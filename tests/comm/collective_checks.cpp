#include "comm/collective_checks.h"

#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>

namespace drover::test {
namespace {

/// More than one piece of every reduction and more than a broadcast sends directly, given the tests' scratch
/// memory.
constexpr std::int64_t awkward_counts[] = {0, 1, 7, 1000, 20001};

/// An axis of a carrier, with a counter for the rank's buffers, so that each operation has different values.
struct Checked {
    const Carrier& at;
    Communicator& axis;
    int salt = 0;

    int next_salt() { return salt = (salt + 1) % 64; }
    Stream stream() const { return at.stream(); }
};

template <class T>
void check_all_reduce(Checked& c, std::int64_t count) {
    for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
        const int s = c.next_salt();
        Buffer<T> x(c.at, elements<T>(c.axis.rank(), count, s));
        c.axis.all_reduce(c.stream(), x, reduction);
        if (reduction == Reduction::sum)
            expect_sum(c.at, x.values(), 0, s, "all_reduce", c.axis);
        else
            expect(
                x.values(), [&](std::int64_t i) { return reduced<T>(reduction, c.axis.size(), i, s); },
                name_of(reduction), c.axis);
    }
}

template <class T>
void check_reduce_scatter(Checked& c, std::int64_t each) {
    for (const bool in_place : {false, true}) {
        if (c.axis.idle() && !in_place) continue;
        const int s = c.next_salt();
        Buffer<T> whole(c.at, elements<T>(c.axis.rank(), each * c.axis.size(), s));
        Buffer<T> part(c.at, unwritten<T>(each));
        const std::int64_t begin = each * c.axis.rank();
        c.axis.reduce_scatter(c.stream(), whole, in_place ? whole.tensor().rows(begin, each) : part);
        std::vector<T> got = part.values();
        if (in_place) std::copy_n(whole.values().begin() + begin, each, got.begin());
        expect_sum(c.at, got, begin, s, "reduce_scatter", c.axis);
    }
}

template <class T>
void check_all_gather(Checked& c, std::int64_t each) {
    for (const bool in_place : {false, true}) {
        if (c.axis.idle() && !in_place) continue;
        const int s = c.next_salt();
        const std::vector<T> own = elements<T>(c.axis.rank(), each, s);
        std::vector<T> whole_before = unwritten<T>(each * c.axis.size());
        const std::int64_t begin = each * c.axis.rank();
        if (in_place) std::copy(own.begin(), own.end(), whole_before.begin() + begin);
        Buffer<T> part(c.at, own), whole(c.at, whole_before);
        c.axis.all_gather(c.stream(), in_place ? whole.tensor().rows(begin, each) : part, whole);
        expect(
            whole.values(),
            [&](std::int64_t i) { return element<T>(static_cast<int>(i / each), i % each, s); }, "all_gather",
            c.axis);
    }
}

template <class T>
void check_broadcast(Checked& c, std::int64_t count) {
    for (int root = 0; root < c.axis.size(); ++root) {
        const int s = c.next_salt();
        Buffer<T> x(c.at, c.axis.rank() == root ? elements<T>(root, count, s) : unwritten<T>(count));
        c.axis.broadcast(c.stream(), x, root);
        expect(
            x.values(), [&](std::int64_t i) { return element<T>(root, i, s); }, "broadcast", c.axis);
    }
}

/// Rows of three elements; some ranks send nothing to some others.
template <class T>
void check_all_to_all(Checked& c, std::int64_t scale) {
    const int s = c.next_salt();
    const int size = c.axis.size(), rank = c.axis.rank();
    const auto rows = [&](int from, int to) -> std::int64_t {
        return (from + 2 * to) % 3 == 0 ? 0 : (scale + from) / (to + 1);
    };
    std::vector<std::int64_t> rows_to, rows_from;
    for (int r = 0; r < size; ++r) {
        rows_to.push_back(rows(rank, r));
        rows_from.push_back(rows(r, rank));
    }
    const auto sum = [](const std::vector<std::int64_t>& v) {
        return std::accumulate(v.begin(), v.end(), std::int64_t{0});
    };
    const std::int64_t spare = 2;  // rows of `to` that stay unchanged
    const std::int64_t sent = sum(rows_to), received = sum(rows_from) + spare;
    Buffer<T> from(c.at, elements<T>(rank, sent * 3, s));
    Buffer<T> to(c.at, unwritten<T>(received * 3));
    const Tensor from_rows = from.tensor().view({sent, 3}), to_rows = to.tensor().view({received, 3});
    if (size == 1) return c.axis.all_to_all(c.stream(), from_rows, rows_to, from_rows, rows_from);
    c.axis.all_to_all(c.stream(), from_rows, rows_to, to_rows, rows_from);

    auto expected = unwritten<T>(received * 3);
    std::size_t place = 0;
    for (int r = 0; r < size; ++r) {
        std::int64_t before = 0;
        for (int q = 0; q < rank; ++q) before += rows(r, q);
        for (std::int64_t i = 0; i < rows(r, rank) * 3; ++i)
            expected[place++] = element<T>(r, before * 3 + i, s);
    }
    expect(
        to.values(), [&](std::int64_t i) { return expected[static_cast<std::size_t>(i)]; }, "all_to_all",
        c.axis);
}

/// Every rank sends to the next and receives from the previous one.
template <class T>
void check_ring(Checked& c, std::int64_t count) {
    const int size = c.axis.size(), rank = c.axis.rank();
    if (size == 1) return;
    const int s = c.next_salt();
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    Buffer<T> out(c.at, elements<T>(rank, count, s)), in(c.at, unwritten<T>(count));
    Pending sent = c.axis.start_send(c.stream(), out, next);
    c.axis.receive(c.stream(), in, before);
    c.axis.wait(c.stream(), std::move(sent));
    expect(
        in.values(), [&](std::int64_t i) { return element<T>(before, i, s); }, "receive", c.axis);
}

template <class T>
void check_moving(Checked& c) {
    for (const std::int64_t count : awkward_counts) {
        check_all_gather<T>(c, count);
        check_broadcast<T>(c, count);
        check_all_to_all<T>(c, count);
        check_ring<T>(c, count);
    }
    c.axis.barrier(c.stream());
}

template <class T>
void check_reducing(Checked& c) {
    for (const std::int64_t count : awkward_counts) {
        check_all_reduce<T>(c, count);
        check_reduce_scatter<T>(c, count);
    }
}

/// A NaN wins at any position (if the carrier is exact); infinities are ordinary.
void check_max_of_special_values(const Checked& c) {
    const float nan = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();
    for (int r = 0; r < c.axis.size(); ++r) {
        const bool mine = c.axis.rank() == r;
        Buffer<float> buffer(c.at,
                             {mine && c.at.exact ? nan : 1.f, mine ? infinity : 1.f, mine ? 1.f : -infinity});
        c.axis.all_reduce(c.stream(), buffer, Reduction::max);
        const std::vector<float>& x = buffer.values();
        if ((c.at.exact ? x[0] == x[0] : x[0] != 1.f) || x[1] != infinity || x[2] != 1.f)
            throw std::runtime_error(fmt::format("max of special values gives {} {} {}", x[0], x[1], x[2]));
    }
}

}  // namespace

std::vector<int> all_ranks(const World& world) {
    std::vector<int> ranks(static_cast<std::size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

void check_collectives(const Carrier& at) {
    const auto axis = at.make("all", all_ranks(at.world));
    Checked c{at, *axis};
    check_moving<float>(c);
    check_moving<bf16>(c);
    check_moving<f16>(c);
    check_moving<double>(c);
    check_moving<std::int32_t>(c);
    check_moving<std::int64_t>(c);
    check_moving<std::uint8_t>(c);
    check_reducing<float>(c);
    check_reducing<bf16>(c);
    check_reducing<f16>(c);
    check_reducing<double>(c);
    check_reducing<std::int32_t>(c);
    check_reducing<std::int64_t>(c);
    check_max_of_special_values(c);
}

void check_overlap(const Carrier& at) {
    const auto axis = at.make("all", all_ranks(at.world));
    const int size = axis->size(), rank = axis->rank();
    if (size == 1) return;
    const Stream stream = at.stream();
    for (int repetition = 0; repetition < 20; ++repetition) {
        Buffer<float> sum(at, elements<float>(rank, 5000, 0));
        Buffer<bf16> part(at, elements<bf16>(rank, 3000, 1));
        Buffer<bf16> whole(at, unwritten<bf16>(3000 * size));
        Buffer<double> grads(at, elements<double>(rank, 400 * size, 2));
        Buffer<double> shard(at, unwritten<double>(400));
        Buffer<std::int32_t> out(at, elements<std::int32_t>(rank, 77, 3));
        Buffer<std::int32_t> in(at, unwritten<std::int32_t>(77));
        Buffer<float> x(at, rank == 0 ? elements<float>(0, 10, 4) : unwritten<float>(10));
        const int next = (rank + 1) % size, before = (rank + size - 1) % size;

        Pending received = axis->start_receive(stream, in, before);
        Pending reduced_sum = axis->start_all_reduce(stream, sum, Reduction::sum);
        Pending gathered = axis->start_all_gather(stream, part, whole);
        Pending scattered = axis->start_reduce_scatter(stream, grads, shard);
        Pending sent = axis->start_send(stream, out, next);
        Pending passed = axis->start_barrier(stream);
        {
            // Dropped: waits by itself.
            const Pending dropped = axis->start_broadcast(stream, x, 0);
        }
        expect(
            x.values(), [&](std::int64_t i) { return element<float>(0, i, 4); }, "dropped broadcast", *axis);
        // In a different order on every rank.
        Pending* pending[] = {&received, &reduced_sum, &gathered, &scattered, &sent, &passed};
        for (int i = 0; i < 6; ++i) axis->wait(stream, std::move(*pending[(i * 5 + rank + repetition) % 6]));

        expect_sum(at, sum.values(), 0, 0, "all_reduce", *axis);
        expect(
            whole.values(),
            [&](std::int64_t i) { return element<bf16>(static_cast<int>(i / 3000), i % 3000, 1); },
            "all_gather", *axis);
        expect_sum(at, shard.values(), 400 * rank, 2, "reduce_scatter", *axis);
        expect(
            in.values(), [&](std::int64_t i) { return element<std::int32_t>(before, i, 3); }, "receive",
            *axis);
    }
}

void check_mesh(const Carrier& at, int columns) {
    const World& world = at.world;
    const int row = world.rank() / columns, column = world.rank() % columns, rows = world.size() / columns;
    std::vector<int> in_row, in_column;
    for (int c = 0; c < columns; ++c) in_row.push_back(row * columns + c);
    // In the reverse order of the world.
    for (int r = rows - 1; r >= 0; --r) in_column.push_back(r * columns + column);
    const auto tp = at.make("tp", in_row);
    const auto data = at.make("data", in_column);
    if (tp->rank() != column || data->rank() != rows - 1 - row)
        throw std::runtime_error("a rank stands in the wrong place of its axis");

    const Stream stream = at.stream();
    for (int repetition = 0; repetition < 10; ++repetition) {
        const std::vector<float> own(3000, static_cast<float>(world.rank() + 1));
        Buffer<float> a(at, own), b(at, own);
        Buffer<float> all(at, unwritten<float>(3000 * rows));
        Pending gathered = data->start_all_gather(stream, a, rows > 1 ? all : a);
        tp->all_reduce(stream, b, Reduction::sum);  // overtakes nothing, and is not overtaken
        Pending summed = data->start_all_reduce(stream, b, Reduction::sum);
        tp->barrier(stream);
        data->wait(stream, std::move(summed));
        data->wait(stream, std::move(gathered));
        const float total = static_cast<float>(world.size() * (world.size() + 1) / 2);
        expect(
            b.values(), [&](std::int64_t) { return total; }, "all_reduce over both axes", *data);
        if (rows > 1)
            expect(
                all.values(),
                [&](std::int64_t i) {
                    return static_cast<float>(in_column[static_cast<std::size_t>(i / 3000)] + 1);
                },
                "all_gather beside another axis", *data);
    }
}

void check_groups(const Carrier& at) {
    const auto axis = at.make("data", all_ranks(at.world));
    std::vector<int> backwards = all_ranks(at.world);
    std::reverse(backwards.begin(), backwards.end());
    const auto other = at.make("backwards", backwards);
    const int size = axis->size(), rank = axis->rank();
    const Stream stream = at.stream();
    for (int repetition = 0; repetition < 5; ++repetition) {
        std::vector<Buffer<float>> parts, wholes;
        Buffer<std::int64_t> sum(at, elements<std::int64_t>(rank, 500, 9));
        for (int i = 0; i < 8; ++i) {
            parts.emplace_back(at, elements<float>(rank, i * 100, i));
            wholes.emplace_back(at, unwritten<float>(i * 100 * size));
        }
        std::vector<Pending> pending;
        axis->together(stream, [] {});
        axis->together(stream, [&] {
            for (std::size_t i = 0; i < parts.size(); ++i)
                pending.push_back(axis->start_all_gather(stream, parts[i], size > 1 ? wholes[i] : parts[i]));
            pending.push_back(axis->start_all_reduce(stream, sum, Reduction::sum));
        });
        // The sum of the sums, before any of them was waited for.
        for (const Pending& earlier : pending) other->follow(earlier);
        Pending again = other->start_all_reduce(stream, sum, Reduction::sum);
        for (Pending& gathered : pending) gathered.wait(stream);
        again.wait(stream);
        for (std::size_t i = 0; i < parts.size() && size > 1; ++i) {
            const auto each = static_cast<std::int64_t>(i) * 100;
            expect(
                wholes[i].values(),
                [&](std::int64_t k) {
                    return element<float>(static_cast<int>(k / each), k % each, static_cast<int>(i));
                },
                "all_gather in a group", *axis);
        }
        expect(
            sum.values(),
            [&](std::int64_t i) {
                const auto once =
                    static_cast<std::uint64_t>(reduced<std::int64_t>(Reduction::sum, size, i, 9));
                return static_cast<std::int64_t>(once * static_cast<std::uint64_t>(size));
            },
            "all_reduce that follows another axis", *other);
    }
}

void check_messages(const Carrier& at) {
    const auto axis = at.make("pp", all_ranks(at.world));
    const auto other = at.make("other", all_ranks(at.world));
    const int size = axis->size(), rank = axis->rank();
    if (size == 1) return;
    const Stream stream = at.stream();
    // Rank 0 sends everything before the collectives that the others call first; each channel keeps its
    // order.
    constexpr int count = 12;
    std::vector<Buffer<std::int32_t>> boxes;
    std::vector<Pending> pending;
    Buffer<double> x(at, std::vector<double>(2000, 1.0));
    if (rank == 0) {
        for (int to = 1; to < size; ++to)
            for (int i = 0; i < count; ++i) boxes.emplace_back(at, elements<std::int32_t>(to, i * 500, i));
        for (int i = 0; i < count; ++i)
            for (int to = 1; to < size; ++to)
                pending.push_back(
                    (i % 2 == 0 ? axis : other)
                        ->start_send(stream, boxes[static_cast<std::size_t>((to - 1) * count + i)], to));
        axis->all_reduce(stream, x, Reduction::sum);
        for (std::size_t i = 0; i < pending.size(); ++i) {
            const std::size_t message = i / static_cast<std::size_t>(size - 1);
            (message % 2 == 0 ? axis : other)->wait(stream, std::move(pending[i]));
        }
    } else {
        axis->all_reduce(stream, x, Reduction::sum);
        for (const int parity : {1, 0})  // the other axis's messages first
            for (int i = parity; i < count; i += 2) {
                Buffer<std::int32_t> in(at, unwritten<std::int32_t>(i * 500));
                (parity == 0 ? axis : other)->receive(stream, in, 0);
                expect(
                    in.values(), [&](std::int64_t k) { return element<std::int32_t>(rank, k, i); }, "receive",
                    *axis);
            }
    }
    expect(
        x.values(), [&](std::int64_t) { return static_cast<double>(size); }, "all_reduce beside messages",
        *axis);
}

void check_notes(World& world) {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<int, std::vector<std::int64_t>> heard;  // second numbers of notes, by rank
    world.on_note([&](int from, const Note& note) {
        {
            const std::lock_guard lock(mutex);
            if (note[0] == from) heard[from].push_back(note[1]);
        }
        changed.notify_all();
    });
    const auto axis = world.make_communicator("notes", all_ranks(world));
    axis->barrier({});
    constexpr int count = 5;
    for (int i = 0; i < count; ++i)
        for (int rank = 0; rank < world.size(); ++rank)
            if (rank != world.rank()) world.send_note(rank, {world.rank(), i});
    bool complete = false;
    {
        std::unique_lock lock(mutex);
        complete = changed.wait_for(lock, world.options().deadline, [&] {
            std::size_t notes = 0;
            for (const auto& [rank, numbers] : heard) notes += numbers.size();
            return notes == static_cast<std::size_t>(count * (world.size() - 1));
        });
    }
    axis->barrier({});
    world.on_note({});
    if (!complete) throw std::runtime_error("notes were lost");
    for (const auto& [rank, numbers] : heard)
        if (numbers != std::vector<std::int64_t>{0, 1, 2, 3, 4})
            throw std::runtime_error(fmt::format("notes of rank {} came in another order", rank));
}

}  // namespace drover::test
