#include "io/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/error.h"

namespace drover {
namespace {

struct DTypeFacts {
    std::string_view name;
    int bits;
};

/// In the order of FileDType.
constexpr std::array<DTypeFacts, 22> dtype_facts{
    {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
     {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
     {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
     {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}}};
static_assert(dtype_facts.size() == static_cast<std::size_t>(FileDType::U64) + 1);

constexpr std::string_view damaged =
    "The file is damaged or its writer has a fault: fetch or write it again.";

}  // namespace

std::string_view name_of(FileDType dtype) {
    return dtype_facts[static_cast<std::size_t>(dtype)].name;
}

int bits_of(FileDType dtype) {
    return dtype_facts[static_cast<std::size_t>(dtype)].bits;
}

FileDType file_dtype_of(DType dtype) {
    switch (dtype) {
        case DType::f32:
            return FileDType::F32;
        case DType::bf16:
            return FileDType::BF16;
        case DType::f16:
            return FileDType::F16;
        case DType::f64:
            return FileDType::F64;
        case DType::i32:
            return FileDType::I32;
        case DType::i64:
            return FileDType::I64;
        case DType::u16:
            return FileDType::U16;
        case DType::u8:
            return FileDType::U8;
        case DType::f8:
            return FileDType::F8_E4M3;
    }
    bug("an element type that files cannot hold");
}

namespace safetensors_detail {
namespace {

/// Receives the events of the JSON parser. The position of a value decides its allowed kinds, so nesting
/// beyond the format's is rejected as soon as it opens, and nothing but the entries is ever stored.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
  public:
    explicit HeaderReader(std::string_view where) : where_(where) {}

    SafetensorsHeader take() { return std::move(header_); }

    bool start_object(std::size_t) override {
        if (place_ == Place::outside) return move_to(Place::top);
        if (place_ != Place::top) unexpected("an object");
        if (name_ == "__metadata__") {
            if (has_metadata_) fail("has the key \"__metadata__\" twice in its header");
            has_metadata_ = true;
            return move_to(Place::metadata);
        }
        entry_ = SafetensorsEntry{.name = name_, .dtype = FileDType::BOOL, .shape = {}};
        has_dtype_ = has_shape_ = has_offsets_ = false;
        return move_to(Place::tensor);
    }

    bool end_object() override {
        if (place_ == Place::tensor) {
            finish_entry();
            return move_to(Place::top);
        }
        return move_to(place_ == Place::metadata ? Place::top : Place::outside);
    }

    bool key(std::string& text) override {
        if (place_ == Place::top) name_ = std::move(text);
        if (place_ == Place::metadata || place_ == Place::tensor) member_ = std::move(text);
        return true;
    }

    bool string(std::string& text) override {
        if (place_ == Place::metadata) {
            if (!header_.metadata.emplace(member_, std::move(text)).second)
                fail(fmt::format("has the key {} twice in \"__metadata__\"", quoted_name(member_)));
            return true;
        }
        if (place_ != Place::tensor || member_ != "dtype") unexpected("a string");
        claim(has_dtype_);
        const auto known = std::find_if(dtype_facts.begin(), dtype_facts.end(),
                                        [&](const DTypeFacts& facts) { return facts.name == text; });
        if (known == dtype_facts.end())
            fail_tensor(fmt::format("has the unknown element type {}", quoted_name(text)),
                        "Use a newer version of this program, or convert the file.");
        entry_.dtype = static_cast<FileDType>(known - dtype_facts.begin());
        return true;
    }

    bool start_array(std::size_t) override {
        if (place_ != Place::tensor) unexpected("a list");
        if (member_ == "shape") {
            claim(has_shape_);
            return move_to(Place::shape);
        }
        if (member_ != "data_offsets") unexpected("a list");
        claim(has_offsets_);
        offset_count_ = 0;
        return move_to(Place::offsets);
    }

    bool end_array() override {
        if (place_ == Place::offsets && offset_count_ != 2)
            fail_tensor(fmt::format("has {} data_offsets instead of 2", offset_count_));
        return move_to(Place::tensor);
    }

    bool number_unsigned(number_unsigned_t value) override {
        if (place_ == Place::shape) {
            if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) fail_overflow();
            entry_.shape.push_back(static_cast<std::int64_t>(value));
            return true;
        }
        if (place_ != Place::offsets) unexpected("a number");
        if (offset_count_ == 0) entry_.begin = value;
        if (offset_count_ == 1) entry_.end = value;
        ++offset_count_;
        return true;
    }

    bool null() override { unexpected("null"); }
    bool boolean(bool) override { unexpected("true or false"); }
    bool number_integer(number_integer_t) override { unexpected("a negative number"); }
    bool number_float(number_float_t, const string_t&) override {
        unexpected("a fractional or too large number");
    }
    bool binary(binary_t&) override { unexpected("binary data"); }

    bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
        fail(fmt::format("has a header that is not valid JSON in UTF-8 (at byte {} of it)", position));
    }

  private:
    enum class Place { outside, top, metadata, tensor, shape, offsets };

    bool move_to(Place place) {
        place_ = place;
        return true;
    }

    [[noreturn]] void fail(const std::string& what) const {
        throw Error(fmt::format("{} {}.", where_, what), damaged);
    }

    [[noreturn]] void fail_tensor(const std::string& what, std::string_view remedy = damaged) const {
        throw Error(fmt::format("{}: the tensor {} {}.", where_, quoted_name(name_), what), remedy);
    }

    [[noreturn]] void fail_overflow() const {
        fail_tensor("has a shape whose number of elements overflows 63 bits");
    }

    /// A value of a kind that is not allowed at its position.
    [[noreturn]] void unexpected(std::string_view kind) const {
        switch (place_) {
            case Place::outside:
                fail(fmt::format("has a header that is {} instead of an object", kind));
            case Place::top:
                if (name_ == "__metadata__") fail(fmt::format("has {} as \"__metadata__\"", kind));
                fail_tensor(fmt::format("is described by {} instead of an object", kind));
            case Place::metadata:
                fail(fmt::format("has {} for {} in \"__metadata__\", where only strings may be", kind,
                                 quoted_name(member_)));
            case Place::tensor:
                fail_tensor(fmt::format("has {} as {}", kind, quoted_name(member_)));
            case Place::shape:
                fail_tensor(fmt::format("has {} in its shape", kind));
            case Place::offsets:
                fail_tensor(fmt::format("has {} in its data_offsets", kind));
        }
        bug("no such place in a safetensors header");
    }

    void claim(bool& seen) {
        if (seen) fail_tensor(fmt::format("has the key {} twice", quoted_name(member_)));
        seen = true;
    }

    void finish_entry() {
        if (!has_dtype_) fail_tensor("has no dtype");
        if (!has_shape_) fail_tensor("has no shape");
        if (!has_offsets_) fail_tensor("has no data_offsets");
        // Zeros are left out, so that strides, which are products of a part of the sizes, cannot overflow
        // either.
        std::int64_t product = 1;
        bool empty = false;
        for (const std::int64_t size : entry_.shape) {
            empty |= size == 0;
            if (size != 0 && __builtin_mul_overflow(product, size, &product)) fail_overflow();
        }
        std::uint64_t bits = 0;
        if (!empty && __builtin_mul_overflow(static_cast<std::uint64_t>(product),
                                             static_cast<std::uint64_t>(bits_of(entry_.dtype)), &bits))
            fail_tensor("has a shape whose size in bytes overflows 64 bits");
        if (bits % 8 != 0) fail_tensor("has a size that is not a whole number of bytes");
        if (entry_.end < entry_.begin)
            fail_tensor(
                fmt::format("ends at byte {}, before its start at byte {}", entry_.end, entry_.begin));
        if (entry_.end - entry_.begin != bits / 8)
            fail_tensor(fmt::format("takes {} bytes of data, but {}{} needs {}", entry_.end - entry_.begin,
                                    name_of(entry_.dtype), shape_text(entry_.shape), bits / 8));
        entry_.shape.shrink_to_fit();
        header_.entries.push_back(std::move(entry_));
    }

    std::string_view where_;
    SafetensorsHeader header_;
    Place place_ = Place::outside;
    std::string name_;    ///< the last key of the outer object
    std::string member_;  ///< the last key of an inner object
    SafetensorsEntry entry_{};
    int offset_count_ = 0;
    bool has_metadata_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
};

}  // namespace

std::string quoted_name(std::string_view name) {
    constexpr std::size_t longest = 200;
    std::string text = "\"";
    for (std::size_t i = 0; i < name.size(); ++i) {
        // Cut between characters: bytes 10xxxxxx continue one.
        if (i >= longest && (static_cast<unsigned char>(name[i]) & 0xC0u) != 0x80u) {
            text += "…";
            break;
        }
        const auto byte = static_cast<unsigned char>(name[i]);
        if (byte < 0x20 || byte == 0x7F)
            text += fmt::format("\\x{:02x}", byte);
        else
            text += name[i];
    }
    return text + '"';
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    constexpr std::ptrdiff_t longest = 8;
    const bool is_long = std::ssize(shape) > longest;
    return fmt::format("[{}{}]",
                       fmt::join(shape.begin(), is_long ? shape.begin() + longest : shape.end(), ", "),
                       is_long ? ", …" : "");
}

SafetensorsHeader parse_header_json(std::string_view json, std::string_view where) {
    if (!json.starts_with('{'))
        throw Error(
            fmt::format("{} is not a safetensors file: its header does not start with \"{{\".", where),
            "Check that the path names a .safetensors file, and fetch it again.");
    // The JSON library treats a zero byte as the end of the text and ignores what follows.
    if (const auto zero = json.find('\0'); zero != std::string_view::npos)
        throw Error(fmt::format("{} has a zero byte in its header (at byte {} of it).", where, zero),
                    damaged);
    HeaderReader reader(where);
    nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
    SafetensorsHeader header = reader.take();

    auto& entries = header.entries;
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    const auto twice = std::adjacent_find(entries.begin(), entries.end(),
                                          [](const auto& a, const auto& b) { return a.name == b.name; });
    if (twice != entries.end())
        throw Error(fmt::format("{} has the tensor {} twice in its header.", where, quoted_name(twice->name)),
                    damaged);
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    return header;
}

void check_offsets(const SafetensorsHeader& header, std::uint64_t file_size, std::string_view where) {
    std::uint64_t covered = 0;
    const SafetensorsEntry* previous = nullptr;
    for (const SafetensorsEntry& entry : header.entries) {
        if (entry.begin < covered)
            throw Error(fmt::format("{}: the tensor {} overlaps {}.", where, quoted_name(entry.name),
                                    quoted_name(previous->name)),
                        damaged);
        if (entry.begin > covered)
            throw Error(
                fmt::format("{}: the tensor {} starts at byte {} of the data, but what comes before it ends "
                            "at byte {}.",
                            where, quoted_name(entry.name), entry.begin, covered),
                damaged);
        covered = entry.end;
        previous = &entry;
    }
    const std::uint64_t data_bytes = file_size - header.data_begin;
    if (covered > data_bytes) {
        const auto cut = std::find_if(header.entries.begin(), header.entries.end(),
                                      [&](const SafetensorsEntry& entry) { return entry.end > data_bytes; });
        throw Error(
            fmt::format(
                "{} ends inside the tensor {}: its header describes {} bytes of data and the file has "
                "{}.",
                where, quoted_name(cut->name), covered, data_bytes),
            fetch_again);
    }
    if (covered < data_bytes)
        throw Error(fmt::format("{} has {} bytes after its last tensor.", where, data_bytes - covered),
                    damaged);
}

}  // namespace safetensors_detail
}  // namespace drover
