#include "backend/cpu/tiles/amx_probe.h"

#include <cpuid.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "backend/backend.h"
#include "backend/run_settings.h"
#include "core/error.h"
#include "support/errors.h"

namespace drover::test::amx_probe_test {
namespace {

bool processor_lists_amx() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & (1u << 22)) && (edx & (1u << 24));
}

TEST(AmxProbe, EndsOnEveryMachineAndLeavesSignalsAlone) {
    struct sigaction before, after;
    sigaction(SIGILL, nullptr, &before);
    const bool usable = cpu::tiles::amx_usable();
    sigaction(SIGILL, nullptr, &after);
    EXPECT_EQ(before.sa_handler, after.sa_handler);
    EXPECT_EQ(usable, cpu::tiles::amx_usable());
    if (!processor_lists_amx()) {
        EXPECT_FALSE(usable);
    }
}

TEST(AmxProbe, ForcingWhatIsNotThereIsAnError) {
    if (cpu::tiles::amx_usable()) GTEST_SKIP() << "this machine has AMX";
    expect_error([] { make_cpu_backend(settings_with(CpuInstructions::amx)); },
                 {"DROVER_CPU_ISA is \"amx\", but this processor has no AMX."});
}

}  // namespace
}  // namespace drover::test::amx_probe_test
