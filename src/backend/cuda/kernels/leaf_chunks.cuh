#pragma once

#include <cstring>
#include <vector>

#include "backend/cuda/kernels/device_code.cuh"

/// Many tensors in one launch: each is cut into chunks of equal length, and each block has one chunk. The cut
/// depends on sizes only. A `Row` describes a tensor to a kernel; it has a member `count`, the number of
/// elements.
namespace drover::cuda {

inline constexpr std::int64_t elements_per_chunk = 16384;
inline constexpr int chunk_threads = 256;

template <class Row>
std::int64_t chunks_of(const Row& row) {
    return ceil_div(row.count, elements_per_chunk);
}

/// A block's part of a tensor: elements [begin, end) of row `leaf`.
struct Chunk {
    int leaf;
    std::int64_t begin, end;
};

/// The same as a number: chunk `index` of row `leaf`.
struct NumberedChunk {
    int leaf;
    std::int64_t index;
};

/// The rows of a table on the device, or some consecutive ones.
template <class Row>
struct LeafChunks {
    const Row* rows;
    const std::uint32_t* first_chunk;  ///< of each row, and then of whatever follows the last one
    int leaves;
    std::uint32_t begin, end;  ///< chunks

    std::int64_t chunks() const { return end - begin; }

    /// The chunk of this block. All threads must call it.
    __device__ NumberedChunk numbered_chunk() const {
        __shared__ int found;
        const std::uint32_t wanted = begin + blockIdx.x;
        for (int i = threadIdx.x; i < leaves; i += blockDim.x)
            if (first_chunk[i] <= wanted && wanted < first_chunk[i + 1]) found = i;
        __syncthreads();
        return {found, wanted - first_chunk[found]};
    }
    __device__ Chunk chunk() const {
        const NumberedChunk chunk = numbered_chunk();
        const std::int64_t at = chunk.index * elements_per_chunk, count = rows[chunk.leaf].count;
        return {chunk.leaf, at, at + elements_per_chunk < count ? at + elements_per_chunk : count};
    }
};

/// Brings rows to the device, unless they are still there from last time.
template <class Row>
class LeafTable {
  public:
    LeafTable(const Launch& launch, const std::vector<Row>& rows) : first_chunk_(rows.size() + 1) {
        std::int64_t chunks = 0;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            chunks += chunks_of(rows[i]);
            require(chunks < (std::int64_t{1} << 31), "more chunks than a launch has blocks");
            first_chunk_[i + 1] = static_cast<std::uint32_t>(chunks);
        }
        const std::size_t row_bytes = rows.size() * sizeof(Row), chunk_bytes = first_chunk_.size() * 4;
        std::vector<unsigned char> bytes(row_bytes + chunk_bytes);
        if (row_bytes > 0) std::memcpy(bytes.data(), rows.data(), row_bytes);
        std::memcpy(bytes.data() + row_bytes, first_chunk_.data(), chunk_bytes);
        const unsigned char* device = launch.table.upload(launch.stream, bytes);
        rows_ = reinterpret_cast<const Row*>(device);
        first_chunks_ = reinterpret_cast<const std::uint32_t*>(device + row_bytes);
    }

    LeafChunks<Row> all() const { return part(0, first_chunk_.size() - 1); }
    LeafChunks<Row> part(std::size_t begin, std::size_t end) const {
        return {rows_ + begin, first_chunks_ + begin, static_cast<int>(end - begin), first_chunk_[begin],
                first_chunk_[end]};
    }

  private:
    std::vector<std::uint32_t> first_chunk_;
    const Row* rows_;
    const std::uint32_t* first_chunks_;
};

/// Calls body(at, count) for the elements of a chunk, eight at a time and `chunk_threads` eights in parallel;
/// count < 8 at the end of a tensor.
template <class Body>
__device__ inline void for_each_eight(const Chunk& chunk, const Body& body) {
    for (std::int64_t at = chunk.begin + threadIdx.x * 8; at < chunk.end; at += chunk_threads * 8)
        body(at, chunk.end - at < 8 ? static_cast<int>(chunk.end - at) : 8);
}

/// The sums of each row's chunks, in a fixed order: one block per row.
template <class Row>
__device__ inline double sum_of_chunks(const LeafChunks<Row>& leaves, const double* of_chunk) {
    double sum = 0;
    for (std::uint32_t i = leaves.first_chunk[blockIdx.x] + threadIdx.x;
         i < leaves.first_chunk[blockIdx.x + 1]; i += blockDim.x)
        sum += of_chunk[i];
    return block_sum(sum);
}

}  // namespace drover::cuda
