// What a profiler does to be told of NVTX ranges: NVTX loads it when NVTX_INJECTION64_PATH names it.

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace {

std::string heard;
int level = 0;

nvtxDomainHandle_t create(const char* name) {
    heard += std::string("domain ") + name + "\n";
    return reinterpret_cast<nvtxDomainHandle_t>(&heard);
}
int push(nvtxDomainHandle_t, const nvtxEventAttributes_t* range) {
    heard += std::string(static_cast<std::size_t>(level), ' ') + range->message.ascii + "\n";
    return level++;
}
int pop(nvtxDomainHandle_t) {
    return --level;
}

}  // namespace

extern "C" const char* listening_tool_heard() {
    return heard.c_str();
}

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of) {
    const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
    NvtxFunctionTable functions = nullptr;
    unsigned count = 0;
    if (callbacks == nullptr ||
        callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &count) == 0)
        return 0;
    *functions[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create);
    *functions[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
    *functions[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
    return 1;
}
