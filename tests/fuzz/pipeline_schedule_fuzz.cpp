#include <cstddef>
#include <cstdint>

#include "fuzz/pipeline_schedule_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    drover::test::accepts_pipeline_schedule({reinterpret_cast<const char*>(data), size});
    return 0;
}
