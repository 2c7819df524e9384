#include "launch/daemons.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <random>

#include "launch/network.h"

namespace drover {

LaunchDaemons::LaunchDaemons(LaunchLoop& loop, Rendezvous& rendezvous)
    : loop_(loop),
      rendezvous_(rendezvous),
      socket_name_(fmt::format("drover-launch-{}-{:08x}", getpid(), std::random_device()())) {
    listener_ = listen_locally(socket_name_);
    loop_.watch(listener_.number(), [this] { take_connection(); });
}

LaunchDaemons::~LaunchDaemons() {
    loop_.forget(listener_.number());
    for (const auto& [number, request] : requests_) loop_.forget(request.starter->descriptor());
}

void LaunchDaemons::take_connection() {
    FileDescriptor socket = accept_connection(listener_);
    if (!socket.is_open() || !is_own_peer(socket)) return;
    const int number = ++last_number_;
    Request& request = requests_[number];
    request.starter = std::make_unique<LaunchConnection>(std::move(socket), largest_launch_message);
    loop_.watch(request.starter->descriptor(), [this, number] { hear(number); });
}

void LaunchDaemons::hear(int number) {
    Request& request = requests_.at(number);
    for (LaunchMessage& message : request.starter->receive()) {
        if (message.subject != LaunchSubject::run || request.node != 0) continue;
        const std::string host = message.texts.front();
        const std::optional<int> node = rendezvous_.node_at(host);
        if (!node) return end(number, 1, fmt::format("No launcher waits on {}.", host));
        request.node = *node;
        message.numbers = {number};
        message.texts.erase(message.texts.begin());
        rendezvous_.send(*node, message);
    }
    if (!request.starter->is_lost()) return;
    // mpirun killed the starter in order to kill the daemon.
    if (request.node != 0)
        rendezvous_.send(request.node, {.subject = LaunchSubject::stop, .numbers = {SIGTERM}});
    loop_.forget(request.starter->descriptor());
    requests_.erase(number);
}

void LaunchDaemons::end(int number, int status, const std::string& note) {
    Request& request = requests_.at(number);
    request.starter->send({.subject = LaunchSubject::ended, .numbers = {number, status}, .texts = {note}});
    loop_.forget(request.starter->descriptor());
    requests_.erase(number);
}

void LaunchDaemons::take(int node, const LaunchMessage& message) {
    if (message.subject != LaunchSubject::output && message.subject != LaunchSubject::ended) return;
    const int number = message.numbers[0];
    const auto found = requests_.find(number);
    if (found == requests_.end() || found->second.node != node) return;
    if (message.subject == LaunchSubject::output)
        found->second.starter->send(message);
    else
        end(number, message.numbers[1], message.texts[0]);
}

}  // namespace drover
