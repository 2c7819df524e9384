#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/torch_pickle.h"

namespace drover {

/// optimizer.pt of a checkpoint that Hugging Face's Trainer saved: the state_dict() of a torch optimizer.
/// Parameters are numbered across the groups: first those with weight decay, then those without, each in the
/// order of the model's named_parameters().
class HfOptimizerState {
  public:
    /// Tensors are in the mapped file; they need not be aligned.
    struct Parameter {
        std::int64_t step = 0;  ///< number of its updates; 0: it has no state
        /// "exp_avg" and "exp_avg_sq" (AdamW), "exp_avg_sq_row" and "exp_avg_sq_col" or "exp_avg_sq"
        /// (Adafactor), "sum" (Adagrad), "square_avg" (RMSprop), "momentum_buffer" (SGD).
        std::map<std::string, Tensor, std::less<>> tensors;
        std::map<std::string, double, std::less<>> numbers;  ///< all but the step ("RMS")
    };
    struct Group {
        double learning_rate = 0;
        double initial_learning_rate = 0;  ///< before the schedule's factor
        double weight_decay = 0;
        std::size_t first_parameter = 0, parameters = 0;
    };

    /// Reads all of the file and verifies its checksums.
    explicit HfOptimizerState(const std::filesystem::path& path);

    const std::filesystem::path& path() const { return file_.path(); }
    const std::vector<Parameter>& parameters() const { return parameters_; }
    const std::vector<Group>& groups() const { return groups_; }
    /// The tensor `key` of parameter `index`; Error when it is missing or does not have `elements` elements.
    Tensor tensor(std::size_t index, std::string_view key, std::int64_t elements) const;

  private:
    TorchFile file_;
    std::vector<Parameter> parameters_;
    std::vector<Group> groups_;
};

/// scheduler.pt of such a checkpoint.
struct HfSchedulerState {
    std::int64_t last_epoch = 0;              ///< updates of the schedule so far
    std::vector<double> base_learning_rates;  ///< one per group; empty with reduce_lr_on_plateau
    std::vector<double> last_learning_rates;  ///< in force for the next update

    static HfSchedulerState read(const std::filesystem::path& path);
};

}  // namespace drover
