#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/accepts.h"
#include "io/torch_pickle.h"

namespace drover::test {

/// Opens, verifies, visits every value in the first lists and dicts, and the tensors among them.
inline bool accepts_torch_pickle(std::string_view bytes) {
    using Kind = PickleValue::Kind;
    return accepts([&] {
        const TorchPickle pickle(bytes, "input");
        pickle.verify();
        PickleValue value = pickle.root();
        // A list may contain itself, so the depth is limited.
        for (int depth = 0; depth < 100; ++depth) {
            if (value.kind() == Kind::tensor) {
                const PickleTensor& tensor = value.tensor();
                std::uint64_t last = 0;
                for (std::size_t i = 0; i < tensor.shape.size(); ++i)
                    if (tensor.shape[i] > 0)
                        last += static_cast<std::uint64_t>(tensor.shape[i] - 1) *
                                static_cast<std::uint64_t>(tensor.strides[i]);
                require(tensor.numel() == 0 ||
                            (last + 1) * static_cast<std::uint64_t>(bits_of(tensor.dtype)) / 8 <=
                                tensor.elements.size(),
                        "a tensor reaches outside its storage");
                return;
            }
            const bool has_parts =
                value.kind() == Kind::list || value.kind() == Kind::tuple || value.kind() == Kind::dict;
            if (!has_parts || value.size() == 0) return;
            value = value.kind() == Kind::dict ? value.value(value.size() - 1) : value.at(value.size() - 1);
        }
    });
}

/// A pickle without an archive.
inline bool accepts_plain_pickle(std::string_view bytes) {
    return accepts([&] {
        const PlainPickle pickle(bytes, "input");
        if (pickle.root().kind() == PickleValue::Kind::object) pickle.root().state().kind();
    });
}

/// A zip archive of stored entries, with correct checksums.
inline std::string stored_archive(const std::vector<std::pair<std::string, std::string>>& entries) {
    std::string file, directory;
    const auto put = [](std::string& to, std::uint64_t value, int bytes) {
        for (int i = 0; i < bytes; ++i) to.push_back(i < 8 ? static_cast<char>(value >> (8 * i)) : '\0');
    };
    for (const auto& entry : entries) {
        const std::string& name = entry.first;
        const std::string& content = entry.second;
        const std::uint64_t begin = file.size();
        const std::uint64_t checksum =
            crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(content.data()), content.size());
        const auto put_sizes = [&](std::string& to) {
            put(to, checksum, 4);
            put(to, content.size(), 4);
            put(to, content.size(), 4);
            put(to, name.size(), 2);
            put(to, 0, 2);
        };
        put(file, 0x04034b50, 4);
        put(file, 0, 10);
        put_sizes(file);
        file += name + content;
        put(directory, 0x02014b50, 4);
        put(directory, 0, 12);
        put_sizes(directory);
        put(directory, 0, 10);
        put(directory, begin, 4);
        directory += name;
    }
    const std::uint64_t begin = file.size();
    file += directory;
    put(file, 0x06054b50, 4);
    put(file, 0, 4);
    put(file, entries.size(), 2);
    put(file, entries.size(), 2);
    put(file, directory.size(), 4);
    put(file, begin, 4);
    put(file, 0, 2);
    return file;
}

/// `program` as the pickle of a sound file with one storage of 16 bytes, so that all code after the archive
/// and its checksums is reached.
inline bool accepts_pickle_program(std::string_view program) {
    return accepts_torch_pickle(stored_archive(
        {{"archive/data.pkl", std::string(program)}, {"archive/data/0", std::string(16, '\1')}}));
}

}  // namespace drover::test
