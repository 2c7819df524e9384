#include "train/callbacks/signal_thread.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>

namespace drover {
namespace {

/// Waits for something that another thread does; ends the process with 3 if it does not happen.
void wait_until(const std::function<bool()>& happened) {
    for (int i = 0; i < 3000; ++i) {
        if (happened()) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::_Exit(3);
}

[[noreturn]] void wait_for_the_end() {
    wait_until([] { return false; });
    std::abort();
}

/// Each in a separate process, whose other threads were created after the SignalThread.
class SignalThreads : public testing::Test {
  protected:
    SignalThreads() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(SignalThreads, NoteSignalsWhileTheyAreArmed) {
    EXPECT_EXIT(
        {
            SignalThread signals;
            signals.arm();
            kill(getpid(), SIGUSR1);
            wait_until([&] { return signals.take_save_asked(); });
            if (signals.take_save_asked() || signals.end_asked() != 0) std::_Exit(4);
            kill(getpid(), SIGTERM);
            wait_until([&] { return signals.end_asked() == SIGTERM; });
            if (signals.disarm() != SIGTERM) std::_Exit(5);
            signals.arm();
            std::_Exit(signals.end_asked() == 0 ? 0 : 6);
        },
        testing::ExitedWithCode(0), "");
}

TEST_F(SignalThreads, EndTheProgramAtTheSecondSignal) {
    EXPECT_EXIT(
        {
            SignalThread signals;
            signals.arm();
            kill(getpid(), SIGTERM);
            wait_until([&] { return signals.end_asked() == SIGTERM; });
            kill(getpid(), SIGINT);
            wait_for_the_end();
        },
        testing::ExitedWithCode(128 + SIGINT), "");
}

TEST_F(SignalThreads, LetSignalsActBeforeTheyAreArmedAndAfterwards) {
    EXPECT_EXIT(
        {
            SignalThread signals;
            kill(getpid(), SIGTERM);
            wait_for_the_end();
        },
        testing::KilledBySignal(SIGTERM), "");
    EXPECT_EXIT(
        {
            SignalThread signals;
            signals.arm();
            signals.disarm();
            kill(getpid(), SIGTERM);
            wait_for_the_end();
        },
        testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace drover
