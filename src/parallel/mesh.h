#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/world.h"

namespace drover {

/// How many ranks there are along each axis, outermost first. A rank's number is its place in row-major
/// order.
struct MeshShape {
    int pp = 1;    ///< pipeline stages
    int dcn = 1;   ///< outer data parallelism: whole replicas of everything inside
    int data = 1;  ///< data parallelism; what is sharded is sharded over it
    int cp = 1;    ///< context parallelism
    int tp = 1;    ///< tensor parallelism

    int ranks() const { return pp * dcn * data * cp * tp; }
    bool operator==(const MeshShape&) const = default;
};

/// The position of one rank.
struct MeshPlace {
    int pp = 0, dcn = 0, data = 0, cp = 0, tp = 0;
};

MeshPlace place_of(const MeshShape& shape, int rank);

/// Like MakeCommunicator, but can also make axes of one rank that copy.
using MakeSingleRankCommunicator = std::function<std::unique_ptr<Communicator>(
    std::string axis, std::vector<int> ranks, SingleRankAxis single_rank)>;

/// The messages of a pipeline rank, which belong to one direction and one neighbour each. The ranks form a
/// ring: the last one sends to the first where each has several chunks. Every communicator has two ranks.
struct PipelineLinks {
    std::unique_ptr<Communicator> activations_in, activations_out, gradients_in, gradients_out;
};

/// The axes of the mesh as one rank sees them. Every rank makes its mesh with the same arguments.
class Mesh {
  public:
    /// A mesh of one rank, which needs no world.
    Mesh();
    /// Error when the shape does not have as many ranks as the world. `key_value_copies` neighbours along tp
    /// hold the same key/value heads (more than one when tp exceeds their number). The axes' communicators
    /// are made by `make`, or by the world, which must outlive the mesh.
    Mesh(World& world, const MeshShape& shape, int key_value_copies = 1, const MakeCommunicator& make = {});

    /// The axes as rank `rank` of such a mesh sees them, made by `make`. Where the ranks' tensors lie on
    /// another device, `make_on_host` makes those for numbers on the host; otherwise it is empty.
    Mesh(const MeshShape& shape, int rank, int key_value_copies, const MakeCommunicator& make,
         const MakeCommunicator& make_on_host);

    /// A mesh of one rank whose axes that FSDP uses (data, replicas, everyone) copy, to measure the cost of
    /// sharding by itself. The world has one rank.
    static Mesh that_copies(World& world, const MakeSingleRankCommunicator& make);

    const MeshShape& shape() const { return shape_; }
    const MeshPlace& place() const { return place_; }
    int rank() const { return everyone_->rank(); }

    Communicator& tp() const { return *tp_; }
    Communicator& data() const { return *data_; }
    Communicator& dcn() const { return *dcn_; }
    /// dcn and data as one axis: all ranks that process other tokens with the same weights.
    Communicator& replicas() const { return *replicas_; }
    /// The neighbours along tp that hold the same key/value heads.
    Communicator& key_value_copies() const { return *key_value_copies_; }
    Communicator& everyone() const { return *everyone_; }
    /// The pipeline's ranks.
    Communicator& pp() const { return *pp_; }
    /// The first and the last of them; an axis of one rank for those between.
    Communicator& pp_ends() const { return *pp_ends_; }
    /// Empty without a pipeline.
    const PipelineLinks& links() const { return links_; }
    /// The same ranks, for numbers on the host: does not wait for work on the device.
    Communicator& replicas_on_host() const { return host_replicas_ ? *host_replicas_ : *replicas_; }
    Communicator& everyone_on_host() const { return host_everyone_ ? *host_everyone_ : *everyone_; }
    Communicator& pp_on_host() const { return host_pp_ ? *host_pp_ : *pp_; }

  private:
    MeshShape shape_;
    MeshPlace place_;
    void make_links(const MakeCommunicator& make, const std::vector<int>& ring);

    std::unique_ptr<Communicator> tp_, data_, dcn_, replicas_, key_value_copies_, everyone_, pp_, pp_ends_;
    PipelineLinks links_;
    std::unique_ptr<Communicator> host_replicas_, host_everyone_,
        host_pp_;  // only where the others are not the world's
};

}  // namespace drover
