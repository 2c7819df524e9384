#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/json.h"
#include "io/gguf_header.h"
#include "io/raw_files.h"

namespace drover::test {

/// A GGUF file read back: keys, and tensors with their dimensions in torch's order.
struct GgufContent {
    struct Entry {
        GgmlType type;
        std::vector<std::int64_t> shape;
        std::string bytes;

        std::vector<float> floats() const {
            std::vector<float> values(bytes.size() / sizeof(float));
            std::memcpy(values.data(), bytes.data(), bytes.size());
            return values;
        }
    };

    std::map<std::string, Json> keys;
    std::map<std::string, Entry> tensors;

    explicit GgufContent(const std::filesystem::path& path) : file_(read_raw(path)) {
        if (file_.substr(0, 4) != "GGUF") throw std::runtime_error("not a GGUF file");
        at_ = 8;
        const auto tensor_count = take<std::uint64_t>(), key_count = take<std::uint64_t>();
        for (std::uint64_t i = 0; i < key_count; ++i) {
            const std::string key = text();
            keys[key] = value(take<std::uint32_t>());
        }
        std::map<std::string, std::uint64_t> offsets;
        for (std::uint64_t i = 0; i < tensor_count; ++i) {
            const std::string name = text();
            Entry& entry = tensors[name];
            entry.shape.resize(take<std::uint32_t>());
            for (std::size_t d = entry.shape.size(); d-- > 0;)
                entry.shape[d] = static_cast<std::int64_t>(take<std::uint64_t>());
            entry.type = static_cast<GgmlType>(take<std::uint32_t>());
            offsets[name] = take<std::uint64_t>();
        }
        const std::uint64_t begin = (at_ + 31) / 32 * 32;
        for (auto& [name, entry] : tensors) {
            std::uint64_t count = 1;
            for (const std::int64_t size : entry.shape) count *= static_cast<std::uint64_t>(size);
            if (offsets[name] % 32 != 0) throw std::runtime_error(name + " is not aligned");
            entry.bytes = file_.substr(begin + offsets[name], bytes_of(entry.type, count));
        }
    }

  private:
    template <class T>
    T take() {
        T value;
        std::memcpy(&value, file_.data() + at_, sizeof(T));
        at_ += sizeof(T);
        return value;
    }
    std::string text() {
        const auto size = take<std::uint64_t>();
        at_ += size;
        return file_.substr(at_ - size, size);
    }
    Json value(std::uint32_t type) {
        switch (type) {
            case 4:
                return take<std::uint32_t>();
            case 5:
                return take<std::int32_t>();
            case 6:
                return take<float>();
            case 7:
                return take<std::uint8_t>() != 0;
            case 8:
                return text();
            case 9: {
                const auto element = take<std::uint32_t>();
                Json values = Json::array();
                for (auto count = take<std::uint64_t>(); count > 0; --count) values.push_back(value(element));
                return values;
            }
            default:
                throw std::runtime_error("a value of another type");
        }
    }

    std::string file_;
    std::size_t at_ = 0;
};

}  // namespace drover::test
