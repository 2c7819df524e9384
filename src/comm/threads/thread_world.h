#pragma once

#include <functional>
#include <memory>

#include "comm/world.h"

namespace drover {

class Mailboxes;

/// A world whose ranks are threads of this process. Several worlds can exist side by side.
class ThreadWorld {
  public:
    explicit ThreadWorld(int size, const WorldOptions& options = {});

    /// This rank's side. Once per rank; typically each on its own thread.
    std::unique_ptr<World> join(int rank);

  private:
    std::shared_ptr<Mailboxes> mailboxes_;
    WorldOptions options_;
};

/// Runs work(world) for every rank of a new world, each on a thread of its own, and returns when all have
/// ended. When one throws, the others are notified; the first exception is rethrown here.
void run_as_threads(int size, const WorldOptions& options, const std::function<void(World&)>& work);

}  // namespace drover
