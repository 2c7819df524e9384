// A driver with one GPU, for machines without one: the functions of libcuda.so.1 and libnvidia-ml.so.1 that
// doctor/gpu_driver.cpp calls.
#include <cstddef>
#include <cstdio>
#include <cstring>

extern "C" {

int cuInit(unsigned) {
    return 0;
}
int cuDriverGetVersion(int* version) {
    *version = 13000;
    return 0;
}
int cuDeviceGetCount(int* count) {
    *count = 1;
    return 0;
}
int cuDeviceGet(int* device, int ordinal) {
    *device = ordinal + 40;
    return 0;
}
int cuDeviceGetName(char* name, int room, int device) {
    std::snprintf(name, static_cast<std::size_t>(room), "Fake GPU %d", device);
    return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
    *value = attribute == 75 ? 8 : attribute == 76 ? 6 : 0;
    return 0;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
    *bytes = std::size_t{24} << 30;
    return 0;
}
int cuDeviceGetPCIBusId(char* text, int room, int) {
    std::snprintf(text, static_cast<std::size_t>(room), "0000:17:00.0");
    return 0;
}

int nvmlInit_v2() {
    return 0;
}
int nvmlShutdown() {
    return 0;
}
int nvmlSystemGetDriverVersion(char* text, unsigned room) {
    std::snprintf(text, room, "580.17.99");
    return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
    static int only;
    *device = &only;
    return std::strcmp(bus_id, "0000:17:00.0") == 0 ? 0 : 1;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
    memory[0] = 24ull << 30;
    memory[1] = 23ull << 30;
    memory[2] = 1ull << 30;
    return 0;
}
}
