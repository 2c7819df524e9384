#include "io/gguf_header.h"

#include "core/error.h"

namespace drover {
namespace {

constexpr std::string_view gguf_magic = "GGUF";
constexpr std::uint32_t gguf_version = 3;

/// Types of values, by their numbers in the format.
constexpr std::uint32_t uint32_value = 4, int32_value = 5, float32_value = 6, boolean_value = 7,
                        text_value = 8, array_value = 9;

template <class T>
void put(std::string& bytes, T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));  // little-endian, as the machines are
}

void put_text(std::string& bytes, std::string_view text) {
    put(bytes, std::uint64_t{text.size()});
    bytes.append(text);
}

std::uint64_t aligned(std::uint64_t offset) {
    return (offset + GgufHeader::alignment - 1) / GgufHeader::alignment * GgufHeader::alignment;
}

}  // namespace

std::uint64_t bytes_of(GgmlType type, std::uint64_t elements) {
    switch (type) {
        case GgmlType::f32:
            return elements * 4;
        case GgmlType::f16:
        case GgmlType::bf16:
            return elements * 2;
        case GgmlType::q8_0:
            require(elements % q8_0_block == 0, "elements of Q8_0 fill its blocks");
            return elements / q8_0_block * q8_0_block_bytes;
    }
    bug("a type of GGUF files that is not known");
}

void GgufHeader::key(std::string_view name, std::uint32_t type) {
    put_text(keys_, name);
    put(keys_, type);
    ++key_count_;
}

void GgufHeader::text(std::string_view name, std::string_view value) {
    key(name, text_value);
    put_text(keys_, value);
}

void GgufHeader::number(std::string_view name, std::int64_t value) {
    require(value >= 0 && value <= UINT32_MAX, "a number of a GGUF file has 32 bits");
    key(name, uint32_value);
    put(keys_, static_cast<std::uint32_t>(value));
}

void GgufHeader::real(std::string_view name, double value) {
    key(name, float32_value);
    put(keys_, static_cast<float>(value));
}

void GgufHeader::boolean(std::string_view name, bool value) {
    key(name, boolean_value);
    put(keys_, static_cast<std::uint8_t>(value));
}

void GgufHeader::texts(std::string_view name, const std::vector<std::string>& values) {
    key(name, array_value);
    put(keys_, text_value);
    put(keys_, std::uint64_t{values.size()});
    for (const std::string& value : values) put_text(keys_, value);
}

void GgufHeader::reals(std::string_view name, const std::vector<float>& values) {
    key(name, array_value);
    put(keys_, float32_value);
    put(keys_, std::uint64_t{values.size()});
    for (const float value : values) put(keys_, value);
}

void GgufHeader::numbers(std::string_view name, const std::vector<std::int32_t>& values) {
    key(name, array_value);
    put(keys_, int32_value);
    put(keys_, std::uint64_t{values.size()});
    for (const std::int32_t value : values) put(keys_, value);
}

void GgufHeader::tensor(std::string_view name, GgmlType type, const std::vector<std::int64_t>& shape) {
    std::uint64_t elements = 1;
    put_text(tensors_, name);
    put(tensors_, static_cast<std::uint32_t>(shape.size()));
    for (std::size_t i = shape.size(); i-- > 0;) {
        put(tensors_, static_cast<std::uint64_t>(shape[i]));
        elements *= static_cast<std::uint64_t>(shape[i]);
    }
    put(tensors_, type);
    put(tensors_, data_size_);
    offsets_.push_back(data_size_);
    data_size_ = aligned(data_size_ + bytes_of(type, elements));
}

std::uint64_t GgufHeader::data_begin() const {
    return aligned(gguf_magic.size() + sizeof(gguf_version) + 2 * sizeof(std::uint64_t) + keys_.size() +
                   tensors_.size());
}

std::string GgufHeader::bytes() const {
    std::string result(gguf_magic);
    put(result, gguf_version);
    put(result, std::uint64_t{offsets_.size()});
    put(result, key_count_);
    result += keys_;
    result += tensors_;
    result.resize(data_begin());
    return result;
}

}  // namespace drover
