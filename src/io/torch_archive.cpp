#include "io/torch_archive.h"

#include <fmt/format.h>

#include <bit>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/partial_file.h"
#include "io/pickle_names.h"
#include "io/stored_zip.h"

namespace drover {
namespace {

// ------------------------------------------------------------------------------------------------------
// the pickle: the instructions of protocol 2 that torch.save itself uses

template <class T>
void put(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string_view storage_class_of(DType dtype) {
    for (const PickleName& name : pickle_names)
        if (name.meaning == PickleName::Meaning::storage && name.dtype == file_dtype_of(dtype))
            return name.full_name.substr(name.full_name.find('.') + 1);
    bug("a storage of a type that torch has no class for");
}

std::int64_t elements_in(const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return count;
}

void put_integer(std::string& to, std::int64_t value) {
    if (value >= 0 && value <= std::numeric_limits<std::uint8_t>::max()) {
        to += 'K';
        put(to, static_cast<std::uint8_t>(value));
    } else if (value >= 0 && value <= std::numeric_limits<std::uint16_t>::max()) {
        to += 'M';
        put(to, static_cast<std::uint16_t>(value));
    } else if (std::in_range<std::int32_t>(value)) {
        to += 'J';
        put(to, static_cast<std::int32_t>(value));
    } else {
        to += "\x8a\x08";
        put(to, value);
    }
}

void put_text(std::string& to, std::string_view text) {
    to += 'X';
    put(to, static_cast<std::uint32_t>(text.size()));
    to += text;
}

}  // namespace

PickleWriter::PickleWriter() : bytes_("\x80\x02") {}

void PickleWriter::begin_dict() {
    bytes_ += "}(";
}

void PickleWriter::end_dict() {
    bytes_ += 'u';
}

void PickleWriter::begin_list() {
    bytes_ += "](";
}

void PickleWriter::end_list() {
    bytes_ += 'e';
}

void PickleWriter::text(std::string_view value) {
    put_text(bytes_, value);
}

void PickleWriter::integer(std::int64_t value) {
    put_integer(bytes_, value);
}

void PickleWriter::real(double value) {
    bytes_ += 'G';
    put(bytes_, __builtin_bswap64(std::bit_cast<std::uint64_t>(value)));
}

void PickleWriter::boolean(bool value) {
    bytes_ += value ? '\x88' : '\x89';
}

void PickleWriter::reals(const std::vector<double>& values) {
    bytes_ += '(';
    for (const double value : values) real(value);
    bytes_ += 't';
}

void PickleWriter::name(std::string_view module, std::string_view name) {
    bytes_ += fmt::format("c{}\n{}\n", module, name);
}

void PickleWriter::tuple(const std::vector<std::int64_t>& values) {
    bytes_ += '(';
    for (const std::int64_t value : values) integer(value);
    bytes_ += 't';
}

std::size_t PickleWriter::tensor(DType dtype, const std::vector<std::int64_t>& shape) {
    storages_.push_back({dtype, elements_in(shape)});
    same_tensor(storages_.size() - 1, shape);
    return storages_.size() - 1;
}

void PickleWriter::same_tensor(std::size_t storage, const std::vector<std::int64_t>& shape) {
    const Storage& used = storages_.at(storage);
    require(elements_in(shape) == used.elements, "a tensor that is not all of its storage");
    name("torch._utils", "_rebuild_tensor_v2");
    bytes_ += "((";
    text("storage");
    name("torch", storage_class_of(used.dtype));
    text(fmt::format("{}", storage));
    text("cpu");
    integer(used.elements);
    bytes_ += "tQ";
    integer(0);  // its first element
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t i = shape.size(); i-- > 1;)
        strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
    tuple(shape);
    tuple(strides);
    boolean(false);  // requires_grad
    name("collections", "OrderedDict");
    bytes_ += ")R";  // no hooks
    bytes_ += "tR";
}

void PickleWriter::dtype(DType value) {
    name("torch", name_of(value));
}

void PickleWriter::size(const std::vector<std::int64_t>& shape) {
    name("torch", "Size");
    tuple(shape);
    bytes_ += "\x85R";
}

void PickleWriter::tensor_reference(std::int64_t number) {
    name("torch_xla.utils.serialization", "TensorReference");
    bytes_ += ")\x81}";
    text("tid");
    integer(number);
    bytes_ += "sb";
}

// ------------------------------------------------------------------------------------------------------
// the archive

namespace {

constexpr std::uint64_t alignment = 64;
constexpr std::uint64_t local_header_bytes = 30, directory_entry_bytes = 46;
constexpr std::uint64_t end_of_archive_bytes = 22, wide_end_bytes = 56, wide_locator_bytes = 20;
constexpr std::uint32_t narrow_limit = 0xFFFFFFFF;  ///< stands for a value in the extra field
constexpr std::uint64_t wide_sizes_bytes = 2 + 2 + 8 + 8;
constexpr std::uint16_t version_needed = 0, version_of_wide = 45;
constexpr std::uint16_t names_are_utf8 = 1 << 11;
constexpr std::uint16_t day = (1 << 5) | 1;  ///< 1 January 1980, so that equal contents give equal files

bool is_wide(std::uint64_t bytes) {
    return bytes >= narrow_limit;
}

std::uint32_t narrow(std::uint64_t value) {
    return is_wide(value) ? narrow_limit : static_cast<std::uint32_t>(value);
}

/// What both headers of an entry have in common, up to the length of the name.
void put_common(std::string& to, std::uint64_t bytes, std::uint32_t checksum, std::size_t name_bytes) {
    put(to, is_wide(bytes) ? version_of_wide : version_needed);
    put(to, names_are_utf8);
    put(to, std::uint16_t{0});  // stored
    put(to, std::uint16_t{0});  // midnight
    put(to, day);
    put(to, checksum);
    put(to, narrow(bytes));
    put(to, narrow(bytes));
    put(to, static_cast<std::uint16_t>(name_bytes));
}

}  // namespace

/// Gives it the next place in the file. The name, the sizes where they are wide, and a filler that makes the
/// data aligned follow the fixed part of its header.
void TorchArchive::place(Entry& entry) {
    entry.header = directory_;
    const std::uint64_t fixed =
        entry.header + local_header_bytes + entry.name.size() + (is_wide(entry.bytes) ? wide_sizes_bytes : 0);
    entry.data = (fixed + 4 + alignment - 1) / alignment * alignment;
    directory_ = entry.data + entry.bytes;
}

TorchArchive::TorchArchive(std::string name, const PickleWriter& pickle) {
    const auto add = [&](std::string_view entry, std::string content) {
        Entry added{.name = fmt::format("{}/{}", name, entry), .content = std::move(content)};
        added.bytes = added.content.size();
        entries_.push_back(std::move(added));
    };
    add("data.pkl", pickle.bytes());
    add(".format_version", "1");
    add(".storage_alignment", fmt::format("{}", alignment));
    add("byteorder", "little");
    first_storage_ = entries_.size();
    storage_count_ = pickle.storages().size();
    for (std::size_t i = 0; i < storage_count_; ++i)
        entries_.push_back({.name = fmt::format("{}/data/{}", name, i),
                            .content = {},
                            .bytes = pickle.storages()[i].bytes(),
                            .is_storage = true});
    add("version", "3\n");
    for (Entry& entry : entries_) place(entry);

    bool wide = is_wide(directory_) || entries_.size() >= 0xFFFF;
    for (const Entry& entry : entries_) {
        directory_bytes_ += directory_entry_bytes + entry.name.size();
        const std::uint64_t extra = (is_wide(entry.bytes) ? 16 : 0) + (is_wide(entry.header) ? 8 : 0);
        if (extra > 0) directory_bytes_ += 4 + extra;
        wide = wide || extra > 0;
    }
    wide = wide || is_wide(directory_ + directory_bytes_);
    file_size_ = directory_ + directory_bytes_ + end_of_archive_bytes +
                 (wide ? wide_end_bytes + wide_locator_bytes : 0);
}

std::uint64_t TorchArchive::storage_offset(std::size_t storage) const {
    require(storage < storage_count_, "a storage that is not in the archive");
    return entries_[first_storage_ + storage].data;
}

std::string TorchArchive::local_header(const Entry& entry, std::uint32_t checksum) const {
    std::string header = "PK\3\4";
    put_common(header, entry.bytes, checksum, entry.name.size());
    const std::uint64_t extra = entry.data - entry.header - local_header_bytes - entry.name.size();
    put(header, static_cast<std::uint16_t>(extra));
    header += entry.name;
    std::uint64_t filler = extra - 4;
    if (is_wide(entry.bytes)) {
        filler -= wide_sizes_bytes;
        put(header, std::uint16_t{1});
        put(header, std::uint16_t{16});
        put(header, entry.bytes);
        put(header, entry.bytes);
    }
    header += "FB";
    put(header, static_cast<std::uint16_t>(filler));
    header.append(filler, 'Z');
    return header;
}

std::vector<TorchArchive::Part> TorchArchive::other_parts(const std::vector<std::uint32_t>& checksums) const {
    require(checksums.size() == storage_count_, "a checksum for each storage of an archive");
    std::vector<Part> parts;
    std::string directory;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        const Entry& entry = entries_[i];
        const std::uint32_t checksum =
            entry.is_storage ? checksums[i - first_storage_] : zip_checksum(entry.content);
        parts.push_back({entry.header, local_header(entry, checksum) + entry.content});

        std::string extra;
        if (is_wide(entry.bytes)) {
            put(extra, entry.bytes);
            put(extra, entry.bytes);
        }
        if (is_wide(entry.header)) put(extra, entry.header);
        directory += "PK\1\2";
        put(directory, std::uint16_t{0});  // made by
        put_common(directory, entry.bytes, checksum, entry.name.size());
        put(directory, static_cast<std::uint16_t>(extra.empty() ? 0 : 4 + extra.size()));
        directory.append(2 + 2 + 2 + 4, '\0');  // no comment, first disk, no attributes
        put(directory, narrow(entry.header));
        directory += entry.name;
        if (extra.empty()) continue;
        put(directory, std::uint16_t{1});
        put(directory, static_cast<std::uint16_t>(extra.size()));
        directory += extra;
    }
    require(directory.size() == directory_bytes_,
            "the directory of an archive has another size than planned");
    const std::uint64_t count = entries_.size();
    if (file_size_ > directory_ + directory_bytes_ + end_of_archive_bytes) {
        const std::uint64_t wide_end = directory_ + directory_bytes_;
        directory += "PK\6\6";
        put(directory, wide_end_bytes - 12);
        put(directory, std::uint16_t{0});
        put(directory, version_of_wide);
        put(directory, std::uint64_t{0});  // this disk, and the directory's
        put(directory, count);
        put(directory, count);
        put(directory, directory_bytes_);
        put(directory, directory_);
        directory += "PK\6\7";
        put(directory, std::uint32_t{0});
        put(directory, wide_end);
        put(directory, std::uint32_t{1});
    }
    directory += "PK\5\6";
    put(directory, std::uint32_t{0});
    const auto short_count = static_cast<std::uint16_t>(std::min<std::uint64_t>(count, 0xFFFF));
    put(directory, short_count);
    put(directory, short_count);
    put(directory, narrow(directory_bytes_));
    put(directory, narrow(directory_));
    put(directory, std::uint16_t{0});
    parts.push_back({directory_, std::move(directory)});
    return parts;
}

void write_torch_file(const std::filesystem::path& path, const PickleWriter& pickle,
                      const std::vector<Tensor>& tensors) {
    const TorchArchive archive(path.stem().string(), pickle);
    require(tensors.size() == archive.storages(), "a tensor for each storage of an archive");
    PartialFile file(path, archive.file_size());
    std::vector<std::uint32_t> checksums;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        require(tensors[i].packed() && tensors[i].device() == Device::cpu &&
                    tensors[i].bytes() == pickle.storages()[i].bytes(),
                "only packed CPU tensors of the pickle's sizes can be written");
        file.write(archive.storage_offset(i), tensors[i].raw(), tensors[i].bytes());
        checksums.push_back(zip_checksum({static_cast<const char*>(tensors[i].raw()), tensors[i].bytes()}));
    }
    for (const TorchArchive::Part& part : archive.other_parts(checksums))
        file.write(part.offset, part.bytes.data(), part.bytes.size());
    file.finish();
    file.commit();
    sync_folder(path.parent_path());
}

}  // namespace drover
