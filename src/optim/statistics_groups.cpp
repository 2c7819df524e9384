#include "optim/statistics_groups.h"

#include <fmt/format.h>

#include <map>

namespace drover {
namespace {

/// Numbers of names, in the order in which they are first seen.
class Numbering {
  public:
    std::size_t operator[](const std::string& name) {
        return numbers_.try_emplace(name, numbers_.size()).first->second;
    }

  private:
    std::map<std::string, std::size_t> numbers_;
};

}  // namespace

StatisticsGroups::StatisticsGroups(std::span<const OwnedLeaf* const> updated) {
    Numbering matrix_of, clip_group_of;
    for (const OwnedLeaf* const part : updated) {
        const LeafSpec& spec = *part->spec;
        // Names of leaves get a prefix, so that a group may have the name of a leaf that is not in it.
        const std::string statistics_name =
            spec.statistics_group.empty() ? "\n" + spec.name : spec.statistics_group;
        const std::string clip_name = spec.fused_tensor.empty() ? "\n" + statistics_name : spec.fused_tensor;
        Leaf& leaf = leaves.emplace_back();

        if (spec.shape.rank() == 2) {
            leaf.matrix = matrix_of[statistics_name];
            if (leaf.matrix == matrices.size()) matrices.push_back({.rows = 0, .columns = spec.shape[1]});
            FactoredMatrix& matrix = matrices[leaf.matrix];
            require(matrix.columns == spec.shape[1],
                    fmt::format("{} has another width than its statistics group", spec.name));
            leaf.first_row = matrix.rows;
            matrix.rows += spec.shape[0];
        } else {
            require(spec.shape.rank() == 1 && spec.statistics_group.empty(),
                    fmt::format("{} is no matrix, so it has no rows in a statistics group", spec.name));
        }

        leaf.clip_group = clip_group_of[clip_name];
        if (leaf.clip_group == clip_elements.size()) clip_elements.push_back(0);
        clip_elements[leaf.clip_group] += spec.shape.numel();
    }
}

}  // namespace drover
