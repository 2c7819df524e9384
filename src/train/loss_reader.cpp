#include "train/loss_reader.h"

namespace drover {

void LossReader::add(const Tensor& losses, double scale, const Tensor& balance, double balance_scale) {
    if (unread_.size() == most_unread) sum();
    const auto at = static_cast<std::int64_t>(unread_.size());
    backend_.run(stream_, Sum{.x = losses, .out = sums_.rows(at, 1)});
    if (balance) backend_.copy(stream_, balance, balances_.rows(at, 1));
    unread_.push_back(
        {.scale = scale, .balance_scale = balance_scale, .has_balance = static_cast<bool>(balance)});
}

double LossReader::sum() {
    std::vector<double> sums(unread_.size()), balances(unread_.size());
    const auto count = static_cast<std::int64_t>(unread_.size());
    backend_.copy(stream_, sums_.rows(0, count), Tensor::of(sums.data(), {count}));
    backend_.copy(stream_, balances_.rows(0, count), Tensor::of(balances.data(), {count}));
    backend_.synchronize(stream_);
    for (std::size_t i = 0; i < unread_.size(); ++i)
        sum_ += sums[i] * unread_[i].scale +
                (unread_[i].has_balance ? balances[i] * unread_[i].balance_scale : 0.0);
    unread_.clear();
    return sum_;
}

}  // namespace drover
