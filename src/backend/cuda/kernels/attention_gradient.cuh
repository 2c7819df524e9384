#pragma once

#include "backend/cuda/kernels/eight_elements.cuh"
#include "backend/cuda/kernels/exponentials.cuh"
#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/tile_results.cuh"

/// Attention's gradients on Hopper, in one pass over the scores.
///
/// A block of threads takes tasks: 128 keys of one key/value head. It goes through the blocks of queries that
/// see them, the last first, for one query head of the group after the other, and sums up dk and dv in
/// registers. What it finds for dq is added to sums in memory (fp32). The tiles of a sequence add to a
/// block's sums in their order, first the tile of the first keys, so the bits are the same every time. The
/// last one, which has the queries' own keys, rounds the sums instead and writes dq.
///
/// Tiles are taken in order: those of the first keys of all heads of a few sequences, then their next ones. A
/// tile waits only for earlier ones of its sequence and head, which were taken before, so nothing waits for
/// ever. Earlier tiles have more queries, go through them in the same order and began before, so hardly
/// anything waits at all; and the shortest come last, so that all multiprocessors end at about the same time.
///
/// Scores are transposed, [keys,queries], so that they are operands in registers for dk and dv. Two
/// warpgroups have 64 keys each. For dq each needs the gradients of all scores, which go through shared
/// memory, and computes half of it: half of a head (of 128 columns), or half of the queries.
namespace drover::cuda::attention_gradient {

constexpr int tile_keys = 128;
constexpr int multiplying_groups = 2;
constexpr int multiplying_threads = 128 * multiplying_groups;
constexpr int threads = 128 + multiplying_threads;
/// Steps whose queries are in shared memory at a time.
constexpr int stages = 2;

/// `head` columns, 64 or 128; smaller heads are filled up with zeros.
template <int head>
struct TileSizes {
    static constexpr int step_queries = head == 64 ? 128 : 64;
    static constexpr int blocks_of_tile = tile_keys / step_queries;
    /// Operands lie in blocks of 64 columns.
    static constexpr int key_block_bytes = tile_keys * 128, query_block_bytes = step_queries * 128;
    static constexpr int column_blocks = head / 64;
    static constexpr int key_bytes = column_blocks * key_block_bytes;
    static constexpr int query_bytes = column_blocks * query_block_bytes;
    static constexpr int sums_of_step = step_queries * head;
    static constexpr int statistics_of_step = 2 * step_queries;
    /// Steps whose dq waits in shared memory, as many as there is room for. Each buffer has a thread that
    /// adds it to the sums: an addition takes about as long as a step until others may see it.
    static constexpr int dq_buffers = head == 64 ? 1 : 2;
};

/// Heads of sequences whose tiles are taken in turn, at most, unless one sequence has more. A few tiles of a
/// head that run at the same time find its queries and sums in the cache; many would wait for each other.
constexpr int heads_together = 48;

/// A tile of keys: its sequence's tokens, its number among all tiles where those of a sequence follow each
/// other, and the number of its sequence's first. No tokens where there is no such tile.
struct SequenceTile {
    int begin, length, number, first_number;
};

/// How many sequences' tiles are taken in turn.
__host__ __device__ inline int sequences_together(int sequences, int key_heads) {
    const int most = max(1, min(sequences, heads_together / key_heads));
    const int parts = (sequences + most - 1) / most;
    return parts == 0 ? 1 : (sequences + parts - 1) / parts;
}

/// The place of tile `index` of a sequence in the order in which tiles are taken. first_number[s] counts the
/// tiles of all sequences before s.
__device__ inline int place_in_order(const int* first_number, int sequences, int together, int sequence,
                                     int index) {
    const int first = sequence / together * together, end = min(sequences, first + together);
    int place = first_number[first];
    for (int other = first; other < end; ++other) {
        const int tiles = first_number[other + 1] - first_number[other];
        place += min(tiles, other < sequence ? index + 1 : index);
    }
    return place;
}

/// All tiles in the order in which they are taken. After the last one come some without tokens.
struct TileList {
    const SequenceTile* tiles;  ///< null: all sequences have the same length, and follow each other
    int count;
    int sequences, length, together;  ///< of the same length

    __device__ SequenceTile operator[](int place) const {
        if (place >= count) return {};
        if (tiles != nullptr) return tiles[place];
        const int of_sequence = (length + tile_keys - 1) / tile_keys;
        const int first = place / (together * of_sequence) * together;
        const int in_turn = min(together, sequences - first), within = place - first * of_sequence;
        const int sequence = first + within % in_turn, first_number = sequence * of_sequence;
        return {.begin = sequence * length,
                .length = length,
                .number = first_number + within / in_turn,
                .first_number = first_number};
    }
};

/// A tensor [N,heads,D].
struct Place {
    void* start;
    std::int64_t token_stride, head_stride;

    template <class T>
    __device__ T* at(std::int64_t token, int head) const {
        return static_cast<T*>(start) + token * token_stride + head * head_stride;
    }
};

struct Problem {
    TileList tiles;
    int first_key_head = 0, key_heads = 0;  ///< those that are worked on
    int group;                              ///< query heads of a key/value head
    int head_size;
    int window;  ///< 0: none
    float scale;
    Place dq, dk, dv;

    // By block of queries and, within, query head (of those that are worked on).
    float* statistics;  ///< of each query log2 of the sum of exponentials; then of each Σ dout · out
    float* sums;        ///< dq as far as it is added up, as the warpgroups' registers hold it
    int* turns;         ///< how many tiles have added to the sums
    int* tickets;       ///< how many tiles were taken

    __device__ int heads() const { return key_heads * group; }
};

/// A tile of one key/value head, and the blocks of queries that see some of its keys.
template <int head>
struct Task {
    using Sizes = TileSizes<head>;

    int begin = 0, length = 0;         ///< of the sequence
    int index = 0;                     ///< of the tile in its sequence
    int key_head = 0;                  ///< of those that are worked on
    int first_query_block = 0;         ///< of the sequence, among all
    int from_block = 0, to_block = 0;  ///< of the sequence's blocks, [from, to)

    /// Ticket numbers go through the heads of a tile, then through the tiles. Behind the last one: length 0.
    __device__ static Task of_ticket(const Problem& problem, int ticket) {
        Task task;
        const SequenceTile tile = problem.tiles[ticket / problem.key_heads];
        task.begin = tile.begin;
        task.length = tile.length;
        if (task.length == 0) return task;
        task.index = tile.number - tile.first_number;
        task.key_head = ticket % problem.key_heads;
        task.first_query_block = tile.first_number * Sizes::blocks_of_tile;
        task.from_block = task.index * Sizes::blocks_of_tile;
        int last_query = task.length - 1;
        if (problem.window > 0)
            last_query = min(last_query, (task.index + 1) * tile_keys - 1 + problem.window - 1);
        task.to_block = last_query / Sizes::step_queries + 1;
        return task;
    }

    __device__ int first_key() const { return index * tile_keys; }
    /// How many tiles add to a block of queries before this one.
    __device__ int turn(const Problem& problem, int block) const {
        const int seen = problem.window > 0 ? max(0, block * Sizes::step_queries - problem.window + 1) : 0;
        return index - seen / tile_keys;
    }
    /// Whether no tile after this one adds to it.
    __device__ bool is_last(int block) const { return block / Sizes::blocks_of_tile == index; }
    /// Whether some of the block's queries do not see some of the tile's keys.
    __device__ bool is_cut(const Problem& problem, int block) const {
        const int first_query = block * Sizes::step_queries;
        return first_query < first_key() + tile_keys - 1 ||
               (problem.window > 0 && first_query + Sizes::step_queries - 1 - first_key() >= problem.window);
    }
    __device__ std::int64_t place(const Problem& problem, int block, int of_group) const {
        return std::int64_t{first_query_block + block} * problem.heads() + key_head * problem.group +
               of_group;
    }
    __device__ int steps(const Problem& problem) const { return problem.group * (to_block - from_block); }
    /// Calls body(block, query head of the group) for every step.
    template <class Body>
    __device__ void for_each_step(const Problem& problem, const Body& body) const {
        for (int of_group = 0; of_group < problem.group; ++of_group)
            for (int block = to_block - 1; block >= from_block; --block) body(block, of_group);
    }
};

struct Maps {
    CUtensorMap q, k, v, dout;
};

/// A block's shared memory.
template <int head>
struct Memory {
    using Sizes = TileSizes<head>;

    unsigned char k[Sizes::key_bytes], v[Sizes::key_bytes];
    unsigned char q[stages][Sizes::query_bytes], dout[stages][Sizes::query_bytes];
    /// Gradients of the scores, in rows of keys; one step's may be written while products of the one before
    /// still read its own.
    unsigned char dscores[stages][Sizes::step_queries / 64 * Sizes::key_block_bytes];
    float dq[Sizes::dq_buffers][Sizes::sums_of_step];
    float statistics[stages][Sizes::statistics_of_step];
    /// The block's task and the next. Threads read it here whenever they need it; they have no registers left
    /// for it.
    Task<head> task[2];
    std::uint64_t task_full[2], task_empty[2], keys_full, keys_empty, full[stages], empty[stages],
        dq_full[Sizes::dq_buffers], dq_empty[Sizes::dq_buffers];
};
template <int head>
constexpr int dynamic_bytes = sizeof(Memory<head>) + 1024;

/// One thread: takes tasks until there are none, and brings their keys, values and then each step's queries
/// into shared memory.
template <int head>
__device__ void load(const Maps& maps, const Problem& problem, Memory<head>& memory) {
    using Sizes = TileSizes<head>;
    RingPlace<2> own;
    RingPlace<stages> place;
    for (;; own.next()) {
        Task<head>& task = memory.task[own.stage];
        barrier_wait(&memory.task_empty[own.stage], own.parity ^ 1);
        task = Task<head>::of_ticket(problem, atomicAdd(problem.tickets, 1));
        barrier_arrive(&memory.task_full[own.stage]);
        if (task.length == 0) return;

        const int key_head = problem.first_key_head + task.key_head;
        // Keys have one place, so their barriers' parity is the task's stage.
        barrier_wait(&memory.keys_empty, own.stage ^ 1);
        barrier_arrive_expecting(&memory.keys_full, 2 * Sizes::key_bytes);
#pragma unroll
        for (int i = 0; i < Sizes::column_blocks; ++i) {
            const int token = task.begin + task.first_key(), at = i * Sizes::key_block_bytes;
            load_box(memory.k + at, maps.k, 64 * i, token, key_head, &memory.keys_full);
            load_box(memory.v + at, maps.v, 64 * i, token, key_head, &memory.keys_full);
        }
        task.for_each_step(problem, [&](int block, int of_group) {
            std::uint64_t* const full = &memory.full[place.stage];
            constexpr int statistics_bytes = Sizes::statistics_of_step * sizeof(float);
            barrier_wait(&memory.empty[place.stage], place.parity ^ 1);
            barrier_arrive_expecting(full, 2 * Sizes::query_bytes + statistics_bytes);
#pragma unroll
            for (int i = 0; i < Sizes::column_blocks; ++i) {
                const int token = task.begin + block * Sizes::step_queries, at = i * Sizes::query_block_bytes;
                const int own_head = key_head * problem.group + of_group;
                load_box(memory.q[place.stage] + at, maps.q, 64 * i, token, own_head, full);
                load_box(memory.dout[place.stage] + at, maps.dout, 64 * i, token, own_head, full);
            }
            load_bytes(memory.statistics[place.stage],
                       problem.statistics + task.place(problem, block, of_group) * Sizes::statistics_of_step,
                       statistics_bytes, full);
            place.next();
        });
    }
}

/// The thread of a buffer: adds what the warpgroups found for dq to the sums in memory, in turn with other
/// tiles.
template <int head>
__device__ void add_up(const Problem& problem, Memory<head>& memory, int own_buffer) {
    using Sizes = TileSizes<head>;
    constexpr int bytes = Sizes::sums_of_step * sizeof(float);
    RingPlace<2> own;
    RingPlace<Sizes::dq_buffers> place;
    for (;; own.next()) {
        barrier_wait(&memory.task_full[own.stage], own.parity);
        const Task<head>& task = memory.task[own.stage];
        if (task.length == 0) return;
        task.for_each_step(problem, [&](int block, int of_group) {
            if (task.is_last(block)) return;
            const auto [buffer, parity] = place;
            place.next();
            if (buffer != own_buffer) return;
            const std::int64_t at = task.place(problem, block, of_group);
            const int turn = task.turn(problem, block);
            float* const sums = problem.sums + at * Sizes::sums_of_step;
            barrier_wait(&memory.dq_full[buffer], parity);
            if (turn == 0) {
                store_bytes(sums, memory.dq[buffer], bytes);
            } else {
                wait_until_published(problem.turns + at, turn);
                order_with_copies();
                add_floats(sums, memory.dq[buffer], bytes);
            }
            stores_commit();
            stores_wait_until_read();
            barrier_arrive(&memory.dq_empty[buffer]);
            stores_wait_until_written();
            order_with_copies();
            publish(problem.turns + at, turn + 1);
        });
        barrier_arrive(&memory.task_empty[own.stage]);
    }
}

/// A warpgroup's share of all tasks.
template <class T, int head>
__device__ void multiply(const Problem& problem, Memory<head>& memory) {
    using Sizes = TileSizes<head>;
    using enum Contiguous;
    constexpr int queries = Sizes::step_queries;
    constexpr std::uint64_t key_block = Sizes::key_block_bytes >> 4;
    constexpr std::uint64_t query_block = Sizes::query_block_bytes >> 4;
    const int group = same_in_warp(threadIdx.x / 128 - 1), thread = threadIdx.x % 128, lane = thread % 32;
    // Of the scores that a thread has: sum[4i + 2h + j] is that of key own_key + 8h and query
    // 8i + own_query + j.
    const int own_key = 64 * group + thread / 32 * 16 + lane / 4, own_query = 2 * (lane % 4);

    const std::uint64_t own_k = operand_at<depth>(memory.k + 64 * 128 * group, 0);
    const std::uint64_t own_v = operand_at<depth>(memory.v + 64 * 128 * group, 0);
    // For dq: all keys, and half of the columns or of the queries.
    const std::uint64_t k_columns =
        operand_at<breadth>(memory.k + (head == 128 ? group * Sizes::key_block_bytes : 0), 0);
    const float scale_of_power = problem.scale * log2_of_e;

    RingPlace<2> own;
    RingPlace<stages> place;
    RingPlace<Sizes::dq_buffers> dq_place;
    for (;; own.next()) {
        barrier_wait(&memory.task_full[own.stage], own.parity);
        const Task<head>& task = memory.task[own.stage];
        if (task.length == 0) return;

        float dk[head / 2], dv[head / 2];
#pragma unroll
        for (int i = 0; i < head / 2; ++i) dk[i] = dv[i] = 0;
        float score[queries / 2];
        const auto multiply_scores = [&](int stage) {
            const std::uint64_t q_rows = operand_at<depth>(memory.q[stage], 0), k_rows = as_new(own_k);
#pragma unroll
            for (int i = 0; i < head / 16; ++i)
                multiply_64_16<T, queries, depth, depth>(
                    score, k_rows + i / 4 * key_block + i % 4 * product_step<depth>,
                    q_rows + i / 4 * query_block + i % 4 * product_step<depth>, i > 0);
            products_commit();
        };
        barrier_wait(&memory.keys_full, own.stage);
        barrier_wait(&memory.full[place.stage], place.parity);
        products_begin();
        multiply_scores(place.stage);
        products_wait<0>();
        products_are_in(score);

        // A step begins with its scores, and makes those of the next, unless it is the last: the matrix unit
        // then has something to do while dq is passed on.
        const auto step = [&]<bool last>(int block, int of_group) {
            const unsigned char* const q = memory.q[place.stage];
            const unsigned char* const dout = memory.dout[place.stage];
            const float* const statistics = memory.statistics[place.stage];
            unsigned char* const dscores = memory.dscores[place.stage];

            // ---------------------------------------------------- weights and their gradients, dv, scores'
            // gradients 64 queries at a time: registers do not suffice for more.
            constexpr int parts = queries / 64;
            float dweight[parts][32];
            const auto multiply_dweight = [&](int part) {
                const std::uint64_t dout_rows = operand_at<depth>(dout + part * 64 * 128, 0);
#pragma unroll
                for (int i = 0; i < head / 16; ++i)
                    multiply_64_16<T, 64, depth, depth>(
                        dweight[part], own_v + i / 4 * key_block + i % 4 * product_step<depth>,
                        dout_rows + i / 4 * query_block + i % 4 * product_step<depth>, i > 0);
                products_commit();
            };
            const bool is_cut = task.is_cut(problem, block);
            // From the first key to the query.
            const int distance = block * queries + own_query - task.first_key() - own_key;
            // A lane names the place of 16 bytes: of eight keys, eight more, and of both for the next 8
            // queries.
            const int named_key = 64 * group + thread / 32 * 16 + lane % 16;
            std::uint32_t rounded[queries / 16][4], dscore[queries / 16][4];
            products_begin();
            multiply_dweight(0);
#pragma unroll
            for (int part = 0; part < parts; ++part) {
                float* const weight = score + 32 * part;
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const float2 sum =
                        *reinterpret_cast<const float2*>(statistics + 64 * part + 8 * i + own_query);
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        float* const pair = weight + 4 * i + 2 * h;
                        pair[0] = power_of_two(fmaf(pair[0], scale_of_power, -sum.x));
                        pair[1] = power_of_two(fmaf(pair[1], scale_of_power, -sum.y));
                    }
                }
                if (is_cut) {
#pragma unroll
                    for (int i = 0; i < 32; ++i) {
                        const int past = distance + 64 * part + i / 4 * 8 + i % 2 - i % 4 / 2 * 8;
                        if (past < 0 || (problem.window > 0 && past >= problem.window)) weight[i] = 0;
                    }
                }
#pragma unroll
                for (int i = 0; i < 16; ++i)
                    rounded[4 * part + i / 4][i % 4] = rounded_pair<T>(weight[2 * i], weight[2 * i + 1]);
                products_begin();
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    multiply_64_16<T, head, breadth>(dv, rounded[4 * part + i],
                                                     operand_at<breadth>(dout, Sizes::query_block_bytes) +
                                                         (4 * part + i) * product_step<breadth>);
                products_commit();
                if (part + 1 < parts) {
                    multiply_dweight(part + 1);
                    products_wait<2>();
                } else {
                    // With 128 columns ptxas does not find enough registers unless dv is in, too.
                    products_wait<(head == 64 ? 1 : 0)>();
                }
                products_are_in(dweight[part]);

                const float* const deltas = statistics + queries + 64 * part + own_query;
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const float2 delta = *reinterpret_cast<const float2*>(deltas + 8 * i);
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        const int at = 4 * i + 2 * h;
                        dscore[4 * part + i / 2][i % 2 * 2 + h] =
                            rounded_pair<T>(weight[at] * (dweight[part][at] - delta.x),
                                            weight[at + 1] * (dweight[part][at + 1] - delta.y));
                    }
                }
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    store_matrices(dscores + part * Sizes::key_block_bytes +
                                       exchanged_place(named_key, i * 32 + lane / 16 * 16),
                                   dscore[4 * part + i]);
            }
            order_shared_with_copies();
            meet<1, multiplying_threads>();

            // --------------------------------------------------------------------------------------------
            // dq, dk
            float dq[32];
            const std::uint64_t dscore_columns =
                operand_at<breadth>(dscores + (head == 64 ? group * Sizes::key_block_bytes : 0), 0);
            products_begin();
#pragma unroll
            for (int i = 0; i < tile_keys / 16; ++i)
                multiply_64_16<T, 64, breadth, breadth>(dq, dscore_columns + i * product_step<breadth>,
                                                        k_columns + i * product_step<breadth>, i > 0);
            products_commit();
#pragma unroll
            for (int i = 0; i < queries / 16; ++i)
                multiply_64_16<T, head, breadth>(
                    dk, dscore[i],
                    operand_at<breadth>(q, Sizes::query_block_bytes) + i * product_step<breadth>);
            products_commit();
            products_wait<1>();
            products_are_in(dq);

            constexpr int quarters = 32 / 4;  // of the registers: four at a time
            if (!task.is_last(block)) {
                float4* const to =
                    reinterpret_cast<float4*>(memory.dq[dq_place.stage]) + group * quarters * 128 + thread;
                barrier_wait(&memory.dq_empty[dq_place.stage], dq_place.parity ^ 1);
#pragma unroll
                for (int i = 0; i < quarters; ++i)
                    to[i * 128] = make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
                order_shared_with_copies();
                __syncwarp();
                if (lane == 0) barrier_arrive(&memory.dq_full[dq_place.stage]);
                dq_place.next();
            } else {
                if (const int turn = task.turn(problem, block); turn > 0) {
                    const std::int64_t at = task.place(problem, block, of_group);
                    if (thread == 0) {
                        wait_until_published(problem.turns + at, turn);
                        order_with_copies();
                    }
                    group == 0 ? meet<2, 128>() : meet<3, 128>();
                    const float4* const from =
                        reinterpret_cast<const float4*>(problem.sums + at * Sizes::sums_of_step) +
                        group * quarters * 128 + thread;
#pragma unroll
                    for (int i = 0; i < quarters; ++i) {
                        const float4 sum = __ldcg(from + i * 128);
                        dq[4 * i] += sum.x;
                        dq[4 * i + 1] += sum.y;
                        dq[4 * i + 2] += sum.z;
                        dq[4 * i + 3] += sum.w;
                    }
                }
#pragma unroll
                for (int i = 0; i < 32; ++i) dq[i] *= problem.scale;
                const int first_column = head == 128 ? 64 * group : 0;
                const int own_head = (problem.first_key_head + task.key_head) * problem.group + of_group;
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int query =
                        block * queries + (head == 64 ? 64 * group : 0) + thread / 32 * 16 + lane / 4 + 8 * h;
                    store_rounded<64>(dq, h, problem.dq.at<T>(task.begin + query, own_head) + first_column,
                                      query < task.length ? problem.head_size - first_column : 0);
                }
            }

            // -------------------------------------------------------------------------------- the next
            // step's scores
            auto next = place;
            next.next();
            if constexpr (last) {
                products_wait<0>();
            } else {
                barrier_wait(&memory.full[next.stage], next.parity);
                products_begin();
                multiply_scores(next.stage);
                products_wait<1>();
            }
            products_are_in(dk);
            products_are_in(dv);
            if (lane == 0) barrier_arrive(&memory.empty[place.stage]);
            if constexpr (!last) {
                products_wait<0>();
                products_are_in(score);
            }
            place = next;
        };
        // The order of for_each_step(). The last step is apart, or ptxas would not find enough registers.
        int block = task.to_block - 1, of_group = 0;
        for (int more = task.steps(problem) - 1; more > 0; --more) {
            step.template operator()<false>(block, of_group);
            if (--block >= task.from_block) continue;
            block = task.to_block - 1;
            ++of_group;
        }
        step.template operator()<true>(block, of_group);
        if (lane == 0) barrier_arrive(&memory.keys_empty);

#pragma unroll
        for (int i = 0; i < head / 2; ++i) dk[i] *= problem.scale;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int key = task.first_key() + own_key + 8 * h,
                      key_head = problem.first_key_head + task.key_head;
            const int left = key < task.length ? problem.head_size : 0;
            store_rounded<head>(dk, h, problem.dk.at<T>(task.begin + key, key_head), left);
            store_rounded<head>(dv, h, problem.dv.at<T>(task.begin + key, key_head), left);
        }
        if (lane == 0) barrier_arrive(&memory.task_empty[own.stage]);
    }
}

/// The whole of the kernel, by a block of `threads`.
template <class T, int head>
__device__ void compute_gradients(const Maps& maps, const Problem& problem) {
    auto& memory = *reinterpret_cast<Memory<head>*>(aligned_shared_memory());
    if (threadIdx.x == 0) {
        for (const CUtensorMap* map : {&maps.q, &maps.k, &maps.v, &maps.dout}) prefetch_map(*map);
        for (int i = 0; i < 2; ++i) {
            barrier_init(&memory.task_full[i], 1);
            barrier_init(&memory.task_empty[i], 4 * multiplying_groups + TileSizes<head>::dq_buffers);
        }
        barrier_init(&memory.keys_full, 1);
        barrier_init(&memory.keys_empty, 4 * multiplying_groups);
        for (int i = 0; i < TileSizes<head>::dq_buffers; ++i) {
            barrier_init(&memory.dq_full[i], 4 * multiplying_groups);
            barrier_init(&memory.dq_empty[i], 1);
        }
        for (int i = 0; i < stages; ++i) {
            barrier_init(&memory.full[i], 1);
            barrier_init(&memory.empty[i], 4 * multiplying_groups);
        }
        barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        give_registers<24>();
        if (threadIdx.x == 0) load(maps, problem, memory);
        for (unsigned i = 0; i < TileSizes<head>::dq_buffers; ++i)
            if (threadIdx.x == 32 * (i + 1)) add_up(problem, memory, static_cast<int>(i));
    } else {
        take_registers<240>();
        multiply<T>(problem, memory);
    }
}

constexpr int preparing_threads = 256;

struct StatisticsInputs {
    Place out, dout;
    const float* lse;  ///< [rows,heads,row_length]
    int heads, row_length;
};

/// Writes the statistics of one query head at a tile's positions, that nothing has been added to its sums and
/// that no ticket was taken, by a block of `preparing_threads`. The grid has a block for every tile and head.
template <class T, int head>
__device__ void prepare(const Problem& problem, const StatisticsInputs& inputs) {
    using Sizes = TileSizes<head>;
    constexpr int lanes = head / 8;  // for a query
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *problem.tickets = 0;
    const int own_head = blockIdx.y;
    const SequenceTile tile = problem.tiles[blockIdx.x];
    if (tile.length == 0) return;
    const int first_query = (tile.number - tile.first_number) * tile_keys;
    const int any_head = problem.first_key_head * problem.group + own_head;
    const auto place_of = [&](int block) {
        return std::int64_t{tile.number * Sizes::blocks_of_tile + block} * problem.heads() + own_head;
    };
    if (threadIdx.x < Sizes::blocks_of_tile) problem.turns[place_of(threadIdx.x)] = 0;
#pragma unroll
    for (int round = 0; round < tile_keys * lanes / preparing_threads; ++round) {
        const int within = threadIdx.x / lanes + round * (preparing_threads / lanes);
        const int query = first_query + within, column = threadIdx.x % lanes * 8;
        const std::int64_t token = tile.begin + query;
        float sum = 0;
        if (query < tile.length && column < problem.head_size) {
            float x[8], y[8];
            to_floats(load_eight(inputs.out.at<const T>(token, any_head) + column), x);
            to_floats(load_eight(inputs.dout.at<const T>(token, any_head) + column), y);
#pragma unroll
            for (int i = 0; i < 8; ++i) sum = fmaf(x[i], y[i], sum);
        }
#pragma unroll
        for (int distance = lanes / 2; distance > 0; distance /= 2)
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
        if (column > 0) continue;
        float* const statistics = problem.statistics +
                                  place_of(within / Sizes::step_queries) * Sizes::statistics_of_step +
                                  within % Sizes::step_queries;
        // A query beyond the sequence gives no key any weight.
        float log_of_sum = __int_as_float(0x7F800000);
        if (query < tile.length)
            log_of_sum =
                log2_of_e *
                inputs.lse[(token / inputs.row_length * inputs.heads + any_head) * inputs.row_length +
                           token % inputs.row_length];
        statistics[0] = log_of_sum;
        statistics[Sizes::step_queries] = sum;
    }
}

}  // namespace drover::cuda::attention_gradient
