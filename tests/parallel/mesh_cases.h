#pragma once

#include <string>
#include <vector>

#include "core/batch.h"
#include "core/hf_compat.h"
#include "core/precision.h"
#include "model/adapters.h"
#include "model/config.h"
#include "model/fp8_recipe.h"
#include "model/recompute.h"
#include "parallel/mesh.h"
#include "parallel/param_store.h"
#include "parallel/schedule/step_schedule.h"

namespace drover::test {

/// A tiny model and how it is trained.
struct MeshModel {
    std::string name;
    ModelConfig config;
    double label_smoothing = 0;
    double neftune_alpha = 0;
    HfCompat compat{};
    Adapters adapters{};
    Fp8Recipe fp8 = Fp8Recipe::none;
};

/// Multi-head, grouped-query with two key/value heads (copied at tp 4), tied, and one whose sizes never
/// divide evenly.
std::vector<MeshModel> mesh_models();
/// Grouped-query, tied, Mixtral and Qwen3, with this many layers.
std::vector<MeshModel> pipeline_models(int layers);

/// What the rows of a batch hold.
enum class RowKind : std::uint8_t {
    full,
    padded,   ///< one sequence each, then padding
    packed,   ///< several sequences
    shorter,  ///< every other batch has shorter rows
    answers,  ///< labels only at the end of every row but the first, as in conversations
};

/// One way of distributing a training run over ranks.
struct MeshCase {
    MeshShape shape;
    Sharding sharding = Sharding::replicated;
    bool sequence_parallel = false;
    int accumulation = 1;
    std::string optimizer = "adamw_torch";
    Precision precision = Precision::fp32();
    Recompute recompute = Recompute::none;
    std::int64_t recomputed_blocks = INT64_MAX;
    std::int64_t rows = 4;  ///< of a micro-batch, over all replicas
    /// Rows of the last micro-batch in every third step, as at the end of epochs; 0: as many as the others.
    std::int64_t last_rows = 0;
    bool gathers_ahead = true;
    PipelineScheduleKind schedule = PipelineScheduleKind::one_forward_one_backward;
    int chunks = 1;
    /// Micro-batches that the pipeline plans for; 0: as many as are accumulated.
    int planned = 0;
    /// Micro-batches of every third step, as at the end of epochs; 0: as many as in the others.
    int last_accumulation = 0;
    RowKind row_kind = RowKind::full;
    bool offload_optimizer = false;
    std::vector<int> cuts{};  ///< of a pipeline: the first block of every stage but the first

    /// The same work for one process, without recomputing or offloading.
    MeshCase alone() const;
    std::string text() const;
};

/// Everything that fits on `ranks` ranks, with AdamW.
std::vector<MeshCase> mesh_cases(int ranks);
/// The other optimizers: Adafactor, whose statistics are sums over ranks, with every sharding and split; the
/// others once.
std::vector<MeshCase> optimizer_cases(int ranks);

/// `count` rows from row `first` on, with some labels ignored so that rows have different numbers of targets.
Batch numbered_rows(std::int64_t first, std::int64_t count, std::int64_t length, std::int64_t vocab);

/// The whole leaves of a model of which the store has some or all, in the model's order: every counted part
/// is put into zeros, which are summed over the ranks. `backend` is the one that the mesh's communicators
/// belong to; null means a CPU.
std::vector<std::vector<double>> whole_leaves(const ParamSpec& model, const ParamStore& store,
                                              const Mesh& mesh, Backend* backend = nullptr);

/// The results of a run.
struct MeshRun {
    std::vector<double> losses, norms;
    double evaluated_loss = 0;                  ///< before training, over all rows
    double correct = 0;                         ///< likewise: targets that were the likeliest token
    std::vector<std::vector<double>> weights;   ///< whole leaves, in the order of the spec
    std::vector<std::vector<double>> movement;  ///< last minus first weights
};

/// Trains `steps` updates on rows of tokens that the data axes share, and gathers the whole weights.
/// Collective over the mesh's ranks; every rank returns the same. Without a backend, on a CPU.
MeshRun train_on_mesh(const MeshModel& model, const MeshCase& mesh_case, const Mesh& mesh, int steps,
                      Backend* backend = nullptr);

/// Differences from the run on one process: the largest over the steps (relative) and over the leaves
/// (‖difference‖ / ‖movement‖), and over all weights together.
struct MeshDifference {
    double loss = 0, norm = 0, weights = 0, all_weights = 0, guesses = 0;
    /// Empty if the differences are within rounding: loss 1e-5, norm 1e-4, weights 1e-3, and equal guesses.
    /// With bf16 weights 1e-3, 2e-2, all weights 0.25 and one guess: AdamW moves a weight as far for a
    /// gradient that is only rounding error (the bias of keys has no other) as for a large one.
    std::string complaint(const Precision& precision = Precision::fp32()) const;
    std::string text() const;
};
MeshDifference compare(const MeshRun& run, const MeshRun& alone);

}  // namespace drover::test
