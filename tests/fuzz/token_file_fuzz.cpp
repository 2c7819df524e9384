#include <cstddef>
#include <cstdint>

#include "fuzz/token_file_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    drover::test::accepts_token_file(bytes);
    drover::test::accepts_token_file_with_right_checksums(std::string(bytes));
    return 0;
}
