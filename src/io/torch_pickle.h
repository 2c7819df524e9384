#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/mapped_file.h"
#include "core/tensor.h"
#include "io/safetensors.h"
#include "io/stored_zip.h"

/// Files of torch.save, read without Python and without running any of their code. A pickle is a program;
/// this reader builds plain values and accepts a fixed list of names (containers, tensors, and numpy arrays,
/// which stay closed). Every other name is refused.
namespace drover {

/// A tensor of such a file: a view of one of its storages.
struct PickleTensor {
    FileDType dtype = FileDType::F32;
    std::vector<std::int64_t> shape, strides;  ///< strides in elements
    std::string_view elements;                 ///< the storage, from the tensor's first element on
    std::string_view storage;                  ///< its name in the archive

    std::int64_t numel() const;
    bool packed() const;
};

/// Values by number. Values share parts, and a list may hold itself: traverse them by expected structure, not
/// by unbounded recursion.
struct PickleNodes;

/// One value of a file; cheap to copy, valid as long as the TorchFile. Accessing it as another kind is an
/// Error that names the file.
class PickleValue {
  public:
    /// `object` is a recognised object: a numpy array or dtype, which stays closed, a dtype of torch, or a
    /// reference to a tensor in another file.
    enum class Kind : std::uint8_t {
        none,
        boolean,
        integer,
        real,
        text,
        bytes,
        list,
        tuple,
        dict,
        tensor,
        object
    };

    PickleValue(const PickleNodes& nodes, std::uint32_t index) : nodes_(&nodes), index_(index) {}

    Kind kind() const;
    bool boolean() const;
    std::int64_t integer() const;
    /// An integer, a real number, or a tensor with one element.
    double number() const;
    std::string_view text() const;
    std::string_view bytes() const;
    const PickleTensor& tensor() const;
    /// The tensor as a CPU view, which must not be written to; its data need not be aligned. Error unless it
    /// is packed, has a type of the engine and at most four dimensions.
    Tensor packed_tensor() const;

    /// The full name of an object's class, or of a name itself.
    std::string_view object_name() const;
    /// What the last instruction that set an object's attributes gave it: a dict, or a tuple of the class's
    /// own.
    PickleValue state() const;
    /// The element type that a dtype of torch names; nothing for other values.
    std::optional<FileDType> dtype() const;
    /// The number of the file tensor_<number>.pt that has the tensor whose place this is (torch_xla's form);
    /// nothing for other values.
    std::optional<std::int64_t> tensor_reference() const;

    /// Elements of a list or tuple, or entries of a dict.
    std::size_t size() const;
    PickleValue at(std::size_t element) const;           ///< of a list or tuple
    PickleValue key(std::size_t entry) const;            ///< of a dict
    PickleValue value(std::size_t entry) const;          ///< of a dict
    bool contains(std::string_view key) const;           ///< of a dict
    PickleValue operator[](std::string_view key) const;  ///< of a dict; Error when it is not there

  private:
    const PickleNodes* nodes_;
    std::uint32_t index_;
};

/// For messages: "a list".
std::string_view name_of(PickleValue::Kind kind);

/// The values and storages of a torch.save file in memory. Memory use is bounded by a small multiple of the
/// pickle's size.
class TorchPickle {
  public:
    /// The largest pickle that is read (not counting the tensors' elements).
    static constexpr std::size_t max_pickle_bytes = std::size_t{1} << 28;

    /// Error when it is not such a file, is damaged, or uses a name that is not on the list. `bytes` must
    /// stay valid; `where` names the file in errors.
    TorchPickle(std::string_view bytes, std::string_view where);
    ~TorchPickle();
    TorchPickle(TorchPickle&&) noexcept;
    TorchPickle& operator=(TorchPickle&&) noexcept;

    PickleValue root() const;
    /// Reads every storage: Error when a checksum is wrong.
    void verify() const;
    /// The same of the storage that has this element, unless it was verified before. `after_part` is called
    /// every few megabytes.
    void verify_storage_of(const void* element, const std::function<void()>& after_part) const;

  private:
    StoredZip zip_;
    std::set<std::string_view> storages_;          ///< storages that the pickle names
    mutable std::set<std::string_view> verified_;  ///< of these
    std::unique_ptr<PickleNodes> nodes_;
};

/// The values of a pickle that is not in an archive, and so has no tensors. `bytes` must stay valid.
class PlainPickle {
  public:
    PlainPickle(std::string_view bytes, std::string_view where);
    ~PlainPickle();

    PickleValue root() const;

  private:
    std::unique_ptr<PickleNodes> nodes_;
};

/// The same as TorchPickle for a file on disk, mapped.
class TorchFile {
  public:
    explicit TorchFile(const std::filesystem::path& path)
        : path_(path), file_(path), pickle_(file_.bytes(), path.string()) {}

    const std::filesystem::path& path() const { return path_; }
    PickleValue root() const { return pickle_.root(); }
    void verify() const { pickle_.verify(); }
    /// As TorchPickle's, with no more than a few megabytes in memory.
    void verify_storage_of(const void* element) const {
        pickle_.verify_storage_of(element, [this] { forget(); });
    }
    /// Lets the memory of elements that were read be used for something else; they are read again when
    /// needed.
    void forget() const { file_.forget(); }

  private:
    std::filesystem::path path_;
    MappedFile file_;
    TorchPickle pickle_;
};

}  // namespace drover
