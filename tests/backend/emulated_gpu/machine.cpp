#include "backend/emulated_gpu/machine.h"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace drover::test::emulated_gpu {
namespace {

constexpr std::size_t stack_bytes = 128 * 1024;
constexpr unsigned warp_size = 32, group_size = 128;

struct Barrier {
    std::uint32_t arrivals = 0, missing = 0, parity = 0;
    std::int64_t bytes = 0;
    std::vector<std::pair<std::uint32_t, std::function<void()>>> copies;

    void end_phase_if_complete() {
        if (missing > 0 || bytes != 0) return;
        parity ^= 1;
        missing = arrivals;
    }
};

struct Meeting {
    int present = 0, held = 0;
};

struct Warp {
    std::vector<unsigned char> values;
};

/// A product with what its threads gave.
struct Issued {
    Product product;
    std::array<float*, group_size> sum{};
    std::array<const std::uint32_t*, group_size> a_registers{};
    unsigned threads = 0;
};

struct Group {
    int paused = 0;  ///< for so many rounds
    std::vector<Issued> products;
    std::size_t executed = 0;
};

struct Block;

struct Thread {
    ucontext_t context{};
    std::unique_ptr<unsigned char[]> stack;
    Block* block = nullptr;
    unsigned index = 0;
    bool ended = false;
    std::size_t products = 0;
    std::vector<std::size_t> product_groups;
    std::vector<Store> stores;
    std::vector<std::function<void()>> writes;
};

struct Block {
    Dimensions index;
    std::unique_ptr<unsigned char[]> memory;
    unsigned char* shared = nullptr;
    std::size_t shared_bytes = 0;
    std::deque<Thread> threads;
    std::map<const std::uint64_t*, Barrier> barriers;
    std::map<int, Meeting> meetings;
    std::vector<Warp> warps;
    std::vector<Group> groups;
    unsigned running = 0;
};

struct Machine {
    Schedule schedule;
    Dimensions grid;
    unsigned block_threads = 0;
    std::mt19937 random;
    std::vector<std::unique_ptr<Block>> blocks;
    const std::function<void()>* kernel = nullptr;
    ucontext_t scheduler{};
    Thread* current = nullptr;
    bool progress = false;
    std::exception_ptr failure;  ///< what a thread threw; it cannot leave the thread's stack
};
Machine machine;

void run_thread() {
    try {
        (*machine.kernel)();
    } catch (...) {
        machine.failure = std::current_exception();
    }
    machine.current->ended = true;
    --machine.current->block->running;
    machine.progress = true;
}

std::unique_ptr<Block> make_block(const Dimensions& index, std::size_t shared_bytes) {
    auto block = std::make_unique<Block>();
    block->index = index;
    block->shared_bytes = shared_bytes;
    block->memory = std::make_unique<unsigned char[]>(shared_bytes + 1024);
    std::memset(block->memory.get(), 0xFF, shared_bytes + 1024);
    block->shared =
        block->memory.get() + (1024 - reinterpret_cast<std::uintptr_t>(block->memory.get()) % 1024) % 1024;
    const unsigned threads = machine.block_threads;
    block->running = threads;
    block->warps.resize((threads + warp_size - 1) / warp_size);
    block->groups.resize((threads + group_size - 1) / group_size);
    for (unsigned i = 0; i < threads; ++i) {
        Thread& thread = block->threads.emplace_back();
        thread.stack = std::make_unique<unsigned char[]>(stack_bytes);
        thread.block = block.get();
        thread.index = i;
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.get();
        thread.context.uc_stack.ss_size = stack_bytes;
        thread.context.uc_link = &machine.scheduler;
        makecontext(&thread.context, run_thread, 0);
    }
    return block;
}

/// Whether a warpgroup does not run in this round. Late ones now and then let others get ahead.
bool pauses(Group& group) {
    if (!machine.schedule.late) return false;
    if (group.paused == 0 && machine.random() % 8 == 0)
        group.paused = static_cast<int>(machine.random() % 12);
    if (group.paused == 0) return false;
    --group.paused;
    machine.progress = true;
    return true;
}

/// Runs every thread of all blocks until it waits, whole warps in a random order.
void run_round() {
    std::vector<std::pair<Block*, unsigned>> warps;
    constexpr unsigned warps_of_group = group_size / warp_size;
    for (const auto& block : machine.blocks)
        for (unsigned group = 0; group < block->groups.size(); ++group) {
            if (pauses(block->groups[group])) continue;
            const auto end = std::min<std::size_t>((group + 1) * warps_of_group, block->warps.size());
            for (unsigned warp = group * warps_of_group; warp < end; ++warp)
                warps.emplace_back(block.get(), warp);
        }
    std::shuffle(warps.begin(), warps.end(), machine.random);
    for (auto [block, warp] : warps)
        for (unsigned lane = 0; lane < warp_size && warp * warp_size + lane < block->threads.size(); ++lane) {
            Thread& thread = block->threads[warp * warp_size + lane];
            if (thread.ended) continue;
            machine.current = &thread;
            swapcontext(&machine.scheduler, &thread.context);
        }
}

/// Where an element of an operand lies, as the hardware computes it.
const unsigned char* element_of(const Block& block, std::uint64_t place, bool breadth, int at, int depth) {
    const auto field = [&](int bit) { return static_cast<std::uint32_t>(place >> bit & 0x3FFF) << 4; };
    const std::uint32_t start = field(0), leading = field(16), stride = field(32);
    if (place >> 62 != 1) throw std::logic_error("an operand that is not laid out in rows of 128 bytes");
    std::uint32_t address = breadth ? start + static_cast<std::uint32_t>(at / 64) * leading +
                                          static_cast<std::uint32_t>(depth / 8) * stride +
                                          static_cast<std::uint32_t>(depth % 8 * 128 + at % 64 * 2)
                                    : start + static_cast<std::uint32_t>(at / 8) * stride +
                                          static_cast<std::uint32_t>(at % 8 * 128 + depth * 2);
    address ^= (address >> 7 & 7) << 4;
    if (address + 2 > block.shared_bytes) throw std::logic_error("an operand outside of shared memory");
    return block.shared + address;
}

constexpr int product_rows = 64, product_depth = 16;

void execute(const Block& block, const Issued& issued) {
    const Product& p = issued.product;
    std::vector<float> a(product_rows * product_depth),
        b(static_cast<std::size_t>(p.columns * product_depth));
    for (int row = 0; row < product_rows; ++row)
        for (int k = 0; k < product_depth; ++k) {
            const void* element = nullptr;
            if (issued.a_registers[0] == nullptr) {
                element = element_of(block, p.a, p.a_breadth, row, k);
            } else {
                const int thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
                const std::uint32_t* word =
                    issued.a_registers[static_cast<std::size_t>(thread)] + k / 8 * 2 + row % 16 / 8;
                element = reinterpret_cast<const unsigned char*>(word) + k % 2 * 2;
            }
            a[static_cast<std::size_t>(row * product_depth + k)] = p.to_float(element);
        }
    for (int column = 0; column < p.columns; ++column)
        for (int k = 0; k < product_depth; ++k)
            b[static_cast<std::size_t>(k * p.columns + column)] =
                p.to_float(element_of(block, p.b, p.b_breadth, column, k));
    std::vector<float> sums(static_cast<std::size_t>(p.columns));
    for (int row = 0; row < product_rows; ++row) {
        std::fill(sums.begin(), sums.end(), 0.f);
        for (int k = 0; k < product_depth; ++k) {
            const float x = a[static_cast<std::size_t>(row * product_depth + k)];
            const float* const y = b.data() + k * p.columns;
            for (int column = 0; column < p.columns; ++column)
                sums[static_cast<std::size_t>(column)] += x * y[column];
        }
        for (int column = 0; column < p.columns; ++column) {
            const int thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
            float& to =
                issued.sum[static_cast<std::size_t>(thread)][column / 8 * 4 + row % 16 / 8 * 2 + column % 2];
            to = (p.add ? to : 0.f) + sums[static_cast<std::size_t>(column)];
        }
    }
}

/// Executes the first products that all threads have issued, up to `end`.
void execute_issued(const Block& block, Group& group, std::size_t end) {
    while (group.executed < end && group.executed < group.products.size() &&
           group.products[group.executed].threads == group_size) {
        execute(block, group.products[group.executed++]);
        machine.progress = true;
    }
}

Group& own_group() {
    return machine.current->block->groups[machine.current->index / group_size];
}

}  // namespace

void run(const Dimensions& grid, unsigned threads, std::size_t shared_bytes, const Schedule& schedule,
         const std::function<void()>& kernel) {
    machine = Machine{};
    machine.schedule = schedule;
    machine.grid = grid;
    machine.block_threads = threads;
    machine.kernel = &kernel;
    machine.random.seed(schedule.seed);
    const unsigned blocks = grid.x * grid.y * grid.z;
    for (unsigned next = 0; next < blocks || !machine.blocks.empty();) {
        while (next < blocks && machine.blocks.size() < schedule.resident) {
            machine.blocks.push_back(
                make_block({next % grid.x, next / grid.x % grid.y, next / grid.x / grid.y}, shared_bytes));
            ++next;
        }
        machine.progress = false;
        run_round();
        if (machine.failure) std::rethrow_exception(machine.failure);
        if (!machine.progress) throw Deadlock("every thread of the emulated GPU waits");
        std::erase_if(machine.blocks, [](const auto& block) { return block->running == 0; });
    }
}

Dimensions thread_index() {
    return {machine.current->index, 0, 0};
}
Dimensions block_index() {
    return machine.current->block->index;
}
Dimensions grid_size() {
    return machine.grid;
}
int block_threads() {
    return static_cast<int>(machine.block_threads);
}

void wait_until(const std::function<bool()>& ready) {
    while (!ready()) {
        Thread* const self = machine.current;
        swapcontext(&self->context, &machine.scheduler);
    }
    machine.progress = true;
}

unsigned char* shared_memory() {
    return machine.current->block->shared;
}
std::uint32_t shared_address(const void* pointer) {
    const auto at = static_cast<const unsigned char*>(pointer) - machine.current->block->shared;
    if (at < 0 || static_cast<std::size_t>(at) >= machine.current->block->shared_bytes)
        throw std::logic_error("an address outside of shared memory");
    return static_cast<std::uint32_t>(at);
}

void meet(int number, int threads) {
    Meeting& meeting = machine.current->block->meetings[number];
    const int own = meeting.held;
    if (++meeting.present == threads) {
        meeting.present = 0;
        ++meeting.held;
    }
    wait_until([&] { return meeting.held != own; });
}

void exchange_in_warp(const void* own, void* all, std::size_t bytes) {
    const unsigned warp = machine.current->index / warp_size, lane = machine.current->index % warp_size;
    std::vector<unsigned char>& values = machine.current->block->warps[warp].values;
    constexpr int first_number = 1000;  // beyond those of kernels
    const int number = first_number + static_cast<int>(warp);
    values.resize(warp_size * bytes);
    std::memcpy(values.data() + lane * bytes, own, bytes);
    meet(number, warp_size);
    std::memcpy(all, values.data(), warp_size * bytes);
    meet(number, warp_size);
}

void barrier_init(std::uint64_t* barrier, std::uint32_t arrivals) {
    machine.current->block->barriers[barrier] = {.arrivals = arrivals, .missing = arrivals, .copies = {}};
}
void barrier_arrive(std::uint64_t* barrier, std::uint32_t expected_bytes) {
    Barrier& own = machine.current->block->barriers.at(barrier);
    own.bytes += expected_bytes;
    if (own.missing == 0) throw std::logic_error("more threads arrive at a barrier than it was made for");
    --own.missing;
    own.end_phase_if_complete();
}
void barrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
    Barrier& own = machine.current->block->barriers.at(barrier);
    wait_until([&] {
        for (auto& [bytes, copy] : std::exchange(own.copies, {})) {
            copy();
            own.bytes -= bytes;
            own.end_phase_if_complete();
            machine.progress = true;
        }
        return own.parity != parity;
    });
}
void load(std::uint64_t* barrier, std::uint32_t bytes, std::function<void()> copy) {
    Barrier& own = machine.current->block->barriers.at(barrier);
    if (machine.schedule.late) {
        own.copies.emplace_back(bytes, std::move(copy));
        return;
    }
    copy();
    own.bytes -= bytes;
    own.end_phase_if_complete();
}

void store(Store copy) {
    machine.current->stores.push_back(std::move(copy));
}
void stores_commit() {
    if (!machine.schedule.late) stores_wait(true);
}
/// With late copies, threads that do not wait for this one go on meanwhile.
void stores_wait(bool until_written) {
    Thread& self = *machine.current;
    if (machine.schedule.late) {
        auto rounds = machine.random() % 4;
        wait_until([&] {
            machine.progress = true;
            return rounds-- == 0;
        });
    }
    for (const Store& copy : std::exchange(self.stores, {})) self.writes.push_back(copy());
    if (!until_written && machine.schedule.late) return;
    for (const auto& write : std::exchange(self.writes, {})) write();
}

void multiply(const Product& product) {
    Group& group = own_group();
    Thread& self = *machine.current;
    const std::size_t number = self.products++;
    if (number == group.products.size()) group.products.push_back({.product = product});
    Issued& issued = group.products[number];
    if (issued.product.a != product.a || issued.product.b != product.b || issued.product.add != product.add ||
        issued.product.columns != product.columns)
        throw std::logic_error("the threads of a warpgroup issue different products");
    const unsigned thread = self.index % group_size;
    issued.sum[thread] = product.sum;
    issued.a_registers[thread] = product.a_registers;
    ++issued.threads;
    if (!machine.schedule.late) execute_issued(*self.block, group, group.products.size());
}
void products_commit() {
    machine.current->product_groups.push_back(machine.current->products);
}
void products_wait(int in_flight) {
    Thread& self = *machine.current;
    const auto groups = static_cast<int>(self.product_groups.size());
    if (groups <= in_flight) return;
    const std::size_t end = self.product_groups[static_cast<std::size_t>(groups - in_flight - 1)];
    Group& group = own_group();
    wait_until([&] {
        execute_issued(*self.block, group, end);
        return group.executed >= end;
    });
}

}  // namespace drover::test::emulated_gpu
