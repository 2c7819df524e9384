#include <cstddef>
#include <cstdint>

#include "fuzz/chat_template_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    drover::test::accepts_chat_template({reinterpret_cast<const char*>(data), size});
    return 0;
}
