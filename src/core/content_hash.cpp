#include "core/content_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <fstream>
#include <vector>

#include "core/byte_text.h"
#include "core/error.h"

namespace drover {

struct ContentHash::State {
    State() : xxh(XXH3_createState()) {
        if (xxh == nullptr) throw std::bad_alloc();
        XXH3_128bits_reset(xxh);
    }
    ~State() { XXH3_freeState(xxh); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    XXH3_state_t* xxh;
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) {}
ContentHash::~ContentHash() = default;
ContentHash::ContentHash(ContentHash&&) noexcept = default;
ContentHash& ContentHash::operator=(ContentHash&&) noexcept = default;

ContentHash& ContentHash::add_bytes(std::string_view bytes) {
    XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
    return *this;
}

ContentHash& ContentHash::add(std::string_view part) {
    return add_bytes(fmt::format("{}:", part.size())).add_bytes(part);
}

ContentHash& ContentHash::add_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<char> piece(std::size_t{1} << 20);
    while (file) {
        file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
        add_bytes({piece.data(), static_cast<std::size_t>(file.gcount())});
    }
    if (!file.eof())
        throw Error(fmt::format("{} cannot be read.", path.string()),
                    "Check that it exists and that you may read it.");
    return *this;
}

std::array<unsigned char, 16> ContentHash::digest() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh));
    std::array<unsigned char, 16> bytes;
    std::copy(std::begin(canonical.digest), std::end(canonical.digest), bytes.begin());
    return bytes;
}

std::string ContentHash::hex() const {
    return hex_text(digest());
}

}  // namespace drover
