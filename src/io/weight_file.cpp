#include "io/weight_file.h"

namespace drover {
namespace {

/// Files of torch.save from before version 1.6 have other first bytes, but are not safetensors either.
bool is_torch_file(const std::filesystem::path& path) {
    const auto extension = path.extension();
    if (extension == ".bin" || extension == ".pt" || extension == ".pth") return true;
    return MappedFile(path).bytes().starts_with(StoredZip::first_bytes);
}

std::variant<SafetensorsFile, TorchWeights> open_weights(const std::filesystem::path& path,
                                                         std::string_view key) {
    if (is_torch_file(path)) return TorchWeights(path, key);
    return SafetensorsFile(path);
}

}  // namespace

WeightFile::WeightFile(const std::filesystem::path& path, std::string_view key)
    : file_(open_weights(path, key)) {}

const std::filesystem::path& WeightFile::path() const {
    return std::visit([](const auto& file) -> const std::filesystem::path& { return file.path(); }, file_);
}

const SafetensorsHeader& WeightFile::header() const {
    return std::visit([](const auto& file) -> const SafetensorsHeader& { return file.header(); }, file_);
}

const SafetensorsEntry* WeightFile::find(std::string_view name) const {
    return std::visit([&](const auto& file) { return file.find(name); }, file_);
}

bool WeightFile::is_packed(std::string_view name) const {
    const auto* const torch = std::get_if<TorchWeights>(&file_);
    return torch == nullptr || torch->is_packed(name);
}

Tensor WeightFile::tensor(const SafetensorsEntry& entry) const {
    return std::visit([&](const auto& file) { return file.tensor(entry); }, file_);
}

StridedTensor WeightFile::view(const SafetensorsEntry& entry) const {
    if (const auto* const torch = std::get_if<TorchWeights>(&file_)) return torch->view(entry);
    return StridedTensor::packed(std::get<SafetensorsFile>(file_).data_of(entry), entry.dtype, entry.shape);
}

void WeightFile::verify(const SafetensorsEntry& entry) const {
    if (const auto* const torch = std::get_if<TorchWeights>(&file_)) torch->verify(entry);
}

void WeightFile::forget() const {
    std::visit([](const auto& file) { file.forget(); }, file_);
}

}  // namespace drover
