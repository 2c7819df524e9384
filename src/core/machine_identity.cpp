#include "core/machine_identity.h"

#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <string>

#include "core/content_hash.h"

namespace drover {

std::uint64_t machine_identity() {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    // Containers may have the same name everywhere; a kernel's start has a number of its own.
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    const auto digest = ContentHash().add(name.data()).add(boot).digest();
    std::uint64_t identity = 0;
    std::memcpy(&identity, digest.data(), sizeof identity);
    return identity;
}

}  // namespace drover
