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
      everyone_(make_self_communicator("everyone")) {}

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
    if (!make_on_host) return;
    host_replicas_ = make_on_host("dcn+data", ranks_of(same_inner));
    host_everyone_ = make_on_host("everyone", ranks_of(all));
}

Mesh Mesh::that_copies(World& world, const MakeSingleRankCommunicator& make) {
    return Mesh(world, {}, 1, [&](const std::string& axis, const std::vector<int>& ranks) {
        const bool used = axis == "data" || axis == "dcn+data" || axis == "everyone";
        return make(axis, ranks, used ? SingleRankAxis::copies : SingleRankAxis::idles);
    });
}

}  // namespace drover
