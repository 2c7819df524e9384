#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace drover {

/// Deals the examples of a run, numbered from 0, to datasets in proportion to their weights. Which dataset an
/// example comes from is a function of its number and the weights alone. Among any number of first examples,
/// a dataset has its share to within half an example if there are two datasets, and to within
/// ½ · ⌈log₂ K⌉ examples if there are K.
class MixtureDealing {
  public:
    /// One weight per dataset; each is above 0, and the largest is at most 10¹⁸ times the smallest.
    explicit MixtureDealing(const std::vector<double>& weights);

    struct Draw {
        std::size_t dataset = 0;
        std::int64_t number = 0;  ///< of the example among those of its dataset
    };
    Draw draw(std::int64_t example) const;
    /// How many of the first `examples` each dataset has.
    std::vector<std::int64_t> counts(std::int64_t examples) const;

  private:
    std::int64_t left_of(std::int64_t examples, std::size_t middle) const;
    void count(std::size_t begin, std::size_t end, std::int64_t examples,
               std::vector<std::int64_t>& counts) const;

    /// Datasets [begin, end) are divided at their middle, and these again. A middle belongs to one division;
    /// its entry is the share of the datasets before it, in units of 2⁻⁶³.
    std::vector<std::uint64_t> left_shares_;
};

/// Datasets that are mixed by weight.
struct Mixture {
    std::vector<std::int64_t> sizes;  ///< rows of each dataset, at least 1
    std::vector<double> weights;      ///< as MixtureDealing's
};

/// The rows of one epoch, which has as many examples as all datasets have rows. Row r of a dataset counts as
/// r plus the rows of the datasets before it. A dataset is passed again and again, without regard to where
/// epochs end: each pass has every row once, in its own order if `shuffled` (torch.randperm from the seed,
/// the pass and the dataset), otherwise from first to last.
std::vector<std::int64_t> mixed_order(const Mixture& mixture, std::int64_t epoch, bool shuffled,
                                      std::uint64_t seed);

}  // namespace drover
