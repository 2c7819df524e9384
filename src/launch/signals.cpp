#include "launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "core/error.h"

namespace drover {

bool asks_for_the_end(int signal_number) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR2})
        if (signal_number == number) return true;
    return false;
}

LaunchSignals::LaunchSignals(LaunchLoop& loop) : loop_(loop) {
    sigset_t watched;
    sigemptyset(&watched);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGCHLD})
        sigaddset(&watched, number);
    require(sigprocmask(SIG_BLOCK, &watched, &before_) == 0, "signals that cannot be blocked");
    descriptor_ = FileDescriptor(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
    require(descriptor_.is_open(), "signals that cannot be read");
    loop_.watch(descriptor_.number(), [this] {
        signalfd_siginfo info;
        while (read(descriptor_.number(), &info, sizeof info) == sizeof info)
            if (info.ssi_signo != SIGCHLD) came_.push_back(static_cast<int>(info.ssi_signo));
    });
}

LaunchSignals::~LaunchSignals() {
    loop_.forget(descriptor_.number());
    sigprocmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace drover
