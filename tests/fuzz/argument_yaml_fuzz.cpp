#include <cstddef>
#include <cstdint>

#include "fuzz/argument_yaml_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    drover::test::accepts_argument_yaml({reinterpret_cast<const char*>(data), size});
    return 0;
}
