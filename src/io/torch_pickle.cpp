#include "io/torch_pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/lfs_pointer.h"
#include "io/pickle_machine.h"
#include "io/pickle_names.h"
#include "io/pickle_nodes.h"
#include "io/safetensors_header.h"

namespace drover {
namespace {

using Kind = PickleValue::Kind;
using safetensors_detail::quoted_name;

constexpr std::string_view pickle_name = "data.pkl";
constexpr std::string_view other_file = "Check that the file is what its name says.";

/// The folder of the archive in which everything lies, "/" included.
std::string top_folder(const StoredZip& zip, std::string_view where) {
    std::string folder;
    bool found = false;
    for (const auto& [name, entry] : zip.entries()) {
        const auto slash = name.rfind('/');
        if (slash == std::string::npos || name.substr(slash + 1) != pickle_name) continue;
        if (found) throw Error(fmt::format("{} holds two pickles.", where), other_file);
        folder = name.substr(0, slash + 1);
        found = true;
    }
    if (!found)
        throw Error(fmt::format("{} is a zip archive without a {}, so torch.save did not write it.", where,
                                pickle_name),
                    other_file);
    return folder;
}

StoredZip open_archive(std::string_view bytes, std::string_view where) {
    refuse_lfs_pointer(bytes.substr(0, 1024), where);
    if (!bytes.starts_with(StoredZip::first_bytes))
        throw Error(fmt::format("{} is not a zip archive, which torch.save writes since version 1.6.", where),
                    "Load it in Python and save it again with torch.save.");
    return StoredZip(bytes, where);
}

double element(const PickleTensor& tensor, std::string_view where) {
    const auto read = [&]<class T>(T value) {
        std::memcpy(&value, tensor.elements.data(), sizeof value);
        return static_cast<double>(value);
    };
    switch (tensor.dtype) {
        case FileDType::F32:
            return read(float{});
        case FileDType::F64:
            return read(double{});
        case FileDType::I64:
            return read(std::int64_t{});
        case FileDType::I32:
            return read(std::int32_t{});
        default:
            throw Error(
                fmt::format("{}: a single number has the element type {}.", where, name_of(tensor.dtype)),
                other_file);
    }
}

}  // namespace

std::string_view name_of(PickleValue::Kind kind) {
    switch (kind) {
        case Kind::none:
            return "None";
        case Kind::boolean:
            return "a boolean";
        case Kind::integer:
            return "an integer";
        case Kind::real:
            return "a real number";
        case Kind::text:
            return "a text";
        case Kind::bytes:
            return "bytes";
        case Kind::list:
            return "a list";
        case Kind::tuple:
            return "a tuple";
        case Kind::dict:
            return "a dict";
        case Kind::tensor:
            return "a tensor";
        case Kind::object:
            return "an object";
    }
    return "";
}

// ------------------------------------------------------------------------------------------------------
// tensors

std::int64_t PickleTensor::numel() const {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return count;
}

bool PickleTensor::packed() const {
    if (numel() == 0) return true;
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        if (shape[i] != 1 && strides[i] != stride) return false;
        stride *= shape[i];
    }
    return true;
}

// -------------------------------------------------------------------------------------------------------
// values

namespace {

const PickleNode& expect(const PickleNodes& nodes, std::uint32_t index, std::initializer_list<Kind> kinds) {
    const PickleNode& node = nodes.nodes[index];
    for (const Kind kind : kinds)
        if (node.kind == kind) return node;
    throw Error(fmt::format("{}: {} is where {} should be.", nodes.where, name_of(node.kind),
                            name_of(*kinds.begin())),
                other_file);
}

}  // namespace

Kind PickleValue::kind() const {
    return nodes_->nodes[index_].kind;
}

bool PickleValue::boolean() const {
    return expect(*nodes_, index_, {Kind::boolean}).integer != 0;
}

std::int64_t PickleValue::integer() const {
    return expect(*nodes_, index_, {Kind::integer}).integer;
}

double PickleValue::number() const {
    const PickleNode& node = expect(*nodes_, index_, {Kind::real, Kind::integer, Kind::tensor});
    if (node.kind == Kind::real) return node.real;
    if (node.kind == Kind::integer) return static_cast<double>(node.integer);
    const PickleTensor& one = tensor();
    if (one.numel() != 1)
        throw Error(fmt::format("{}: a tensor of {} elements is where a number should be.", nodes_->where,
                                one.numel()),
                    other_file);
    return element(one, nodes_->where);
}

std::string_view PickleValue::text() const {
    return expect(*nodes_, index_, {Kind::text}).text;
}

std::string_view PickleValue::bytes() const {
    return expect(*nodes_, index_, {Kind::bytes}).text;
}

const PickleTensor& PickleValue::tensor() const {
    return nodes_->tensors[static_cast<std::size_t>(expect(*nodes_, index_, {Kind::tensor}).integer)];
}

Tensor PickleValue::packed_tensor() const {
    const PickleTensor& from = tensor();
    const auto dtype = engine_dtype_of(from.dtype);
    if (!from.packed() || !dtype || from.shape.size() > static_cast<std::size_t>(Shape::max_rank))
        throw Error(
            fmt::format("{}: a tensor of shape {} and type {} is not packed or not supported.", nodes_->where,
                        safetensors_detail::shape_text(from.shape), name_of(from.dtype)),
            other_file);
    Shape shape;
    for (const std::int64_t size : from.shape) shape.append(size);
    return Tensor(const_cast<char*>(from.elements.data()), *dtype, shape);
}

std::string_view PickleValue::object_name() const {
    return expect(*nodes_, index_, {Kind::object}).text;
}

PickleValue PickleValue::state() const {
    const PickleNode& node = expect(*nodes_, index_, {Kind::object});
    if (node.integer != -1 || node.parts.empty())
        throw Error(fmt::format("{}: a {} has no attributes.", nodes_->where, node.text), other_file);
    return {*nodes_, node.parts.back()};
}

std::optional<FileDType> PickleValue::dtype() const {
    const PickleNode& node = nodes_->nodes[index_];
    if (node.kind != Kind::object) return std::nullopt;
    for (const PickleName& name : pickle_names)
        if (name.meaning == PickleName::Meaning::dtype && name.full_name == node.text) return name.dtype;
    return std::nullopt;
}

std::optional<std::int64_t> PickleValue::tensor_reference() const {
    const PickleNode& node = nodes_->nodes[index_];
    const auto is_reference = [&](const PickleName& name) {
        return name.meaning == PickleName::Meaning::reference && name.full_name == node.text;
    };
    if (node.kind != Kind::object || node.parts.size() != 1 ||
        std::none_of(pickle_names.begin(), pickle_names.end(), is_reference))
        return std::nullopt;
    return PickleValue(*nodes_, node.parts[0])["tid"].integer();
}

std::size_t PickleValue::size() const {
    const PickleNode& node = expect(*nodes_, index_, {Kind::list, Kind::tuple, Kind::dict});
    return node.kind == Kind::dict ? node.parts.size() / 2 : node.parts.size();
}

PickleValue PickleValue::at(std::size_t element) const {
    const PickleNode& node = expect(*nodes_, index_, {Kind::list, Kind::tuple});
    if (element >= node.parts.size())
        throw Error(fmt::format("{}: {} of {} elements is where at least {} should be.", nodes_->where,
                                name_of(node.kind), node.parts.size(), element + 1),
                    other_file);
    return {*nodes_, node.parts[element]};
}

PickleValue PickleValue::key(std::size_t entry) const {
    return {*nodes_, expect(*nodes_, index_, {Kind::dict}).parts.at(2 * entry)};
}

PickleValue PickleValue::value(std::size_t entry) const {
    return {*nodes_, expect(*nodes_, index_, {Kind::dict}).parts.at(2 * entry + 1)};
}

bool PickleValue::contains(std::string_view wanted) const {
    for (std::size_t i = 0; i < size(); ++i)
        if (key(i).kind() == Kind::text && key(i).text() == wanted) return true;
    return false;
}

PickleValue PickleValue::operator[](std::string_view wanted) const {
    // As in Python, of two entries with one key the later counts.
    for (std::size_t i = size(); i-- > 0;)
        if (key(i).kind() == Kind::text && key(i).text() == wanted) return value(i);
    throw Error(fmt::format("{} has no entry {}.", nodes_->where, quoted_name(wanted)), other_file);
}

// -------------------------------------------------------------------------------------------------------
// files

TorchPickle::TorchPickle(std::string_view bytes, std::string_view where)
    : zip_(open_archive(bytes, where)), nodes_(std::make_unique<PickleNodes>()) {
    nodes_->where = where;
    const std::string folder = top_folder(zip_, where);
    if (const auto* const order = zip_.find(folder + "byteorder"); order && order->content != "little")
        throw Error(fmt::format("{} was written on a big-endian machine.", where),
                    "Load it in Python there and save it again on a little-endian machine.");
    const std::string name = folder + std::string(pickle_name);
    const std::string_view program = zip_.find(name)->content;
    if (program.size() > max_pickle_bytes)
        throw Error(fmt::format("{} has a pickle of {} bytes; at most {} are read.", where, program.size(),
                                max_pickle_bytes),
                    other_file);
    zip_.verify(name);
    run_pickle(program, &zip_, folder, *nodes_);
    for (const PickleTensor& tensor : nodes_->tensors) storages_.insert(tensor.storage);
}

TorchPickle::~TorchPickle() = default;
TorchPickle::TorchPickle(TorchPickle&&) noexcept = default;
TorchPickle& TorchPickle::operator=(TorchPickle&&) noexcept = default;

PickleValue TorchPickle::root() const {
    return {*nodes_, nodes_->root};
}

PlainPickle::PlainPickle(std::string_view bytes, std::string_view where)
    : nodes_(std::make_unique<PickleNodes>()) {
    nodes_->where = where;
    refuse_lfs_pointer(bytes.substr(0, 1024), where);
    if (bytes.size() > TorchPickle::max_pickle_bytes)
        throw Error(fmt::format("{} is a pickle of {} bytes; at most {} are read.", where, bytes.size(),
                                TorchPickle::max_pickle_bytes),
                    other_file);
    run_pickle(bytes, nullptr, {}, *nodes_);
}

PlainPickle::~PlainPickle() = default;

PickleValue PlainPickle::root() const {
    return {*nodes_, nodes_->root};
}

void TorchPickle::verify() const {
    for (const std::string_view name : storages_) zip_.verify(name);
}

void TorchPickle::verify_storage_of(const void* element, const std::function<void()>& after_part) const {
    const auto* const address = static_cast<const char*>(element);
    for (const std::string_view name : storages_) {
        const std::string_view content = zip_.find(name)->content;
        if (std::less()(address, content.data()) || !std::less()(address, content.data() + content.size()))
            continue;
        if (verified_.contains(name)) return;
        zip_.verify(name, after_part);
        verified_.insert(name);
        return;
    }
}

}  // namespace drover
