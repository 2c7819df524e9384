#include "parallel/mesh.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>
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

Mesh::Mesh(World& world, const MeshShape& shape, int key_value_copies, const MakeCommunicator& make)
    : shape_(shape) {
    if (shape.ranks() != world.size())
        throw Error(
            fmt::format(
                "The mesh pp {} × dcn {} × data {} × cp {} × tp {} has {} ranks, but {} were started.",
                shape.pp, shape.dcn, shape.data, shape.cp, shape.tp, shape.ranks(), world.size()),
            "Make the product of the axes equal to the number of processes.");
    place_ = place_of(shape, world.rank());

    // The ranks for which `same` holds, in order: those that differ from this one only along the wanted axes.
    const auto ranks_of = [&](const std::function<bool(const MeshPlace&)>& same) {
        std::vector<int> ranks;
        for (int rank = 0; rank < world.size(); ++rank)
            if (same(place_of(shape, rank))) ranks.push_back(rank);
        return ranks;
    };
    const auto axis = [&](std::string name, const std::function<bool(const MeshPlace&)>& same) {
        return make ? make(std::move(name), ranks_of(same))
                    : world.make_communicator(std::move(name), ranks_of(same));
    };
    const MeshPlace& p = place_;
    const auto same_inner = [&p](const MeshPlace& o) { return o.pp == p.pp && o.cp == p.cp && o.tp == p.tp; };
    const auto same_outer = [&p](const MeshPlace& o) {
        return o.pp == p.pp && o.dcn == p.dcn && o.data == p.data && o.cp == p.cp;
    };
    tp_ = axis("tp", same_outer);
    data_ = axis("data", [&](const MeshPlace& o) { return same_inner(o) && o.dcn == p.dcn; });
    dcn_ = axis("dcn", [&](const MeshPlace& o) { return same_inner(o) && o.data == p.data; });
    replicas_ = axis("dcn+data", same_inner);
    key_value_copies_ = axis("key/value copies", [&](const MeshPlace& o) {
        return same_outer(o) && o.tp / key_value_copies == p.tp / key_value_copies;
    });
    const auto all = [](const MeshPlace&) { return true; };
    everyone_ = axis("everyone", all);
    if (!make) return;
    host_replicas_ = world.make_communicator("dcn+data on the host", ranks_of(same_inner));
    host_everyone_ = world.make_communicator("everyone on the host", ranks_of(all));
}

Mesh Mesh::that_copies(World& world, const MakeLonelyCommunicator& make) {
    return Mesh(world, {}, 1, [&](const std::string& axis, const std::vector<int>& ranks) {
        const bool used = axis == "data" || axis == "dcn+data" || axis == "everyone";
        return make(axis, ranks, used ? LonelyAxis::copies : LonelyAxis::idles);
    });
}

}  // namespace drover
