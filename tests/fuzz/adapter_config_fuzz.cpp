#include <cstddef>
#include <cstdint>

#include "fuzz/adapter_config_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    drover::test::accepts_adapter_config({reinterpret_cast<const char*>(data), size});
    return 0;
}
