#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace drover::cuda {

/// Device memory that one operation needs while it runs, and that the next one may overwrite: operations of a
/// stream run one after the other. It grows to the largest size requested (in the first step) and never
/// shrinks.
class Scratch {
  public:
    Scratch() = default;
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    /// At least `bytes`, aligned to 256. Waits for the device when it has to grow.
    void* take(std::size_t bytes);
    template <class T>
    T* take_array(std::size_t count) {
        return static_cast<T*>(take(count * sizeof(T)));
    }
    /// How often it had to grow, and so moved.
    std::int64_t moves() const { return moves_; }

  private:
    void* memory_ = nullptr;
    std::size_t capacity_ = 0;
    std::int64_t moves_ = 0;
};

/// Where the parts of one operation's scratch memory begin, one after the other, each aligned to 256.
class ScratchParts {
  public:
    template <class Count>
    std::size_t add(Count bytes) {
        const std::size_t at = bytes_;
        bytes_ += (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
        return at;
    }
    std::size_t bytes() const { return bytes_; }

  private:
    std::size_t bytes_ = 0;
};

/// Device copies of small tables that rarely change (the leaves of an optimizer's update): uploaded when
/// their bytes have changed.
class DeviceTable {
  public:
    DeviceTable() = default;
    ~DeviceTable();
    DeviceTable(const DeviceTable&) = delete;
    DeviceTable& operator=(const DeviceTable&) = delete;

    /// The bytes on the device, in stream order.
    const void* upload(cudaStream_t stream, const void* bytes, std::size_t count);
    template <class T>
    const T* upload(cudaStream_t stream, const std::vector<T>& rows) {
        return static_cast<const T*>(upload(stream, rows.data(), rows.size() * sizeof(T)));
    }

  private:
    std::vector<unsigned char> host_;
    void* memory_ = nullptr;
    std::size_t capacity_ = 0;
};

}  // namespace drover::cuda
