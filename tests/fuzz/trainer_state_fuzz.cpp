#include <cstddef>
#include <cstdint>

#include "fuzz/trainer_state_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    drover::test::accepts_trainer_state({reinterpret_cast<const char*>(data), size});
    return 0;
}
