#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/hf_compat.h"
#include "core/json.h"
#include "generate/sampling.h"
#include "model/block_shape.h"
#include "model/fp8_recipe.h"
#include "model/init_kind.h"
#include "model/recompute.h"
#include "optim/optimizer.h"
#include "parallel/schedule/step_schedule.h"
#include "parallel/store_layout.h"
#include "run/settings/data_settings.h"
#include "train/state/trainer_settings.h"

/// Everything that a user can request of a run, as typed values. A front end (a command line, the C++ API,
/// `drover eval`) fills it in; TrainingRun and its parts read nothing else.
namespace drover {

/// Where the model and its tokenizer come from.
struct ModelSettings {
    std::string model_name_or_path{};  ///< folder or Hub name of weights; empty: new weights
    std::string config_name{};         ///< empty: the config of model_name_or_path
    std::string model_type{};          ///< a config of this type with its defaults, if none is named
    std::string tokenizer_name{};      ///< empty: the tokenizer of model_name_or_path
    std::string config_overrides{};    ///< "key=value,…"
    std::string cache_dir{};           ///< of Hub files; empty: the user's
    std::string revision = "main";
    std::string token{};               ///< of the Hub; empty: that of HF_TOKEN or a login
    std::int64_t num_layers = -1;      ///< > 0: instead of the config's
    std::int64_t hidden_size = -1;     ///< > 0: instead of the config's
    bool saves_use_cache = false;      ///< use_cache of the saved config
    bool without_tokenizer = false;    ///< the data are token ids, and none is looked for
    std::int64_t least_positions = 0;  ///< max_position_embeddings grows to it
    /// The loss that balances experts is part of the loss, whatever the config says (TRL); with 0 it is not.
    bool balances_experts = false;
    std::optional<double> balance_coefficient{};  ///< its weight; absent: the config's
};

/// Low-rank adapters (LoRA) that are trained instead of the model's weights.
struct LoraSettings {
    /// Folder or Hub name of adapters that are trained further, and whose configuration says the rest; empty:
    /// new ones.
    std::string path{};
    std::int64_t rank = 16;
    std::int64_t alpha = 32;
    double dropout = 0.05;
    std::vector<std::string> target_modules{};  ///< empty: PEFT's for the model's type
    std::vector<std::string> target_parameters{};
    std::vector<std::string> modules_to_save{};
    bool rank_stabilized = false;
    bool magnitudes = false;  ///< DoRA
};

/// How a step is computed, apart from precision and mesh.
struct StepSettings {
    RecomputePolicy recompute{};
    Fp8Recipe fp8 = Fp8Recipe::none;
    MoeMode moe_mode = MoeMode::grouped;
    InitKind init = InitKind::hugging_face;
    HfCompat compat{};
    double max_grad_norm = 1;
    double label_smoothing = 0;
    double neftune_alpha = 0;
    OnNonFinite on_non_finite = OnNonFinite::stop;
    std::optional<DType> rope_rounding{};  ///< of the rotary angle tables; absent: same as the weights
    bool gather_ahead_in_forward = true;   ///< of the next block's sharded weights during computation
    bool gather_ahead_in_backward = true;
    bool offload_optimizer = false;  ///< its state is in host memory
};

/// The requested number formats.
struct PrecisionSettings {
    std::optional<DType> weights{};  ///< absent: see `weights_as_stored`
    /// The format that config.json names. If neither this nor `weights` is set: according to
    /// StepSettings::compat.
    bool weights_as_stored = false;
    bool bf16 = false;  ///< compute with fp32 weights in bf16
    bool fp16 = false;
    std::optional<bool> master_weights{};
    std::optional<DType> moments{};
    bool float32_residual = false;
    bool stochastic_rounding = false;
    bool float32_gradient_sums = false;
};

/// How the processes share model and batches.
struct MeshSettings {
    Sharding sharding = Sharding::replicated;
    bool shards_inside_machines = false;  ///< with a copy of the sharded model on every machine
    std::int64_t tensor_parallel_size = 1;
    std::int64_t pipeline_parallel_size = 1;
    PipelineSettings pipeline{};                     ///< its micro-batches are those of gradient accumulation
    bool balances_pipeline = false;                  ///< its cuts follow from the cost of the layers
    bool two_dimensional = false;                    ///< --spmd_2d_sharding gave the tensor-parallel size
    std::optional<std::int64_t> copies{};            ///< of the sharded model; absent: 1, or one per machine
    std::optional<std::int64_t> key_value_copies{};  ///< absent: as many as needed
    std::optional<bool> sequence_parallel{};         ///< absent: if possible in two dimensions, otherwise no
    /// Batch sizes are totals over all replicas.
    bool batch_is_global = false;
    /// The global batch is one batch, as under SPMD, rather than split into batches of the replicas
    /// (Accelerate's split_batches).
    bool batch_is_spmd = false;
    std::vector<std::string> wrapped_classes{};  ///< that FSDP was told to wrap; must be the decoder block's
};

/// Where a run resumes from.
struct ResumeSettings {
    enum class From : std::uint8_t {
        newest_if_any,  ///< in the output folder
        newest,         ///< in the output folder; Error when there is none
        step,           ///< checkpoint-N of the output folder
        folder,         ///< a checkpoint
        nowhere,        ///< Error when the output folder holds an earlier run, unless it may be overwritten
        nowhere_unchecked,
    };
    From from = From::newest_if_any;
    std::int64_t step = 0;
    std::filesystem::path folder{};
    std::string asked_by{};  ///< what the user wrote, for messages: "--loading_step is -1"
};

/// Checkpoints in the layout of neuronx-distributed.
struct NxdLayout {
    bool qkv_linear = false;  ///< queries, keys and values are one layer
    bool fuse_qkv = false;    ///< and one tensor
    bool xser = false;        ///< a file per tensor
};

/// What is saved apart from TrainerSettings, and where a run resumes from.
struct CheckpointSettings {
    ResumeSettings resume{};
    bool overwrite_output_dir = false;
    bool steal_lock = false;
    bool save_only_model = false;
    bool save_final_model = true;
    bool save_on_sigterm = false;  ///< for programs of the C++ API; the command always does
    /// When a signal ends training or asks for it; false: what is not saved then is lost.
    bool save_on_signals = true;
    /// Model card, results as JSON and trainer_state.json are written into the output folder.
    bool result_files = true;
    std::optional<NxdLayout> nxd{};            ///< absent: our own checkpoints
    std::optional<double> buffer_gigabytes{};  ///< for writing in the background; absent: from free memory
};

struct LogSettings {
    std::string level = "passive";
    std::optional<std::string> replica_level{};  ///< of all processes but the first
    bool on_each_machine = true;
    std::optional<std::filesystem::path> folder_of_ranks{};
    enum class Records : std::uint8_t {
        hugging_face,
        json,
        nxd,  ///< lines, TensorBoard's names and results file of neuronx-distributed's run_llama_nxd.py
    };
    Records records = Records::hugging_face;
    std::optional<bool> disable_progress_bar{};
    bool tensor_board = false;
    std::optional<std::filesystem::path> tensor_board_folder{};  ///< absent: beside the checkpoints
    std::filesystem::path metrics_file{};                        ///< of Records::nxd; empty: none
    bool mesh_details = false;
};

/// Prompts that the model continues after each evaluation.
struct SampleSettings {
    std::string prompts{};  ///< file
    std::int64_t max_new_tokens = 64;
    SamplingSettings sampling{};
};

/// Which steps are profiled.
struct ProfileSettings {
    bool on = false;
    /// Begin after this step of this epoch, where one of them is given; otherwise after the warm-up.
    std::optional<std::int64_t> epoch{};
    std::optional<std::int64_t> step{};
    std::optional<std::int64_t> steps{};  ///< how many; absent: what `seconds` allow
    double seconds = 0;
    std::optional<std::filesystem::path> folder{};
    std::optional<std::filesystem::path> pipeline_file{};  ///< a timeline of what all ranks compute
};

/// Which part of the machine a process uses, and how long it waits for the others.
struct DeviceSettings {
    std::string device = "auto";  ///< "cpu", "cuda" or "auto"
    std::optional<std::int64_t> threads{};
    bool tf32 = false;
    std::optional<double> memory_fraction{};  ///< of the device memory, for the plan
    bool fit_batch = false;        ///< a training batch that does not fit becomes the largest that does
    bool plain_attention = false;  ///< the reference kernels instead of fused ones, where there are both
    std::chrono::seconds timeout{1800};
    bool compare_collectives = false;  ///< --comm_debug
    bool time_collectives = false;     ///< --comm_stats
};

/// The user's names of the settings that appear in messages.
struct SettingNames {
    std::string model = "--model_name_or_path";
    std::string tokenizer = "--tokenizer_name";
    std::string config = "--config_name";
    std::string block_size = "--block_size";
    std::string output_dir = "--output_dir";
    /// How to begin anew in a folder that holds an earlier run.
    std::string start_over = "add --overwrite_output_dir to start over";
    std::string steal_lock = "--steal_lock";
};

/// The settings as the user gave them, for files, logs and comparisons only; no behaviour depends on them.
struct SettingsRecord {
    Json values = Json::object();             ///< training_args.json
    std::string listing{};                    ///< for the log
    std::vector<std::string> explanations{};  ///< of settings that have another meaning here, or none
    /// Names of values that must be the same in a resumed run and its checkpoint.
    std::vector<std::string> compared_on_resume{};
    /// Names and values that must be the same in all processes.
    std::vector<std::pair<std::string, std::string>> alike{};
    /// Called when the number of updates is known; may throw a UsageError.
    std::function<void(std::int64_t updates)> check_updates = [](std::int64_t) {};
};

/// What --push_to_hub uploads, and where to.
struct PushSettings {
    enum class Strategy { end, every_save, last_checkpoint, all_checkpoints };

    std::string id{};            ///< "owner/name" or "name"; empty: the output folder's name
    std::string organization{};  ///< owner where `id` has none; empty: the user
    std::string branch{};        ///< empty: main
    std::string token{};         ///< empty: that of HF_TOKEN or a login
    std::optional<bool> is_private{};
    Strategy strategy = Strategy::every_save;
    bool always = false;  ///< also while an earlier upload is under way
};

struct RunSettings {
    bool do_train = false;
    bool do_eval = false;
    bool dry_run = false;

    ModelSettings model{};
    std::optional<LoraSettings> adapters{};  ///< absent: all weights are trained
    DataSettings data{};
    TrainerSettings loop{};
    OptimizerSettings optimizer{};
    StepSettings step{};
    PrecisionSettings precision{};
    MeshSettings mesh{};
    CheckpointSettings checkpoints{};
    std::optional<PushSettings> push{};  ///< absent: nothing is uploaded
    LogSettings logs{};
    std::optional<SampleSettings> samples{};
    ProfileSettings profile{};
    DeviceSettings device{};
    SettingNames names{};
    SettingsRecord record{};
};

}  // namespace drover
