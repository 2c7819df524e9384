#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <map>
#include <mutex>
#include <random>

#include "backend/backend.h"
#include "comm/threads/thread_world.h"
#include "core/convert.h"
#include "core/counter_rng.h"
#include "optim/optimizer.h"
#include "parallel/mesh_cases.h"
#include "support/golden.h"

// Optimizers on leaves with given gradients, without a model: the result on a mesh must equal that of one
// process.

namespace drover {
namespace {

/// Every kind of leaf: split by rows and columns, copied, whole, and experts whose gate and up are one matrix
/// to Adafactor and which are clipped together. Most sizes do not divide evenly.
ParamSpec synthetic_spec() {
    const auto leaf = [](std::string name, const Shape& shape, Split split) {
        return LeafSpec{.name = std::move(name), .shape = shape, .split = split};
    };
    LeafSpec key = leaf("k", {4, 6}, Split::rows), key_bias = leaf("k.bias", {4}, Split::rows);
    key.largest_split = key_bias.largest_split = 2;
    key_bias.decayed = false;
    StorageSpec gate_up, down;
    for (const std::string expert : {"0.", "1.", "2."}) {
        for (const char* name : {"w1", "w3"}) {
            LeafSpec part = leaf(expert + name, {7, 6}, Split::rows);
            part.statistics_group = expert + "gate_up";
            part.fused_tensor = "gate_up";
            gate_up.leaves.push_back(part);
        }
        down.leaves.push_back(leaf(expert + "w2", {6, 7}, Split::columns));
        down.leaves.back().fused_tensor = "down";
    }
    LeafSpec norm = leaf("norm", {6}, Split::none);
    norm.decayed = false;
    return {.units = {{.name = "embedding", .storages = {{{leaf("embedding", {13, 6}, Split::rows)}}}},
                      {.name = "block 0",
                       .storages = {{{leaf("q", {9, 6}, Split::rows), key}},
                                    {{leaf("o", {6, 9}, Split::columns)}},
                                    {{key_bias}},
                                    {{norm}},
                                    gate_up,
                                    down}},
                      {.name = "head", .storages = {{{leaf("head", {13, 6}, Split::rows)}}}}}};
}

using Values = std::vector<double>;

/// Element values of a whole leaf, the same for the same name. Few bits each, so that sums of their squares
/// are exact.
Values leaf_values(const LeafSpec& leaf, const std::string& what) {
    std::mt19937_64 generator(leaf_hash(leaf.name + "/" + what));
    Values result;
    for (std::int64_t i = 0; i < leaf.shape.numel(); ++i)
        result.push_back(static_cast<double>(static_cast<int>(generator() % 15) - 7) / 8);
    return result;
}

std::string gradient_name(int step) {
    return "gradient " + std::to_string(step);
}

/// Writes this rank's part of a whole leaf.
void put_part(const OwnedLeaf& leaf, const Values& whole, const Tensor& to) {
    const std::int64_t columns = leaf.spec->shape.numel() / leaf.spec->shape[0];
    std::vector<float> part;
    for (std::int64_t row = 0; row < leaf.row_count; ++row)
        for (std::int64_t column = 0; column < leaf.column_count; ++column)
            part.push_back(static_cast<float>(whole[static_cast<std::size_t>(
                (leaf.row_begin + row) * columns + leaf.column_begin + column)]));
    convert_elements(part.data(), DType::f32, to.raw(), to.dtype(), to.numel());
}

struct Setting {
    MeshShape shape;
    Sharding sharding;
};

std::vector<Setting> settings_of(int ranks) {
    if (ranks == 2)
        return {{{.data = 2}, Sharding::replicated},
                {{.data = 2}, Sharding::zero3},
                {{.tp = 2}, Sharding::replicated}};
    return {{{.data = 4}, Sharding::zero1},           {{.data = 4}, Sharding::zero3},
            {{.data = 2, .tp = 2}, Sharding::zero3},  {{.dcn = 2, .tp = 2}, Sharding::replicated},
            {{.dcn = 2, .data = 2}, Sharding::zero2}, {{.tp = 4}, Sharding::replicated}};
}

/// The whole leaves after some updates with the given gradients. Collective; checks that this rank's own
/// parts agree with them.
std::vector<Values> updated_leaves(const OptimizerSettings& settings, const Precision& precision,
                                   Sharding sharding, const Mesh& mesh, int steps) {
    const auto backend = make_cpu_backend();
    const auto store = make_param_store(synthetic_spec(), sharding, mesh, false, precision.parameters,
                                        precision.gradients, *backend);
    const auto optimizer = make_optimizer(settings, precision, mesh);
    Arena measuring = Arena::measuring(Device::cpu);
    store->plan(measuring);
    optimizer->plan(measuring, measuring, *store);
    Arena arena(backend->allocate(measuring.plan().total), measuring.plan().total, Device::cpu);
    store->plan(arena);
    optimizer->plan(arena, arena, *store);

    for (std::size_t i = 0; i < store->owned().size(); ++i) {
        const OwnedLeaf& leaf = store->owned()[i];
        const Values whole = leaf_values(*leaf.spec, "weight");
        put_part(leaf, whole, leaf.param);
        if (const Tensor master = optimizer->master(i)) put_part(leaf, whole, master);
    }
    std::vector<float> scalars(StepScalar::count, 0.f);
    for (int step = 1; step <= steps; ++step) {
        for (const OwnedLeaf& leaf : store->owned())
            put_part(leaf, leaf_values(*leaf.spec, gradient_name(step)), leaf.gradient);
        scalars[StepScalar::learning_rate] = 0.01f;
        scalars[StepScalar::clip_factor] = 0.5f;
        optimizer->set_scalars(scalars, step);
        optimizer->update(*backend, {}, Tensor::of(scalars.data(), {StepScalar::count}));
    }

    std::vector<Values> leaves = test::whole_leaves(store->spec(), *store, mesh);
    for (std::size_t i = 0; i < leaves.size(); ++i) {
        const OwnedLeaf& leaf = store->owned()[i];
        test::OwnedTensor expected(leaf.param.dtype(), leaf.param.shape());
        put_part(leaf, leaves[i], expected);
        EXPECT_EQ(test::values(leaf.param), test::values(expected))
            << leaf.spec->name << ", rank " << mesh.rank();
    }
    return leaves;
}

/// Calls check(setting, leaves) on rank 0 for every setting of 2 and 4 ranks.
template <class Check>
void for_each_mesh(const OptimizerSettings& settings, const Precision& precision, int steps,
                   const Check& check) {
    for (const int ranks : {2, 4})
        for (const Setting& setting : settings_of(ranks))
            run_as_threads(ranks, {}, [&](World& world) {
                omp_set_num_threads(1);
                const Mesh mesh(world, setting.shape, setting.shape.tp == 4 ? 2 : 1);
                const std::vector<Values> leaves =
                    updated_leaves(settings, precision, setting.sharding, mesh, steps);
                if (mesh.rank() == 0) check(setting, leaves);
            });
}

std::string text(const Setting& setting) {
    return test::MeshCase{.shape = setting.shape, .sharding = setting.sharding}.text();
}

// ---------------------------------------------------------------------------------------------------
// Adafactor

/// Adafactor in doubles, tensor by tensor as in transformers 5: the experts' gates and ups are one tensor of
/// three dimensions, and so are their downs.
class Reference {
  public:
    /// Leaves stacked by rows, factored together; vectors are not factored.
    struct Matrix {
        std::vector<std::string> leaves;
        Values rows{}, columns{};
    };
    /// Matrices that are clipped together.
    using Clipped = std::vector<Matrix>;

    explicit Reference(const ParamSpec& spec) {
        spec.for_each_leaf([&](const LeafSpec& leaf) {
            specs_[leaf.name] = leaf;
            params_[leaf.name] = leaf_values(leaf, "weight");
        });
    }

    void step(Clipped& tensor, int number) {
        const double share = std::pow(number, -0.8);
        std::map<std::string, Values> updates;
        double squares = 0, elements = 0;
        for (Matrix& matrix : tensor) {
            Values g;
            for (const std::string& leaf : matrix.leaves)
                for (const double x : leaf_values(specs_.at(leaf), gradient_name(number)))
                    g.push_back(0.5 * x);
            const Values update = specs_.at(matrix.leaves[0]).shape.rank() == 1
                                      ? vector_update(matrix, g, share)
                                      : matrix_update(matrix, g, share);
            std::size_t next = 0;
            for (const std::string& leaf : matrix.leaves)
                for (std::size_t i = 0; i < params_.at(leaf).size(); ++i, ++next) {
                    updates[leaf].push_back(update[next]);
                    squares += update[next] * update[next];
                    ++elements;
                }
        }
        const double clip = std::max(1.0, std::sqrt(squares / elements));
        for (const auto& [leaf, update] : updates)
            for (std::size_t i = 0; i < update.size(); ++i) {
                double& p = params_.at(leaf)[i];
                p -= 0.01 * (specs_.at(leaf).decayed ? 0.1 : 0) * p + 0.01 * update[i] / clip;
            }
    }

    const Values& param(const std::string& leaf) const { return params_.at(leaf); }

  private:
    static Values vector_update(Matrix& vector, const Values& g, double share) {
        vector.rows.resize(g.size());
        Values update;
        for (std::size_t i = 0; i < g.size(); ++i) {
            vector.rows[i] += share * (g[i] * g[i] + 1e-30 - vector.rows[i]);
            update.push_back(g[i] / std::sqrt(vector.rows[i]));
        }
        return update;
    }

    Values matrix_update(Matrix& matrix, const Values& g, double share) {
        const auto width = static_cast<std::size_t>(specs_.at(matrix.leaves[0]).shape[1]),
                   height = g.size() / width;
        matrix.rows.resize(height);
        matrix.columns.resize(width);
        Values rows(height), columns(width);
        for (std::size_t i = 0; i < g.size(); ++i) {
            rows[i / width] += (g[i] * g[i] + 1e-30) / static_cast<double>(width);
            columns[i % width] += (g[i] * g[i] + 1e-30) / static_cast<double>(height);
        }
        double mean = 0;
        for (std::size_t i = 0; i < height; ++i)
            mean += (matrix.rows[i] += share * (rows[i] - matrix.rows[i]));
        mean /= static_cast<double>(height);
        for (std::size_t i = 0; i < width; ++i) matrix.columns[i] += share * (columns[i] - matrix.columns[i]);
        Values update;
        for (std::size_t i = 0; i < g.size(); ++i)
            update.push_back(g[i] / std::sqrt(matrix.rows[i / width] / mean * matrix.columns[i % width]));
        return update;
    }

    std::map<std::string, LeafSpec> specs_;
    std::map<std::string, Values> params_;
};

TEST(AdafactorMesh, EveryMeshMatchesTheFormulasOnWholeTensors) {
    constexpr int steps = 4;
    const ParamSpec spec = synthetic_spec();
    Reference reference(spec);
    std::vector<Reference::Clipped> tensors = {{{{"0.w1", "0.w3"}}, {{"1.w1", "1.w3"}}, {{"2.w1", "2.w3"}}},
                                               {{{"0.w2"}}, {{"1.w2"}}, {{"2.w2"}}}};
    for (const char* leaf : {"embedding", "q", "k", "o", "k.bias", "norm", "head"})
        tensors.push_back({{{leaf}}});
    for (int step = 1; step <= steps; ++step)
        for (Reference::Clipped& tensor : tensors) reference.step(tensor, step);

    const OptimizerSettings settings = OptimizerSettings::named("adafactor", 0.1);
    const auto expect_reference = [&](const std::string& where, const std::vector<Values>& leaves) {
        std::size_t next = 0;
        spec.for_each_leaf([&](const LeafSpec& leaf) {
            EXPECT_LE(test::relative_error(leaves[next++], reference.param(leaf.name)), 1e-6)
                << leaf.name << ", " << where;
        });
    };
    expect_reference("one process",
                     updated_leaves(settings, Precision::fp32(), Sharding::replicated, Mesh(), steps));
    for_each_mesh(settings, Precision::fp32(), steps,
                  [&](const Setting& setting, const std::vector<Values>& leaves) {
                      expect_reference(text(setting), leaves);
                  });
}

// ------------------------------------------------------------------------------------------ stochastic
// rounding

TEST(StochasticRoundingMesh, EveryMeshGivesTheBitsOfOneProcess) {
    Precision precision = Precision::pure_bf16();
    precision.stochastic_rounding = true;
    for (const char* name : {"adamw_torch", "sgd", "adagrad", "rmsprop", "adafactor"}) {
        OptimizerSettings settings = OptimizerSettings::named(name, 0.1);
        settings.sgd.momentum = 0.9;
        // The sums over rows and columns are exact here, but those for the clipping are not.
        settings.adafactor.clip_threshold = 1000;
        const std::vector<Values> alone =
            updated_leaves(settings, precision, Sharding::replicated, Mesh(), 3);
        for_each_mesh(settings, precision, 3, [&](const Setting& setting, const std::vector<Values>& leaves) {
            EXPECT_EQ(leaves, alone) << name << ", " << text(setting);
        });

        Precision nearest = precision;
        nearest.stochastic_rounding = false;
        EXPECT_NE(updated_leaves(settings, nearest, Sharding::replicated, Mesh(), 3), alone) << name;
        settings.rounding_seed = 43;
        EXPECT_NE(updated_leaves(settings, precision, Sharding::replicated, Mesh(), 3), alone) << name;
    }
}

// --------------------------------------------------------------------------------------------------------
// state

/// Names up to the slash, with the tensors' dtypes: what an optimizer keeps for a matrix and for a vector.
std::map<std::string, DType> kept(const std::string& name, const Precision& precision) {
    const Mesh mesh;
    const auto backend = make_cpu_backend();
    const auto store = make_param_store(synthetic_spec(), Sharding::replicated, mesh, false,
                                        precision.parameters, precision.gradients, *backend);
    OptimizerSettings settings = OptimizerSettings::named(name, 0.1);
    settings.sgd.momentum = 0.9;
    const auto optimizer = make_optimizer(settings, precision, mesh);
    Arena arena = Arena::measuring(Device::cpu);
    store->plan(arena);
    optimizer->plan(arena, arena, *store);
    std::map<std::string, DType> result;
    for (const OptimizerState& state : optimizer->state()) {
        EXPECT_TRUE(state.name.ends_with("/" + state.leaf->spec->name)) << state.name;
        using Covers = OptimizerState::Covers;
        const Shape& whole = state.leaf->spec->shape;
        const std::int64_t expected = state.covers == Covers::rows      ? whole[0]
                                      : state.covers == Covers::columns ? whole[1]
                                                                        : state.leaf->param.numel();
        EXPECT_EQ(state.tensor.numel(), expected) << state.name;
        result[state.name.substr(0, state.name.find('/'))] = state.tensor.dtype();
    }
    return result;
}

TEST(OptimizerState, HasTheMomentsTypeExceptForAdafactor) {
    using Kept = std::map<std::string, DType>;
    const DType f32 = DType::f32, bf16 = DType::bf16;
    EXPECT_EQ(kept("adamw_torch", Precision::pure_bf16()), (Kept{{"exp_avg", bf16}, {"exp_avg_sq", bf16}}));
    EXPECT_EQ(kept("adamw_torch", Precision::with_master(DType::bf16)),
              (Kept{{"exp_avg", f32}, {"exp_avg_sq", f32}, {"master", f32}}));
    EXPECT_EQ(kept("sgd", Precision::pure_bf16()), (Kept{{"momentum_buffer", bf16}}));
    EXPECT_EQ(kept("adagrad", Precision::pure_bf16()), (Kept{{"sum", bf16}}));
    EXPECT_EQ(kept("rmsprop", Precision::with_master(DType::bf16)),
              (Kept{{"square_avg", f32}, {"master", f32}}));
    EXPECT_EQ(kept("adafactor", Precision::pure_bf16()),
              (Kept{{"exp_avg_sq_row", f32}, {"exp_avg_sq_col", f32}, {"exp_avg_sq", f32}}));
    EXPECT_EQ(kept("adafactor", Precision::with_master(DType::bf16)),
              (Kept{{"exp_avg_sq_row", f32}, {"exp_avg_sq_col", f32}, {"exp_avg_sq", f32}, {"master", f32}}));
}

}  // namespace
}  // namespace drover
