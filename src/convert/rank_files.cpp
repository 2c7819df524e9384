#include "convert/rank_files.h"

#include <fmt/format.h>

namespace drover {

namespace fs = std::filesystem;

namespace {

/// The file of a tensor that a rank's file refers to.
fs::path file_of_tensor(const fs::path& file, std::int64_t reference) {
    return fs::path(file.string() + ".tensors") / fmt::format("tensor_{}.pt", reference);
}

}  // namespace

struct RankFiles::Place {
    std::optional<PickleValue> value;  ///< of a file that is open
    fs::path file;                     ///< otherwise
};

RankFiles::RankFiles() = default;
RankFiles::~RankFiles() = default;

const TorchFile& RankFiles::open(const fs::path& file) {
    files_.push_back(file);
    return *rank_files_.emplace_back(std::make_unique<TorchFile>(file));
}

bool RankFiles::is_tensor(const PickleValue& value) {
    return value.kind() == PickleValue::Kind::tensor || value.tensor_reference().has_value();
}

std::optional<std::size_t> RankFiles::add_tensor(const std::string& name, const PickleValue& value,
                                                 const fs::path& file, bool may_be_missing) {
    const std::optional<std::int64_t> reference = value.tensor_reference();
    if (!reference) {
        const std::size_t item = add_item(name, value.tensor().dtype, value.tensor().shape, file);
        places_.push_back({.value = value, .file = {}});
        return item;
    }
    is_xser_ = true;
    const fs::path tensor_file = file_of_tensor(file, *reference);
    if (may_be_missing && !fs::exists(tensor_file)) return std::nullopt;
    const TorchFile opened(tensor_file);
    const PickleTensor& tensor = opened.root().tensor();
    const std::size_t item = add_item(name, tensor.dtype, tensor.shape, file);
    places_.push_back({.value = std::nullopt, .file = tensor_file});
    files_.push_back(tensor_file);
    return item;
}

double RankFiles::number(const PickleValue& value, const fs::path& file) {
    const std::optional<std::int64_t> reference = value.tensor_reference();
    return reference ? TorchFile(file_of_tensor(file, *reference)).root().number() : value.number();
}

StridedTensor RankFiles::view(std::size_t item) const {
    const Place& place = places_[item];
    if (place.value) return strided_view(place.value->tensor());
    std::unique_ptr<TorchFile>& file = tensor_files_[item];
    if (!file) file = std::make_unique<TorchFile>(place.file);
    return strided_view(file->root().tensor());
}

void RankFiles::forget() const {
    tensor_files_.clear();
    for (const auto& file : rank_files_) file->forget();
}

}  // namespace drover
