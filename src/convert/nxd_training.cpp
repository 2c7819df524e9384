#include "convert/nxd_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace drover {
namespace {

/// The states of every parameter of a rank, by kind, in the order of its model's file.
using KindsOfRank = std::map<std::string, std::vector<PlannedTensor>>;

bool decays(std::string_view name) {
    return name.find("bias") == std::string_view::npos && name.find("norm") == std::string_view::npos;
}

/// Rows [rank · n, (rank + 1) · n) of the first dimension, with n = ⌈size / ranks⌉ and zeros behind the last.
PlannedTensor part_of_data_rank(const PlannedTensor& whole, std::int64_t ranks, std::int64_t rank) {
    if (whole.shape.empty()) return whole;
    const std::int64_t part = (whole.shape[0] + ranks - 1) / ranks;
    PlannedTensor tensor{whole.name, whole.dtype, whole.shape, {}};
    tensor.shape[0] = part;
    const bool is_vector = whole.shape.size() == 1;  // one row, whose columns are cut
    std::int64_t rows_each = 1;                      // rows of the matrix for one of the first dimension
    for (std::size_t d = 1; d + 1 < whole.shape.size(); ++d) rows_each *= whole.shape[d];
    const std::int64_t begin = rank * part * rows_each, end = begin + part * rows_each;
    for (Block block : whole.blocks) {
        std::int64_t& to = is_vector ? block.to_column : block.to_row;
        const std::int64_t count = is_vector ? block.columns_written() : block.rows_written();
        const std::int64_t first = std::max(begin, to), last = std::min(end, to + count);
        if (first >= last) continue;
        const std::int64_t skipped = first - to;
        if (is_vector || block.transposed) {
            block.column_begin += skipped;
            block.column_count = last - first;
        } else {
            block.row_begin += skipped * block.row_step;
            block.row_count = last - first;
        }
        to = first - begin;
        tensor.blocks.push_back(block);
    }
    const std::int64_t there = std::clamp<std::int64_t>(whole.shape[0] * rows_each - begin, 0, end - begin);
    if (const std::int64_t missing = end - begin - there; missing > 0) {
        const std::int64_t columns = whole.shape.back();
        tensor.blocks.push_back(
            is_vector
                ? Block{.item = Block::zeros, .row_count = 1, .column_count = missing, .to_column = there}
                : Block{
                      .item = Block::zeros, .row_count = missing, .column_count = columns, .to_row = there});
    }
    return tensor;
}

/// Writes a value that refers to tensors, and collects them.
class OptimizerFile {
  public:
    OptimizerFile(const NxdRun& run, bool xser) : run_(run), xser_(xser) {}

    /// `parameters` in the order of the optimizer, `shapes` before they are cut for data ranks.
    std::vector<PlannedFile> files(const std::string& path, std::int64_t updates,
                                   const std::vector<std::string>& parameters,
                                   const std::vector<std::vector<std::int64_t>>& shapes, KindsOfRank kinds) {
        const bool is_cut = run_.data_ranks > 0;
        pickle_.begin_dict();
        pickle_.text("state");
        if (is_cut) {
            pickle_.begin_dict();
            pickle_.end_dict();
        } else {
            states(updates, kinds, parameters.size());
        }
        pickle_.text("param_groups");
        groups(parameters);
        if (is_cut) {
            pickle_.text("base_state");
            states(updates, kinds, parameters.size());
            pickle_.text("shape_info");
            pickle_.begin_dict();
            for (std::size_t i = 0; i < shapes.size(); ++i) {
                pickle_.integer(static_cast<std::int64_t>(i));
                pickle_.size(shapes[i]);
            }
            pickle_.end_dict();
        }
        if (const auto masters = kinds.find(NxdOptimizer::master); masters != kinds.end()) {
            pickle_.text("sharded_master_weights");
            pickle_.begin_dict();
            for (std::size_t i = 0; i < masters->second.size(); ++i) {
                pickle_.integer(static_cast<std::int64_t>(i));
                tensor(masters->second[i]);
            }
            pickle_.end_dict();
        }
        pickle_.end_dict();
        return nested_files(path, pickle_, std::move(tensors_), xser_);
    }

  private:
    void tensor(const PlannedTensor& planned) {
        if (xser_)
            pickle_.tensor_reference(static_cast<std::int64_t>(tensors_.size()));
        else
            pickle_.tensor(planned.dtype, planned.shape);
        tensors_.push_back(planned);
    }

    void states(std::int64_t updates, const KindsOfRank& kinds, std::size_t count) {
        pickle_.begin_dict();
        for (std::size_t i = 0; i < count; ++i) {
            pickle_.integer(static_cast<std::int64_t>(i));
            pickle_.begin_dict();
            pickle_.text("step");
            pickle_.real(static_cast<double>(updates));
            for (const auto& [kind, list] : kinds) {
                if (kind == NxdOptimizer::master) continue;
                pickle_.text(kind);
                tensor(list[i]);
            }
            pickle_.end_dict();
        }
        pickle_.end_dict();
    }

    /// Those with weight decay come first.
    void groups(const std::vector<std::string>& parameters) {
        const auto first_without = static_cast<std::int64_t>(std::ranges::count_if(parameters, decays));
        pickle_.begin_list();
        for (const bool decayed : {true, false}) {
            pickle_.begin_dict();
            const auto setting = [&](std::string_view name, double value) {
                pickle_.text(name);
                pickle_.real(value);
            };
            setting("lr", run_.learning_rate);
            pickle_.text("betas");
            pickle_.reals({run_.beta1, run_.beta2});
            setting("eps", run_.eps);
            setting("weight_decay", decayed ? run_.weight_decay : 0);
            pickle_.text("params");
            pickle_.begin_list();
            const std::int64_t begin = decayed ? 0 : first_without,
                               end = decayed ? first_without : static_cast<std::int64_t>(parameters.size());
            for (std::int64_t i = begin; i < end; ++i) pickle_.integer(i);
            pickle_.end_list();
            pickle_.end_dict();
        }
        pickle_.end_list();
    }

    const NxdRun& run_;
    bool xser_;
    PickleWriter pickle_;
    std::vector<PlannedTensor> tensors_;
};

/// A file of torch.save without tensors.
std::string small_torch_file(const std::string& name, const PickleWriter& pickle) {
    const TorchArchive archive(name, pickle);
    std::string bytes(archive.file_size(), '\0');
    for (const TorchArchive::Part& part : archive.other_parts({}))
        bytes.replace(part.offset, part.bytes.size(), part.bytes);
    return bytes;
}

std::string scheduler_file(const NxdRun& run) {
    PickleWriter pickle;
    pickle.begin_dict();
    pickle.text("last_epoch");
    pickle.integer(run.step);
    pickle.text("_step_count");
    pickle.integer(run.step + 1);
    pickle.text("_last_lr");
    pickle.begin_list();
    pickle.real(run.learning_rate);
    pickle.real(run.learning_rate);
    pickle.end_list();
    pickle.end_dict();
    return small_torch_file("scheduler", pickle);
}

std::string user_content_file(const NxdRun& run) {
    PickleWriter pickle;
    pickle.begin_dict();
    pickle.text("total_steps");
    pickle.integer(run.step);
    pickle.text("batch_idx");
    pickle.integer(run.batch - 1);
    pickle.text("epoch");
    pickle.integer(run.epoch);
    pickle.text("cli_args");
    pickle.begin_dict();
    for (const auto& [name, value] : run.flags) {
        pickle.text(name);
        pickle.text(value);
    }
    pickle.end_dict();
    pickle.end_dict();
    return small_torch_file("user_content", pickle);
}

/// The tensors of every rank's file, by its name.
std::map<std::string, std::vector<PlannedTensor>> ranks_of(const std::vector<PlannedTensor>& model,
                                                           NxdSettings settings) {
    settings.xser = false;  // then a rank is one file
    settings.dtype.reset();
    std::map<std::string, std::vector<PlannedTensor>> ranks;
    for (PlannedFile& file : plan_shards_of_model(model, settings).files)
        ranks[std::filesystem::path(file.path).filename().string()] = std::move(file.tensors);
    return ranks;
}

}  // namespace

ConversionPlan plan_nxd_training(const TrainingCheckpoint& checkpoint, const NxdSettings& settings,
                                 const NxdRun& run) {
    NxdSettings of_model = settings;
    of_model.dtype = run.rounded;
    ConversionPlan plan = plan_shards_of_model(checkpoint.weights, of_model);

    std::map<std::string, std::vector<PlannedTensor>> by_kind;
    for (const PlannedTensor& state : checkpoint.states) {
        const std::size_t slash = state.name.find('/');
        PlannedTensor& renamed = by_kind[state.name.substr(0, slash)].emplace_back(state);
        renamed.name = state.name.substr(slash + 1);
    }
    std::map<std::string, std::size_t> order;  // parameters are numbered as in the model's files
    for (const PlannedTensor& weight : checkpoint.weights) order.emplace(weight.name, order.size());
    for (auto& [kind, tensors] : by_kind)
        std::ranges::stable_sort(tensors, {}, [&](const PlannedTensor& t) { return order.at(t.name); });
    if (run.rounded) by_kind[NxdOptimizer::master] = checkpoint.weights;
    std::map<std::string, KindsOfRank> ranks;
    for (const auto& [kind, tensors] : by_kind)
        for (auto& [file, of_rank] : ranks_of(tensors, settings)) ranks[file][kind] = std::move(of_rank);

    for (auto& [file, kinds] : ranks) {
        for (auto& [kind, tensors] : kinds)
            std::ranges::stable_partition(tensors, [](const PlannedTensor& t) { return decays(t.name); });
        std::vector<std::string> names;
        std::vector<std::vector<std::int64_t>> shapes;
        for (const PlannedTensor& tensor : kinds.begin()->second) {
            names.push_back(tensor.name);
            shapes.push_back(tensor.shape);
        }
        const std::int64_t data_ranks = std::max<std::int64_t>(1, run.data_ranks);
        for (std::int64_t data = 0; data < data_ranks; ++data) {
            KindsOfRank here;
            for (const auto& [kind, tensors] : kinds)
                for (const PlannedTensor& tensor : tensors)
                    here[kind].push_back(part_of_data_rank(tensor, data_ranks, data));
            const std::string name = fmt::format("dp_rank_{:02}{}", data, file.substr(file.find("_tp_rank")));
            for (PlannedFile& planned :
                 OptimizerFile(run, settings.xser)
                     .files("optim/" + name, checkpoint.optimizer.updates, names, shapes, std::move(here)))
                plan.files.push_back(std::move(planned));
        }
    }
    plan.texts["scheduler.pt"] = scheduler_file(run);
    plan.texts["user_content.pt"] = user_content_file(run);
    plan.texts["checkpoint"] = plan.texts["done"] = "1";
    return plan;
}

}  // namespace drover
