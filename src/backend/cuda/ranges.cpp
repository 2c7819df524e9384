#include "backend/cuda/ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace drover::cuda {
namespace {

nvtxDomainHandle_t domain() {
    static const nvtxDomainHandle_t made = nvtxDomainCreateA("drover");
    return made;
}

int push(const char* text) {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = text;
    return nvtxDomainRangePushEx(domain(), &attributes);
}

}  // namespace

void push_range(std::string_view name, int number) {
    std::array<char, 64> text{};
    char* end = std::copy_n(name.data(), std::min(name.size(), text.size() / 2), text.data());
    if (number >= 0) {
        *end++ = ' ';
        end = std::to_chars(end, text.data() + text.size() - 1, number).ptr;
    }
    *end = '\0';
    push(text.data());
}

void pop_range() {
    nvtxDomainRangePop(domain());
}

bool tool_takes_ranges() {
    // Without a tool the functions of NVTX are empty and give a negative level.
    const bool takes = push("drover") >= 0;
    if (takes) pop_range();
    return takes;
}

}  // namespace drover::cuda
