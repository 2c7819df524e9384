#include "core/machine_identity.h"

#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>

#include "core/content_hash.h"

namespace drover {

std::string host_name() {
    std::array<char, 256> name{};
    const bool known = gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0';
    return known ? name.data() : "localhost";
}

std::string boot_id() {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    return boot;
}

std::uint64_t machine_identity() {
    // Containers may have the same name everywhere; the boot id differs for every start of a kernel.
    const auto digest = ContentHash().add(host_name()).add(boot_id()).digest();
    std::uint64_t identity = 0;
    std::memcpy(&identity, digest.data(), sizeof identity);
    return identity;
}

}  // namespace drover
