#include <cmath>
#include <utility>

#include "backend/backend.h"
#include "optim/optimizers.h"
#include "optim/statistics_groups.h"

namespace drover {
namespace {

/// Every rank keeps the mean squares of all rows and columns (a few thousandths of the parameters). So every
/// rank's part of the sums goes to the same places of one buffer, whichever parts of leaves it owns, and two
/// small collectives serve all leaves together.
class AdafactorOptimizer final : public Optimizer {
  public:
    AdafactorOptimizer(const AdafactorSettings& settings, const OptimizerContext& context)
        : settings_(settings),
          precision_(context.precision),
          rounding_(context.rounding()),
          mesh_(context.mesh) {}

    void plan(Arena& state, Arena& scratch, const ParamStore& store) override {
        trained_ = TrainedLeaves(store.owned());
        const StatisticsGroups groups(trained_.all());
        plan_matrices(state, scratch, groups);
        squares_ = scratch.make(MemoryUse::scratch, DType::f64,
                                {static_cast<std::int64_t>(groups.clip_elements.size())});
        leaves_.clear();
        leaf_means_.clear();
        for (std::size_t i = 0; i < trained_.size(); ++i)
            plan_leaf(state, trained_[i], groups, groups.leaves[i]);
    }

    void set_scalars(std::span<float> scalars, std::int64_t step) const override {
        scalars[StepScalar::step] = static_cast<float>(step);
        scalars[StepScalar::newest_share] =
            static_cast<float>(std::pow(static_cast<double>(step), settings_.decay_rate));
    }

    void update(Backend& backend, Stream stream, const Tensor& scalars) override {
        if (leaves_.empty()) return;
        const auto eps = static_cast<float>(settings_.eps);
        backend.run(stream, Fill{.x = sums_, .value = 0});
        backend.run(stream, AdafactorSums{.leaves = leaves_, .scalars = scalars});
        sum_over_ranks(stream, sums_);
        backend.run(stream, AdafactorFactors{.matrices = matrices_, .scalars = scalars, .eps = eps});

        backend.run(stream, Fill{.x = squares_, .value = 0});
        backend.run(stream, AdafactorSquares{.leaves = leaves_, .scalars = scalars, .eps = eps});
        sum_over_ranks(stream, squares_);
        backend.run(stream, AdafactorUpdate{.leaves = leaves_,
                                            .scalars = scalars,
                                            .clip_threshold = static_cast<float>(settings_.clip_threshold),
                                            .rounding = rounding_});
    }

    Tensor master(std::size_t owned_leaf) const override { return trained_.master(leaves_, owned_leaf); }

    std::vector<OptimizerState> state() const override {
        using Covers = OptimizerState::Covers;
        std::vector<OptimizerState> tensors;
        for (std::size_t i = 0; i < leaves_.size(); ++i) {
            const OwnedLeaf& leaf = trained_[i];
            const std::string& name = leaf.spec->name;
            if (const Tensor& rows = leaf_means_[i].rows) {
                tensors.push_back({"exp_avg_sq_row/" + name, &leaf, rows, Covers::rows});
                tensors.push_back({"exp_avg_sq_col/" + name, &leaf, leaf_means_[i].columns, Covers::columns});
            } else {
                tensors.push_back({"exp_avg_sq/" + name, &leaf, leaves_[i].means});
            }
            if (leaves_[i].master) tensors.push_back({"master/" + name, &leaf, leaves_[i].master});
        }
        return tensors;
    }

  private:
    /// The statistics of a whole leaf; absent for vectors.
    struct LeafMeans {
        Tensor rows, columns;
    };

    void plan_matrices(Arena& state, Arena& scratch, const StatisticsGroups& groups) {
        std::int64_t total = 0;
        for (const FactoredMatrix& matrix : groups.matrices) total += matrix.rows + matrix.columns;
        means_ = state.make(MemoryUse::moments, DType::f32, {total});
        sums_ = scratch.make(MemoryUse::scratch, DType::f32, {total});
        matrices_.clear();
        std::int64_t next = 0;
        const auto take = [&](std::int64_t count) { return std::exchange(next, next + count); };
        for (const FactoredMatrix& matrix : groups.matrices) {
            const std::int64_t rows = take(matrix.rows), columns = take(matrix.columns);
            matrices_.push_back({.row_sums = sums_.rows(rows, matrix.rows),
                                 .column_sums = sums_.rows(columns, matrix.columns),
                                 .row_means = means_.rows(rows, matrix.rows),
                                 .column_means = means_.rows(columns, matrix.columns)});
        }
    }

    void plan_leaf(Arena& state, const OwnedLeaf& part, const StatisticsGroups& groups,
                   const StatisticsGroups::Leaf& group) {
        AdafactorLeaf leaf{.param = part.param,
                           .gradient = part.gradient,
                           .squares = squares_.rows(static_cast<std::int64_t>(group.clip_group), 1),
                           .clipped_elements = static_cast<double>(groups.clip_elements[group.clip_group]),
                           .counted = part.counted_in_stage,
                           .master = make_master(state, precision_, part),
                           .weight_decay = decay_of(part, settings_.weight_decay),
                           .place = noise_place(part)};
        LeafMeans whole;
        if (group.matrix == StatisticsGroups::no_matrix) {
            leaf.means = state.make(MemoryUse::moments, DType::f32, part.param.shape());
        } else {
            const AdafactorMatrix& matrix = matrices_[group.matrix];
            leaf.rows = matrix.row_sums.rows(group.first_row + part.row_begin, part.row_count);
            leaf.columns = matrix.column_sums.rows(part.column_begin, part.column_count);
            whole = {.rows = matrix.row_means.rows(group.first_row, part.spec->shape[0]),
                     .columns = matrix.column_means};
        }
        leaves_.push_back(leaf);
        leaf_means_.push_back(whole);
    }

    /// Over all ranks that hold parts or copies of the same leaves.
    void sum_over_ranks(Stream stream, const Tensor& x) const {
        mesh_.replicas().all_reduce(stream, x, Reduction::sum);
        mesh_.tp().all_reduce(stream, x, Reduction::sum);
    }

    AdafactorSettings settings_;
    Precision precision_;
    UpdateRounding rounding_;
    const Mesh& mesh_;
    TrainedLeaves trained_;
    Tensor means_;    // f32: rows, then columns, of every matrix
    Tensor sums_;     // f32: the same for the sums and factors of this update
    Tensor squares_;  // [clip groups] f64
    std::vector<AdafactorMatrix> matrices_;
    std::vector<AdafactorLeaf> leaves_;
    std::vector<LeafMeans> leaf_means_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const AdafactorSettings& settings,
                                          const OptimizerContext& context) {
    return std::make_unique<AdafactorOptimizer>(settings, context);
}

}  // namespace drover
