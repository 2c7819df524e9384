#include <cstddef>
#include <cstdint>

#include "fuzz/hub_answer_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    drover::test::accepts_hub_answer({reinterpret_cast<const char*>(data), size});
    return 0;
}
