#include "backend/backend_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "core/error.h"

namespace drover::backend_settings_test {
namespace {

/// Sets an environment variable for the object's lifetime; a null pointer unsets it.
class ForcedVariable {
  public:
    ForcedVariable(const char* name, const char* value) : name_(name) {
        if (const char* before = std::getenv(name)) before_ = before;
        set(value);
    }
    ~ForcedVariable() { set(before_ ? before_->c_str() : nullptr); }
    ForcedVariable(const ForcedVariable&) = delete;
    ForcedVariable& operator=(const ForcedVariable&) = delete;

  private:
    void set(const char* value) {
        if (value == nullptr)
            unsetenv(name_);
        else
            setenv(name_, value, 1);
    }
    const char* name_;
    std::optional<std::string> before_;
};

BackendSettings settings_with(const char* name, const char* value) {
    const ForcedVariable forced(name, value);
    return backend_settings_from_environment();
}

/// The error's cause and remedy; empty if there is none.
std::string refusal_of(const char* name, const char* value) {
    try {
        settings_with(name, value);
    } catch (const Error& error) {
        return error.cause() + " " + error.remedy();
    }
    return {};
}

TEST(BackendSettings, NothingIsForcedWhereNoVariableIsSet) {
    const ForcedVariable none[] = {
        {"DROVER_CPU_ISA", nullptr},           {"ONEDNN_MAX_CPU_ISA", nullptr},
        {"DNNL_MAX_CPU_ISA", nullptr},         {"DROVER_GROUPED_GEMM", nullptr},
        {"DROVER_CUDA_GRAPHS", nullptr},       {"DROVER_ATTENTION_PIECE_MB", nullptr},
        {"DROVER_ATTENTION_BACKWARD", nullptr}};
    const BackendSettings settings = backend_settings_from_environment();
    EXPECT_EQ(settings.cpu_instructions, std::nullopt);
    EXPECT_EQ(settings.onednn_instructions, "");
    EXPECT_EQ(settings.grouped_gemm, std::nullopt);
    EXPECT_EQ(settings.attention_backward, std::nullopt);
    EXPECT_EQ(settings.attention_piece_mb, 4096);
    EXPECT_TRUE(settings.cuda_graphs);
}

TEST(BackendSettings, ComeFromTheEnvironment) {
    EXPECT_EQ(settings_with("DROVER_CPU_ISA", "avx2").cpu_instructions, CpuInstructions::avx2);
    EXPECT_EQ(settings_with("DROVER_CPU_ISA", "avx512").cpu_instructions, CpuInstructions::avx512);
    EXPECT_EQ(settings_with("DROVER_CPU_ISA", "amx").cpu_instructions, CpuInstructions::amx);
    EXPECT_EQ(settings_with("DROVER_CPU_ISA", "").cpu_instructions, std::nullopt);
    EXPECT_EQ(settings_with("ONEDNN_MAX_CPU_ISA", "avx2_vnni").onednn_instructions, "AVX2_VNNI");
    EXPECT_EQ(settings_with("DROVER_GROUPED_GEMM", "cublas").grouped_gemm, GroupedGemmMethod::cublas);
    EXPECT_EQ(settings_with("DROVER_GROUPED_GEMM", "streams").grouped_gemm, GroupedGemmMethod::streams);
    EXPECT_EQ(settings_with("DROVER_GROUPED_GEMM", "kernel").grouped_gemm, GroupedGemmMethod::kernel);
    EXPECT_EQ(settings_with("DROVER_ATTENTION_BACKWARD", "cudnn").attention_backward,
              AttentionBackwardMethod::cudnn);
    EXPECT_EQ(settings_with("DROVER_ATTENTION_BACKWARD", "kernel").attention_backward,
              AttentionBackwardMethod::kernel);
    EXPECT_EQ(settings_with("DROVER_ATTENTION_PIECE_MB", "17").attention_piece_mb, 17);
    EXPECT_FALSE(settings_with("DROVER_CUDA_GRAPHS", "0").cuda_graphs);
    EXPECT_TRUE(settings_with("DROVER_CUDA_GRAPHS", "1").cuda_graphs);
}

TEST(BackendSettings, WrongValuesAreNamed) {
    EXPECT_EQ(refusal_of("DROVER_CPU_ISA", "sse9"),
              "DROVER_CPU_ISA is \"sse9\", which is not an instruction set that drover knows. "
              "Set it to avx2, avx512 or amx, or leave it unset.");
    EXPECT_EQ(refusal_of("DROVER_GROUPED_GEMM", "fastest"),
              "DROVER_GROUPED_GEMM is \"fastest\". Use cublas, streams or kernel, or unset it.");
    EXPECT_EQ(refusal_of("DROVER_ATTENTION_BACKWARD", "fastest"),
              "DROVER_ATTENTION_BACKWARD is \"fastest\". Use cudnn or kernel, or unset it.");
    for (const char* wrong : {"", "0", "4097", "1x", "-1"})
        EXPECT_EQ(refusal_of("DROVER_ATTENTION_PIECE_MB", wrong),
                  "DROVER_ATTENTION_PIECE_MB is '" + std::string(wrong) +
                      "', which is no number from 1 to 4096. Set it to the MiB that a piece of attention's "
                      "backward may take, or unset it.");
    EXPECT_EQ(
        refusal_of("DROVER_CUDA_GRAPHS", "never"),
        "DROVER_CUDA_GRAPHS is \"never\". Set it to 0, so that a GPU gets every operation by itself, or "
        "unset it.");
}

}  // namespace
}  // namespace drover::backend_settings_test
