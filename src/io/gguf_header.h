#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// Element types of tensors in GGUF files, with their numbers there.
enum class GgmlType : std::uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };

/// Q8_0: so many elements share a scale, and take so many bytes with it.
inline constexpr std::int64_t q8_0_block = 32, q8_0_block_bytes = 34;

/// Bytes of so many elements; for Q8_0 a multiple of its block.
std::uint64_t bytes_of(GgmlType type, std::uint64_t elements);

/// What a GGUF file (llama.cpp's format, version 3) has before the elements of its tensors: metadata, and
/// where each tensor is. Keys and tensors are written in the order in which they are added.
class GgufHeader {
  public:
    static constexpr std::uint64_t alignment = 32;  ///< of the elements of each tensor

    void text(std::string_view key, std::string_view value);
    void number(std::string_view key, std::int64_t value);  ///< as an unsigned 32-bit number
    void real(std::string_view key, double value);          ///< as a 32-bit number
    void boolean(std::string_view key, bool value);
    void texts(std::string_view key, const std::vector<std::string>& values);
    void reals(std::string_view key, const std::vector<float>& values);
    void numbers(std::string_view key, const std::vector<std::int32_t>& values);

    /// Adds a tensor with the outermost dimension first, as torch has it.
    void tensor(std::string_view name, GgmlType type, const std::vector<std::int64_t>& shape);

    /// Everything up to the first tensor's elements.
    std::string bytes() const;
    /// Where the elements of tensor `index` begin, from the file's first byte.
    std::uint64_t offset_of(std::size_t index) const { return data_begin() + offsets_.at(index); }
    std::uint64_t file_size() const { return data_begin() + data_size_; }

  private:
    void key(std::string_view name, std::uint32_t type);
    std::uint64_t data_begin() const;

    std::string keys_, tensors_;
    std::uint64_t key_count_ = 0;
    std::vector<std::uint64_t> offsets_;  ///< from the first tensor's elements on
    std::uint64_t data_size_ = 0;
};

}  // namespace drover
