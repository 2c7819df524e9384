#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>

/// A GPU's blocks of threads on the CPU, as far as kernels for Hopper need them: every thread has a stack of
/// its own and runs until it has to wait. It shows whether a kernel waits for all that it reads, computes the
/// right numbers from operands laid out as the hardware reads them, and ends; not how fast it is.
///
/// Kernels are compiled for it with this folder before src/ in the search for headers: the headers below
/// backend/cuda/kernels/ have the names of those with the GPU's instructions.
namespace drover::test::emulated_gpu {

struct Dimensions {
    unsigned x = 1, y = 1, z = 1;
};

/// In which order things happen that no barrier orders.
struct Schedule {
    unsigned seed = 1;      ///< of the order in which threads run
    bool late = false;      ///< products and copies happen when they are waited for, not when they are issued
    unsigned resident = 1;  ///< blocks that run at the same time
};

/// The threads wait for each other.
struct Deadlock : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Runs `kernel` in every thread of every block; blocks begin in their order.
void run(const Dimensions& grid, unsigned threads, std::size_t shared_bytes, const Schedule& schedule,
         const std::function<void()>& kernel);

// ----------------------------------------------------------------------------------------------------
// for the emulated instructions, called by a kernel's thread

Dimensions thread_index();
Dimensions block_index();
Dimensions grid_size();
int block_threads();

/// Lets other threads run until `ready`.
void wait_until(const std::function<bool()>& ready);

/// Aligned to 1024; what was not written is NaN in every floating type.
unsigned char* shared_memory();
std::uint32_t shared_address(const void* pointer);

/// All of `threads` threads of a block meet; `number` tells apart those that meet at the same time.
void meet(int number, int threads);
/// The values of all lanes of the warp.
void exchange_in_warp(const void* own, void* all, std::size_t bytes);

void barrier_init(std::uint64_t* barrier, std::uint32_t arrivals);
void barrier_arrive(std::uint64_t* barrier, std::uint32_t expected_bytes);
void barrier_wait(std::uint64_t* barrier, std::uint32_t parity);
/// A copy of `bytes` that ends on a barrier.
void load(std::uint64_t* barrier, std::uint32_t bytes, std::function<void()> copy);

/// A copy of shared memory to memory: reads the one, returns what writes the other.
using Store = std::function<std::function<void()>()>;
void store(Store copy);
void stores_commit();
void stores_wait(bool until_written);

/// A product of a warpgroup as one thread issues it. `a` is in registers if a_registers is set.
struct Product {
    int columns;
    bool a_breadth, b_breadth;  ///< contiguous dimension of operands in shared memory
    std::uint64_t a, b;
    const std::uint32_t* a_registers;
    bool add;
    float (*to_float)(const void* element);
    float* sum;
};
void multiply(const Product& product);
void products_commit();
void products_wait(int in_flight);

}  // namespace drover::test::emulated_gpu
