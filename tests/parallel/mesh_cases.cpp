#include "parallel/mesh_cases.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <random>

#include "backend/backend.h"
#include "core/counter_rng.h"
#include "data/sampling/replica_part.h"
#include "support/golden.h"
#include "train/engine/train_engine.h"

namespace drover::test {
namespace {

constexpr std::int64_t row_length = 8;

Batch batch_of_kind(RowKind kind, std::int64_t rows, std::int64_t length, std::vector<std::int32_t> ids,
                    std::vector<std::int32_t> labels) {
    std::vector<std::int32_t> lengths;
    std::vector<std::vector<std::int32_t>> sequences;
    for (std::int64_t row = 0; row < rows; ++row) {
        lengths.push_back(static_cast<std::int32_t>(row_length - row % 4));
        sequences.push_back(row % 2 == 0 ? std::vector<std::int32_t>{3, 1, 4}
                                         : std::vector<std::int32_t>{5, 2});
    }
    switch (kind) {
        case RowKind::full:
        case RowKind::shorter:
        case RowKind::answers:
            return Batch::full_rows(rows, length, std::move(ids), std::move(labels));
        case RowKind::padded:
            return Batch::right_padded(rows, row_length, std::move(ids), std::move(labels), lengths);
        case RowKind::packed:
            return Batch::packed(rows, row_length, std::move(ids), std::move(labels), sequences);
    }
    bug("unknown kind of rows");
}

/// A replica's part of batch `number`; if the rows do not divide evenly, part of it is filler.
Batch make_batch(std::uint32_t number, RowKind kind, std::int64_t rows, const ReplicaPart& part,
                 std::int64_t vocab) {
    std::mt19937 generator(number);
    const std::int64_t length = kind == RowKind::shorter && number % 2 == 1 ? row_length - 3 : row_length;
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < rows * length; ++i)
        ids.push_back(static_cast<std::int32_t>(generator() % static_cast<std::uint32_t>(vocab)));
    std::vector<std::int32_t> labels = ids;
    for (const std::size_t at : {3, 10})  // the ranks do not see equal numbers of targets
        if (at < labels.size()) labels[at] = no_label;
    if (kind == RowKind::answers)
        for (std::int64_t i = 0; i < rows * length; ++i)
            if (i < length || i % length < length - 2) labels[static_cast<std::size_t>(i)] = no_label;
    return take_part(batch_of_kind(kind, rows, length, std::move(ids), std::move(labels)), part);
}

/// Small enough for stable training; otherwise differences come from growing rounding errors, not from the
/// mesh.
double learning_rate(const std::string& optimizer) {
    if (optimizer == "sgd") return 0.1;
    return optimizer == "rmsprop" ? 1e-3 : 3e-3;
}

double norm_of(const std::vector<double>& x) {
    double sum = 0;
    for (const double value : x) sum += value * value;
    return std::sqrt(sum);
}

std::vector<double> difference(const std::vector<double>& a, const std::vector<double>& b) {
    std::vector<double> result(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) result[i] = a[i] - b[i];
    return result;
}

/// Sums on the host, whatever the axis's device.
void sum_over(Communicator& axis, Backend* backend, std::vector<double>& x) {
    if (axis.size() == 1) return;
    const Tensor on_host = Tensor::of(x.data(), {static_cast<std::int64_t>(x.size())});
    if (backend == nullptr) return axis.all_reduce({}, on_host, Reduction::sum);
    const MemoryBlock memory = backend->allocate(on_host.bytes());
    const Tensor on_device(memory.get(), DType::f64, on_host.shape(), backend->device());
    const Stream stream = backend->main_stream();
    backend->copy(stream, on_host, on_device);
    axis.all_reduce(stream, on_device, Reduction::sum);
    backend->copy(stream, on_device, on_host);
    backend->synchronize(stream);
    axis.check_unbroken();
}

/// Loss and number of correct guesses over all rows, before training.
void evaluate_on_mesh(TrainEngine& engine, const Batch& batch, const Mesh& mesh, Backend* backend,
                      MeshRun& run) {
    const EvaluationResult result = engine.evaluate(batch);
    std::vector<double> sums = {result.loss_sum, static_cast<double>(result.correct)};
    sum_over(mesh.replicas(), backend, sums);
    run.evaluated_loss = sums[0] + result.balance_loss;
    run.correct = sums[1];
}

/// Values that are the same on every mesh. B is not zero, as it is at the start of a run: the first gradients
/// of A would be tiny, and AdamW would show their rounding.
void set_adapters(TrainEngine& engine) {
    std::vector<float> leaf_values;
    engine.load_adapters([&](const LeafSpec& leaf) {
        leaf_values.resize(static_cast<std::size_t>(leaf.shape.numel()));
        const bool is_length = leaf.shape.rank() == 1 && leaf.is_adapter();
        CounterRng(1, 0).fill_normal(leaf_hash(leaf.name), 0, leaf_values, is_length ? 1.0f : 0.0f, 0.1f);
        return Tensor::of(leaf_values.data(), leaf.shape);
    });
}

}  // namespace

Batch numbered_rows(std::int64_t first, std::int64_t count, std::int64_t length, std::int64_t vocab) {
    std::vector<std::int32_t> ids, labels;
    for (std::int64_t i = first * length; i < (first + count) * length; ++i) {
        ids.push_back(static_cast<std::int32_t>((i * i * 7 + 3 * i + 1) % vocab));
        labels.push_back(i % 11 == 3 ? no_label : ids.back());
    }
    return Batch::full_rows(count, length, ids, labels);
}

std::vector<std::vector<double>> whole_leaves(const ParamSpec& model, const ParamStore& store,
                                              const Mesh& mesh, Backend* backend) {
    std::map<std::string, const OwnedLeaf*> here;
    for (const OwnedLeaf& leaf : store.owned()) here.emplace(leaf.spec->name, &leaf);
    std::vector<double> all;  // all leaves, one after the other
    model.for_each_leaf([&](const LeafSpec& spec) {
        const std::size_t begin = all.size();
        all.resize(begin + static_cast<std::size_t>(spec.shape.numel()), 0.0);
        if (here.count(spec.name) == 0 || !here.at(spec.name)->counted) return;
        const OwnedLeaf& leaf = *here.at(spec.name);
        const std::int64_t columns = spec.shape.numel() / spec.shape[0];
        const std::vector<double> part = values(leaf.param);
        for (std::int64_t row = 0; row < leaf.row_count; ++row)
            for (std::int64_t column = 0; column < leaf.column_count; ++column)
                all[begin +
                    static_cast<std::size_t>((leaf.row_begin + row) * columns + leaf.column_begin + column)] =
                    part[static_cast<std::size_t>(row * leaf.column_count + column)];
    });
    sum_over(mesh.everyone(), backend, all);
    std::vector<std::vector<double>> leaves;
    auto begin = all.begin();
    model.for_each_leaf([&](const LeafSpec& leaf) {
        leaves.emplace_back(begin, begin + leaf.shape.numel());
        begin += leaf.shape.numel();
    });
    return leaves;
}

std::vector<MeshModel> mesh_models() {
    const auto model = [](const char* name, const char* text) {
        return MeshModel{name, ModelConfig::parse(text, name)};
    };
    return {
        model("multi-head",
              R"({"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
            "num_attention_heads": 4})"),
        model("grouped-query",
              R"({"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "attention_bias": true, "mlp_bias": true})"),
        model("tied",
              R"({"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": true, "pad_token_id": 7})"),
        model("mixtral",
              R"({"model_type": "mixtral", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 24,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4,
            "output_router_logits": true, "router_aux_loss_coef": 0.02, "sliding_window": 5})"),
        model("uneven",
              R"({"vocab_size": 67, "hidden_size": 30, "intermediate_size": 37, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6})"),
        model("qwen2",
              R"({"model_type": "qwen2", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": true,
            "use_sliding_window": true, "sliding_window": 5, "max_window_layers": 1})"),
        model("qwen3",
              R"({"model_type": "qwen3", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12})"),
    };
}

std::vector<MeshModel> pipeline_models(int layers) {
    const auto model = [&](const char* name, std::string_view keys) {
        return MeshModel{name, ModelConfig::parse(fmt::format(R"({{"vocab_size": 64, "hidden_size": 32,
            "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": {}, {}}})",
                                                              layers, keys),
                                                  name)};
    };
    return {
        model("grouped-query", R"("intermediate_size": 48, "attention_bias": true, "mlp_bias": true)"),
        model("tied", R"("intermediate_size": 48, "tie_word_embeddings": true, "pad_token_id": 7)"),
        model("mixtral", R"("model_type": "mixtral", "intermediate_size": 24, "num_local_experts": 4,
            "output_router_logits": true, "router_aux_loss_coef": 0.02, "sliding_window": 5)"),
        model("qwen3", R"("model_type": "qwen3", "intermediate_size": 48, "head_dim": 12)"),
    };
}

std::string MeshCase::text() const {
    const std::string pipeline =
        shape.pp == 1 ? "" : fmt::format("pp {} × {}, {}, ", shape.pp, chunks, name_of(schedule, chunks));
    return pipeline +
           fmt::format("{}, dcn {} × data {} × tp {}{}, accumulation {}, {}{}", name_of(sharding), shape.dcn,
                       shape.data, shape.tp, sequence_parallel ? ", sequence parallel" : "", accumulation,
                       optimizer, precision.parameters == DType::bf16 ? ", bf16" : "") +
           (recompute == Recompute::none
                ? ""
                : fmt::format(", recompute {}", recompute_names[static_cast<std::size_t>(recompute)])) +
           (last_rows > 0 ? fmt::format(", {} rows, sometimes {}", rows, last_rows) : "") +
           (planned > 0 ? fmt::format(", planned for {} micro-batches", planned) : "") +
           (last_accumulation > 0 ? fmt::format(", sometimes {} micro-batches", last_accumulation) : "") +
           (row_kind == RowKind::padded ? ", padded rows" : "") +
           (row_kind == RowKind::packed ? ", packed rows" : "") +
           (row_kind == RowKind::shorter ? ", sometimes shorter rows" : "") +
           (row_kind == RowKind::answers ? ", few targets" : "") + (offload_optimizer ? ", offloaded" : "");
}

MeshCase MeshCase::alone() const {
    MeshCase same = *this;
    same.shape = {};
    same.sharding = Sharding::replicated;
    same.sequence_parallel = false;
    same.recompute = Recompute::none;
    same.offload_optimizer = false;
    same.chunks = 1;
    same.cuts.clear();
    same.schedule = PipelineScheduleKind::one_forward_one_backward;
    return same;
}

std::vector<MeshCase> mesh_cases(int ranks) {
    std::vector<MeshCase> cases;
    for (const int tp : {1, 2, 4})
        for (const int dcn : {1, 2}) {
            if (ranks % (tp * dcn) != 0) continue;
            const int data = ranks / (tp * dcn);
            for (const Sharding sharding :
                 {Sharding::replicated, Sharding::zero1, Sharding::zero2, Sharding::zero3})
                for (const bool sequence_parallel : {false, true})
                    for (const int accumulation : {1, 3}) {
                        if (sequence_parallel && tp == 1) continue;
                        cases.push_back({{.dcn = dcn, .data = data, .tp = tp},
                                         sharding,
                                         sequence_parallel,
                                         accumulation});
                    }
        }
    return cases;
}

std::vector<MeshCase> optimizer_cases(int ranks) {
    std::vector<MeshCase> cases;
    for (const int tp : {1, 2, 4})
        for (const int dcn : {1, 2}) {
            if (ranks % (tp * dcn) != 0) continue;
            const MeshShape shape{.dcn = dcn, .data = ranks / (tp * dcn), .tp = tp};
            for (const Sharding sharding : {Sharding::replicated, Sharding::zero1, Sharding::zero3}) {
                if (shape.data == 1 && sharding != Sharding::replicated) continue;
                cases.push_back({.shape = shape, .sharding = sharding, .optimizer = "adafactor"});
                if (tp != 2 || dcn != 1) continue;
                for (const char* optimizer : {"sgd", "adagrad", "rmsprop"})
                    cases.push_back({.shape = shape,
                                     .sharding = sharding,
                                     .sequence_parallel = true,
                                     .optimizer = optimizer});
            }
        }
    return cases;
}

MeshRun train_on_mesh(const MeshModel& model, const MeshCase& mesh_case, const Mesh& mesh, int steps,
                      Backend* backend) {
    const ReplicaPart part{mesh.replicas().size(), mesh.replicas().rank()};
    const auto own_backend = backend == nullptr ? make_cpu_backend() : nullptr;
    TrainEngine engine(
        model.config,
        {.model = {.precision = mesh_case.precision,
                   .recompute = {mesh_case.recompute, mesh_case.recomputed_blocks},
                   .fp8 = model.fp8,
                   .rows = part.rows_of(mesh_case.rows),
                   .row_length = row_length,
                   .label_smoothing = model.label_smoothing,
                   .neftune_alpha = model.neftune_alpha,
                   .gather_ahead = {mesh_case.gathers_ahead, mesh_case.gathers_ahead},
                   .adapters = model.adapters},
         .optimizer = OptimizerSettings::named(mesh_case.optimizer, 0.1),
         .max_gradient_norm = 1.0,
         .compat = model.compat,
         .sharding = mesh_case.sharding,
         .pipeline = {.schedule = mesh_case.schedule,
                      .chunks = mesh_case.chunks,
                      .micro_batches = mesh_case.planned > 0 ? mesh_case.planned : mesh_case.accumulation,
                      .cuts = mesh_case.cuts},
         .shared_batches = true,
         .sequence_parallel = mesh_case.sequence_parallel,
         .offload_optimizer = mesh_case.offload_optimizer},
        backend == nullptr ? *own_backend : *backend, mesh);
    engine.allocate();
    engine.initialize_weights(42);
    if (model.adapters.any()) set_adapters(engine);
    MeshRun run;
    const auto before = whole_leaves(engine.model_spec(), engine.store(), mesh, backend);
    const auto batch = [&](int number, std::int64_t rows) {
        return make_batch(static_cast<std::uint32_t>(number), mesh_case.row_kind, rows, part,
                          model.config.vocab_size);
    };
    evaluate_on_mesh(engine, batch(999, mesh_case.rows), mesh, backend, run);
    for (int step = 0; step < steps; ++step) {
        const bool ends_epoch = step % 3 == 2;
        const int count = ends_epoch && mesh_case.last_accumulation > 0 ? mesh_case.last_accumulation
                                                                        : mesh_case.accumulation;
        std::vector<Batch> micro_batches;
        for (int i = 0; i < count; ++i) {
            const bool is_last = ends_epoch && i + 1 == count && mesh_case.last_rows > 0;
            micro_batches.push_back(batch(1000 + step * mesh_case.accumulation + i,
                                          is_last ? mesh_case.last_rows : mesh_case.rows));
        }
        const UpdateResult result = engine.step(micro_batches, learning_rate(mesh_case.optimizer));
        run.losses.push_back(result.loss);
        run.norms.push_back(result.gradient_norm);
    }
    run.weights = whole_leaves(engine.model_spec(), engine.store(), mesh, backend);
    for (std::size_t i = 0; i < before.size(); ++i)
        run.movement.push_back(difference(run.weights[i], before[i]));
    return run;
}

MeshDifference compare(const MeshRun& run, const MeshRun& alone) {
    MeshDifference worst;
    worst.loss = std::fabs(run.evaluated_loss / alone.evaluated_loss - 1);
    worst.guesses = std::fabs(run.correct - alone.correct);
    for (std::size_t i = 0; i < alone.losses.size(); ++i) {
        worst.loss = std::max(worst.loss, std::fabs(run.losses[i] / alone.losses[i] - 1));
        worst.norm = std::max(worst.norm, std::fabs(run.norms[i] / alone.norms[i] - 1));
    }
    double differences = 0, movements = 0;  // squared
    for (std::size_t i = 0; i < alone.weights.size(); ++i) {
        const double apart = norm_of(difference(run.weights[i], alone.weights[i]));
        const double moved = norm_of(alone.movement[i]);
        worst.weights = std::max(worst.weights, apart / std::max(moved, 1e-9));
        differences += apart * apart;
        movements += moved * moved;
    }
    worst.all_weights = std::sqrt(differences / movements);
    return worst;
}

std::string MeshDifference::complaint(const Precision& precision) const {
    // Written so that a NaN counts as a difference.
    const bool agrees = precision.parameters == DType::bf16
                            ? loss <= 1e-3 && norm <= 2e-2 && all_weights <= 0.25 && guesses <= 1
                            : loss <= 1e-5 && norm <= 1e-4 && weights <= 1e-3 && guesses == 0;
    return agrees ? "" : text() + " from one process";
}

std::string MeshDifference::text() const {
    return fmt::format("loss {:.1e}, gradient norm {:.1e}, weights {:.1e} (all {:.1e}), right guesses {}",
                       loss, norm, weights, all_weights, guesses);
}

}  // namespace drover::test
