#include "backend/backend_settings.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cstdlib>

#include "core/error.h"

namespace drover {
namespace {

/// Absent when it is not set.
std::optional<std::string> variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::optional<CpuInstructions> cpu_instructions() {
    const std::string name = variable("DROVER_CPU_ISA").value_or("");
    if (name.empty()) return std::nullopt;
    if (name == "avx2") return CpuInstructions::avx2;
    if (name == "avx512") return CpuInstructions::avx512;
    if (name == "amx") return CpuInstructions::amx;
    throw Error(
        fmt::format("DROVER_CPU_ISA is \"{}\", which is not an instruction set that drover knows.", name),
        "Set it to avx2, avx512 or amx, or leave it unset.");
}

/// oneDNN reads the same variables, and ignores case.
std::string onednn_instructions() {
    for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"})
        if (std::optional<std::string> level = variable(name)) {
            for (char& letter : *level)
                letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
            return *level;
        }
    return {};
}

std::optional<GroupedGemmMethod> grouped_gemm() {
    const std::string name = variable("DROVER_GROUPED_GEMM").value_or("");
    if (name.empty()) return std::nullopt;
    if (name == "cublas") return GroupedGemmMethod::cublas;
    if (name == "streams") return GroupedGemmMethod::streams;
    if (name == "kernel") return GroupedGemmMethod::kernel;
    throw Error(fmt::format("DROVER_GROUPED_GEMM is \"{}\".", name),
                "Use cublas, streams or kernel, or unset it.");
}

std::optional<AttentionBackwardMethod> attention_backward() {
    const std::string name = variable("DROVER_ATTENTION_BACKWARD").value_or("");
    if (name.empty()) return std::nullopt;
    if (name == "cudnn") return AttentionBackwardMethod::cudnn;
    if (name == "kernel") return AttentionBackwardMethod::kernel;
    throw Error(fmt::format("DROVER_ATTENTION_BACKWARD is \"{}\".", name),
                "Use cudnn or kernel, or unset it.");
}

std::int64_t attention_piece_mb() {
    constexpr const char* name = "DROVER_ATTENTION_PIECE_MB";
    constexpr std::int64_t most = BackendSettings::default_attention_piece_mb;
    const std::optional<std::string> text = variable(name);
    if (!text) return most;
    std::int64_t megabytes = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), megabytes);
    if (error != std::errc{} || *end != '\0' || megabytes < 1 || megabytes > most)
        throw Error(fmt::format("{} is '{}', which is no number from 1 to {}.", name, *text, most),
                    "Set it to the MiB that a piece of attention's backward may take, or unset it.");
    return megabytes;
}

bool cuda_graphs() {
    const std::string value = variable("DROVER_CUDA_GRAPHS").value_or("1");
    if (value != "0" && value != "1")
        throw Error(fmt::format("DROVER_CUDA_GRAPHS is \"{}\".", value),
                    "Set it to 0, so that a GPU gets every operation by itself, or unset it.");
    return value == "1";
}

}  // namespace

BackendSettings backend_settings_from_environment() {
    return {.cpu_instructions = cpu_instructions(),
            .onednn_instructions = onednn_instructions(),
            .grouped_gemm = grouped_gemm(),
            .attention_backward = attention_backward(),
            .attention_piece_mb = attention_piece_mb(),
            .cuda_graphs = cuda_graphs()};
}

}  // namespace drover
