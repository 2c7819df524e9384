#include <cstddef>
#include <cstdint>

#include "fuzz/torch_pickle_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    drover::test::accepts_torch_pickle(input);
    drover::test::accepts_pickle_program(input);
    drover::test::accepts_plain_pickle(input);
    return 0;
}
