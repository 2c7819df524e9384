#include "comm/nccl/nccl_communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>

#include "comm/nccl/nccl_communicator.h"
#include "core/console.h"
#include "core/machine_identity.h"

namespace drover {
namespace {

/// Where a rank runs; sent as raw bytes.
struct RankLocation {
    std::uint64_t machine = 0;
    std::array<std::byte, 16> gpu{};
};

/// Every rank's, in order.
std::vector<RankLocation> exchange_locations(World& world, const RankLocation& own) {
    std::vector<int> ranks(static_cast<std::size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    const auto everyone = world.make_communicator("machines", ranks);
    std::vector<RankLocation> all(ranks.size());
    all[static_cast<std::size_t>(world.rank())] = own;
    const auto each = static_cast<std::int64_t>(sizeof(RankLocation));
    const Tensor whole(all.data(), DType::u8, {each * world.size()});
    everyone->all_gather({}, whole.rows(each * world.rank(), each), whole);
    return all;
}

}  // namespace

NcclCommunicators::NcclCommunicators(World& world, std::unique_ptr<GpuLinks> gpu)
    : world_(world),
      gpu_(std::move(gpu)),
      watch_(world, *gpu_),
      exceptions_before_(std::uncaught_exceptions()) {
    tell_apart_ranks_of_one_gpu();
}

NcclCommunicators::~NcclCommunicators() {
    if (std::uncaught_exceptions() > exceptions_before_) watch_.abandon();
    for (auto& [ranks, link] : links_) watch_.remove(*link);
}

/// NCCL refuses several ranks of one machine on one GPU. It accepts them as ranks of different machines. A
/// value set by the user is kept.
void NcclCommunicators::tell_apart_ranks_of_one_gpu() {
    if (world_.size() == 1 || gpu_->device() != Device::cuda) return;
    const std::vector<RankLocation> all =
        exchange_locations(world_, {.machine = machine_identity(), .gpu = gpu_->gpu_identity()});
    const bool one_machine = std::all_of(
        all.begin(), all.end(), [&](const RankLocation& other) { return other.machine == all[0].machine; });
    const auto ranks_of_gpu = [&](const RankLocation& one) {
        return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const RankLocation& other) {
            return other.machine == one.machine && other.gpu == one.gpu;
        }));
    };
    ranks_of_gpu_ = ranks_of_gpu(all[static_cast<std::size_t>(world_.rank())]);
    if (std::all_of(all.begin(), all.end(), [&](const RankLocation& one) { return ranks_of_gpu(one) == 1; }))
        return;
    setenv("NCCL_HOSTID", fmt::format("drover-rank-{}", world_.rank()).c_str(), 0);
    if (one_machine) setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    if (world_.rank() == 0)
        print_log(stderr, "Ranks share a GPU: NCCL carries their data as between machines, which is slow.\n");
}

MakeCommunicator NcclCommunicators::maker() {
    return
        [this](std::string axis, std::vector<int> ranks) { return make(std::move(axis), std::move(ranks)); };
}

std::unique_ptr<Communicator> NcclCommunicators::make(std::string axis, std::vector<int> ranks,
                                                      SingleRankAxis single_rank) {
    NcclCommunicator::Hosts hosts{.control = world_.make_communicator(axis, ranks),
                                  .connection = world_.make_communicator(axis + " (connection)", ranks),
                                  .answers = world_.make_communicator(axis + " (answers)", ranks)};
    if (ranks.size() == 1 && single_rank == SingleRankAxis::idles)
        return make_self_communicator(std::move(axis));
    const auto self = std::find(ranks.begin(), ranks.end(), world_.rank());
    const auto own = static_cast<int>(self - ranks.begin());
    Group group{.axis = std::move(axis), .ranks = std::move(ranks), .rank = own};
    WatchedLink& link = link_of(group, *hosts.connection);
    return std::make_unique<NcclCommunicator>(watch_, link, std::move(group), std::move(hosts));
}

WatchedLink& NcclCommunicators::link_of(const Group& group, Communicator& connection) {
    auto& link = links_[group.ranks];
    if (link != nullptr) return *link;
    LinkId id{};
    if (group.rank == 0) id = gpu_->make_id();
    connection.broadcast({}, Tensor(id.data(), DType::u8, {static_cast<std::int64_t>(id.size())}), 0);
    link = std::make_unique<WatchedLink>();
    link->ranks = group.ranks;
    link->rank = group.rank;
    watch_.connect(*link, id,
                   [&] { return fmt::format("axis {} ({})", group.axis, ranks_text(group.ranks)); });
    return *link;
}

}  // namespace drover
