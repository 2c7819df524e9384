#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

/// As much of CUDA's driver and run-time as it takes to open a GPU that is not there, preloaded by
/// gpu_start.sh: FAKE_CAPABILITY is its compute capability without the dot, FAKE_CODE for what the kernels
/// that run were compiled (such as 800), FAKE_ERROR why they cannot run.
namespace {

cudaError_t last_error = cudaSuccess;

int number(const char* name) {
    const char* text = std::getenv(name);
    return text == nullptr ? 0 : std::atoi(text);
}

cudaError_t launch() {
    return last_error = static_cast<cudaError_t>(number("FAKE_ERROR"));
}

}  // namespace

extern "C" {

int cuInit(unsigned) {
    return 0;
}
int cuDeviceGetCount(int* count) {
    *count = 1;
    return 0;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {};
    std::strcpy(properties->name, "Fake GPU");
    properties->major = number("FAKE_CAPABILITY") / 10;
    properties->minor = number("FAKE_CAPABILITY") % 10;
    properties->sharedMemPerBlockOptin = 99 << 10;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
    return cudaSuccess;
}
cudaError_t cudaGetLastError() {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    *memory = std::malloc(bytes);
    return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
    std::free(memory);
    return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
    std::memset(memory, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void*, std::size_t, cudaMemcpyKind) {
    const int code = number("FAKE_CODE");
    std::memcpy(to, &code, sizeof(code));
    return cudaSuccess;
}

// What kernel<<<…>>> becomes.
unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t, void*) {
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) {
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(void** kernel, const void* function) {
    *kernel = const_cast<void*>(function);
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(void*, dim3, dim3, void**, std::size_t, cudaStream_t) {
    return launch();
}
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t) {
    return launch();
}
}
