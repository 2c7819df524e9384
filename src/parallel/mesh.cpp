#include "parallel/mesh.h"

#include <fmt/format.h>

#include <functional>
#include <utility>
#include <vector>

#include "core/error.h"

namespace drover {

MeshPlace place_of(const MeshShape& shape, int rank) {
    MeshPlace place;
    place.tp = rank % shape.tp;
    rank /= shape.tp;
    place.cp = rank % shape.cp;
    rank /= shape.cp;
    place.data = rank % shape.data;
    rank /= shape.data;
    place.dcn = rank % shape.dcn;
    place.pp = rank / shape.dcn;
    return place;
}

Mesh::Mesh()
    : tp_(make_self_communicator("tp")),
      data_(make_self_communicator("data")),
      dcn_(make_self_communicator("dcn")),
      replicas_(make_self_communicator("dcn+data")),
      key_value_copies_(make_self_communicator("key/value copies")),
      everyone_(make_self_communicator("everyone")),
      pp_(make_self_communicator("pp")),
      pp_ends_(make_self_communicator("pp ends")) {}

namespace {

const MeshShape& checked(const MeshShape& shape, const World& world) {
    if (shape.ranks() != world.size())
        throw Error(
            fmt::format(
                "The mesh pp {} × dcn {} × data {} × cp {} × tp {} has {} ranks, but {} were started.",
                shape.pp, shape.dcn, shape.data, shape.cp, shape.tp, shape.ranks(), world.size()),
            "Make the product of the axes equal to the number of processes.");
    return shape;
}

/// The world's own communicators; `ending` is added to the axes' names.
MakeCommunicator made_by(World& world, const std::string& ending) {
    return [&world, ending](const std::string& axis, std::vector<int> ranks) {
        return world.make_communicator(axis + ending, std::move(ranks));
    };
}

}  // namespace

Mesh::Mesh(World& world, const MeshShape& shape, int key_value_copies, const MakeCommunicator& make)
    : Mesh(checked(shape, world), world.rank(), key_value_copies, make ? make : made_by(world, ""),
           make ? made_by(world, " on the host") : MakeCommunicator()) {}

Mesh::Mesh(const MeshShape& shape, int rank, int key_value_copies, const MakeCommunicator& make,
           const MakeCommunicator& make_on_host)
    : shape_(shape), place_(place_of(shape, rank)) {
    // The ranks for which `same` holds, in order: those that differ from this one only along the wanted axes.
    const auto ranks_of = [&](const std::function<bool(const MeshPlace&)>& same) {
        std::vector<int> ranks;
        for (int other = 0; other < shape.ranks(); ++other)
            if (same(place_of(shape, other))) ranks.push_back(other);
        return ranks;
    };
    const MeshPlace& p = place_;
    const auto same_inner = [&p](const MeshPlace& o) { return o.pp == p.pp && o.cp == p.cp && o.tp == p.tp; };
    const auto same_outer = [&p](const MeshPlace& o) {
        return o.pp == p.pp && o.dcn == p.dcn && o.data == p.data && o.cp == p.cp;
    };
    tp_ = make("tp", ranks_of(same_outer));
    data_ = make("data", ranks_of([&](const MeshPlace& o) { return same_inner(o) && o.dcn == p.dcn; }));
    dcn_ = make("dcn", ranks_of([&](const MeshPlace& o) { return same_inner(o) && o.data == p.data; }));
    replicas_ = make("dcn+data", ranks_of(same_inner));
    key_value_copies_ = make("key/value copies", ranks_of([&](const MeshPlace& o) {
                                 return same_outer(o) && o.tp / key_value_copies == p.tp / key_value_copies;
                             }));
    const auto all = [](const MeshPlace&) { return true; };
    everyone_ = make("everyone", ranks_of(all));
    const auto same_stage_place = [&p](const MeshPlace& o) {
        return o.dcn == p.dcn && o.data == p.data && o.cp == p.cp && o.tp == p.tp;
    };
    const std::vector<int> ring = ranks_of(same_stage_place);
    pp_ = make("pp", ring);
    const bool is_end = p.pp == 0 || p.pp == shape.pp - 1;
    pp_ends_ =
        make("pp ends", is_end && shape.pp > 1 ? std::vector{ring.front(), ring.back()} : std::vector{rank});
    if (shape.pp > 1) make_links(make, ring);
    if (!make_on_host) return;
    host_replicas_ = make_on_host("dcn+data", ranks_of(same_inner));
    host_everyone_ = make_on_host("everyone", ranks_of(all));
    host_pp_ = make_on_host("pp", ring);
}

/// Link i leads from stage i to the next one, and gradients back. All ranks make all links in one order; a
/// link between two others is one of this rank alone.
void Mesh::make_links(const MakeCommunicator& make, const std::vector<int>& ring) {
    const auto stages = static_cast<int>(ring.size());
    for (int i = 0; i < stages; ++i) {
        const int next = (i + 1) % stages;
        const bool leaves = place_.pp == i, arrives = place_.pp == next;
        const std::vector<int> ranks =
            leaves || arrives
                ? std::vector{ring[static_cast<std::size_t>(i)], ring[static_cast<std::size_t>(next)]}
                : std::vector{ring[static_cast<std::size_t>(place_.pp)]};
        auto activations = make("pp activations", ranks);
        auto gradients = make("pp gradients", ranks);
        if (leaves) {
            links_.activations_out = std::move(activations);
            links_.gradients_in = std::move(gradients);
        } else if (arrives) {
            links_.activations_in = std::move(activations);
            links_.gradients_out = std::move(gradients);
        }
    }
}

Mesh Mesh::that_copies(World& world, const MakeSingleRankCommunicator& make) {
    return Mesh(world, {}, 1, [&](const std::string& axis, const std::vector<int>& ranks) {
        const bool used = axis == "data" || axis == "dcn+data" || axis == "everyone";
        return make(axis, ranks, used ? SingleRankAxis::copies : SingleRankAxis::idles);
    });
}

}  // namespace drover
