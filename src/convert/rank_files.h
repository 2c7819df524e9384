#pragma once

#include <map>
#include <memory>
#include <optional>

#include "convert/tensor_source.h"
#include "io/torch_pickle.h"

namespace drover {

/// Tensors in files of torch.save, one for each rank: a file has a tensor itself, or ("xser") a reference to
/// the file tensor_N.pt of the folder with its name and ".tensors".
class RankFiles : public TensorSource {
  public:
    ~RankFiles() override;

    /// Whether any tensor is in a file of its own.
    bool is_xser() const { return is_xser_; }

    StridedTensor view(std::size_t item) const override;
    void forget() const override;
    std::vector<std::filesystem::path> files() const override { return files_; }

  protected:
    RankFiles();

    const TorchFile& open(const std::filesystem::path& file);
    /// Whether a value of a rank's file is a tensor or a reference to one.
    static bool is_tensor(const PickleValue& value);
    /// The item of a value that is a tensor. Where `may_be_missing`, nothing if it refers to a file that is
    /// not there.
    std::optional<std::size_t> add_tensor(const std::string& name, const PickleValue& value,
                                          const std::filesystem::path& file, bool may_be_missing = false);
    /// A number, or a tensor that has one element.
    static double number(const PickleValue& value, const std::filesystem::path& file);

  private:
    bool is_xser_ = false;
    std::vector<std::filesystem::path> files_;
    /// Where an item is: a value of a file that is open, or a file of its own.
    struct Place;
    std::vector<Place> places_;
    std::vector<std::unique_ptr<TorchFile>> rank_files_;
    mutable std::map<std::size_t, std::unique_ptr<TorchFile>> tensor_files_;  ///< those in use, by item
};

}  // namespace drover
