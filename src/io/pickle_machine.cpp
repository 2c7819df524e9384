#include "io/pickle_machine.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "core/error.h"
#include "io/pickle_names.h"
#include "io/safetensors_header.h"

namespace drover {
namespace {

using Kind = PickleValue::Kind;
using safetensors_detail::quoted_name;

constexpr int newest_protocol = 5;
constexpr std::size_t most_arguments = 64;
constexpr std::size_t most_dimensions = 64;

/// Instructions and their opcodes. The missing ones (text forms of protocol 0, classes, extensions, buffers
/// outside the file) are never written by torch.save for what is read here.
enum Instruction : unsigned char {
    mark = '(',
    stop = '.',
    pop = '0',
    pop_mark = '1',
    duplicate = '2',
    binary_float = 'G',
    integer4 = 'J',
    integer1 = 'K',
    integer2 = 'M',
    none = 'N',
    persistent_id = 'Q',
    reduce = 'R',
    string4 = 'T',
    string1 = 'U',
    unicode4 = 'X',
    append = 'a',
    build = 'b',
    global = 'c',
    appends = 'e',
    get1 = 'h',
    get4 = 'j',
    put1 = 'q',
    put4 = 'r',
    set_item = 's',
    tuple = 't',
    set_items = 'u',
    bytes4 = 'B',
    bytes1 = 'C',
    empty_list = ']',
    empty_tuple = ')',
    empty_dict = '}',
    protocol = 0x80,
    new_object = 0x81,
    tuple1 = 0x85,
    tuple2 = 0x86,
    tuple3 = 0x87,
    new_true = 0x88,
    new_false = 0x89,
    long1 = 0x8a,
    long4 = 0x8b,
    unicode1 = 0x8c,
    unicode8 = 0x8d,
    bytes8 = 0x8e,
    stack_global = 0x93,
    memoize = 0x94,
    frame = 0x95,
};

class Machine {
  public:
    Machine(std::string_view program, const StoredZip* zip, std::string_view folder, PickleNodes& nodes)
        : program_(program), zip_(zip), folder_(folder), out_(nodes) {}

    void run() {
        while (true) {
            at_ = next_;
            const auto instruction = read<unsigned char>();
            if (instruction == stop) break;
            step(instruction);
        }
        if (stack_.size() != 1 || !marks_.empty()) fail("ends with more or less than one value");
        out_.root = stack_.back();
    }

  private:
    using Index = std::uint32_t;

    [[noreturn]] void fail(std::string_view what) const {
        throw Error(fmt::format("{}: its pickle {} (byte {}).", out_.where, what, at_),
                    "The file is damaged, or is not what torch.save writes: fetch or save it again.");
    }

    // ---------------------------------------------------------------------------------------------
    // reading the program

    std::string_view take(std::uint64_t count) {
        if (count > program_.size() - next_) fail("ends too early");
        const std::string_view part = program_.substr(next_, count);
        next_ += count;
        return part;
    }
    template <class T>
    T read() {
        T value;
        std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
        return value;
    }
    std::string_view line() {
        const auto end = program_.find('\n', next_);
        if (end == std::string_view::npos) fail("ends too early");
        const std::string_view part = program_.substr(next_, end - next_);
        next_ = end + 1;
        return part;
    }

    // ----------------------------------------------------------------------------------------------
    // values and the stack

    PickleNode& node(Index index) { return out_.nodes[index]; }

    Index make(PickleNode node) {
        out_.nodes.push_back(std::move(node));
        return static_cast<Index>(out_.nodes.size() - 1);
    }
    void push(Index index) { stack_.push_back(index); }
    void push(PickleNode node) { push(make(std::move(node))); }
    void push_integer(std::int64_t value) { push({.kind = Kind::integer, .integer = value}); }
    void push_text(std::string_view text) { push({.kind = Kind::text, .text = text}); }
    void push_bytes(std::string_view text) { push({.kind = Kind::bytes, .text = text}); }

    std::size_t bottom() const { return marks_.empty() ? 0 : marks_.back(); }
    Index take_top() {
        const Index index = top();
        stack_.pop_back();
        return index;
    }
    Index top() const {
        if (stack_.size() <= bottom()) fail("takes a value that is not there");
        return stack_.back();
    }
    /// Takes everything pushed since the last mark, and removes the mark.
    std::vector<Index> take_marked() {
        if (marks_.empty()) fail("looks for a mark that is not there");
        const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
        std::vector<Index> items(begin, stack_.end());
        stack_.erase(begin, stack_.end());
        marks_.pop_back();
        return items;
    }
    void push_tuple(std::size_t count) {
        std::vector<Index> items(count);
        for (std::size_t i = count; i-- > 0;) items[i] = take_top();
        push({.kind = Kind::tuple, .parts = std::move(items)});
    }
    const PickleNode& expect(Index index, Kind kind, std::string_view what) {
        if (node(index).kind != kind) fail(what);
        return node(index);
    }

    // -----------------------------------------------------------------------------------------------
    // instructions

    void step(unsigned char instruction) {
        switch (instruction) {
            case protocol:
                if (read<unsigned char>() > newest_protocol) fail("has a protocol that is not known");
                return;
            case frame:
                read<std::uint64_t>();
                return;
            case mark:
                marks_.push_back(stack_.size());
                return;
            case pop:
                take_top();
                return;
            case pop_mark:
                take_marked();
                return;
            case duplicate:
                return push(top());
            case none:
                return push(PickleNode{});
            case new_true:
            case new_false:
                return push({.kind = Kind::boolean, .integer = instruction == new_true});
            case integer1:
                return push_integer(read<unsigned char>());
            case integer2:
                return push_integer(read<std::uint16_t>());
            case integer4:
                return push_integer(read<std::int32_t>());
            case long1:
                return push_integer(long_integer(read<unsigned char>()));
            case long4:
                return push_integer(long_integer(read<std::uint32_t>()));
            case binary_float:  // the one number that is big-endian
                return push({.kind = Kind::real,
                             .real = std::bit_cast<double>(__builtin_bswap64(read<std::uint64_t>()))});
            case unicode1:
            case string1:
                return push_text(take(read<unsigned char>()));
            case unicode4:
            case string4:
                return push_text(take(read<std::uint32_t>()));
            case unicode8:
                return push_text(take(read<std::uint64_t>()));
            case bytes1:
                return push_bytes(take(read<unsigned char>()));
            case bytes4:
                return push_bytes(take(read<std::uint32_t>()));
            case bytes8:
                return push_bytes(take(read<std::uint64_t>()));
            case empty_list:
                return push({.kind = Kind::list});
            case empty_tuple:
                return push_tuple(0);
            case tuple1:
                return push_tuple(1);
            case tuple2:
                return push_tuple(2);
            case tuple3:
                return push_tuple(3);
            case tuple:
                return push({.kind = Kind::tuple, .parts = take_marked()});
            case empty_dict:
                return push({.kind = Kind::dict});
            case append:
                return append_to_list({take_top()});
            case appends:
                return append_to_list(take_marked());
            case set_item: {
                const Index value = take_top(), key = take_top();
                return add_to_dict({key, value});
            }
            case set_items:
                return add_to_dict(take_marked());
            case put1:
                return put(read<unsigned char>());
            case put4:
                return put(read<std::uint32_t>());
            case memoize:
                return put(static_cast<std::uint32_t>(memo_.size()));
            case get1:
                return get(read<unsigned char>());
            case get4:
                return get(read<std::uint32_t>());
            case global: {
                const std::string_view module = line();
                return push_name(module, line());
            }
            case stack_global: {
                const std::string_view name =
                    expect(take_top(), Kind::text, "gives a name that is not text").text;
                return push_name(expect(take_top(), Kind::text, "gives a name that is not text").text, name);
            }
            case persistent_id:
                return push_storage(take_top());
            case reduce: {
                const Index arguments = take_top();
                const Index function = take_top();
                return call(function, arguments);
            }
            case new_object: {
                const Index arguments = take_top();
                return make_object(take_top(), arguments);
            }
            case build: {
                const Index state = take_top();
                return set_state(top(), state);
            }
            default:
                fail(fmt::format("has the instruction {:#04x}, which is not on the list", instruction));
        }
    }

    std::int64_t long_integer(std::uint64_t count) {
        const std::string_view digits = take(count);
        if (count > sizeof(std::int64_t)) fail("has an integer of more than 64 bits");
        if (count == 0) return 0;
        std::int64_t value = (digits.back() & 0x80) != 0 ? -1 : 0;
        std::memcpy(&value, digits.data(), count);
        return value;
    }

    void append_to_list(const std::vector<Index>& items) {
        const Index list = top();
        expect(list, Kind::list, "appends to something that is not a list");
        node(list).parts.insert(node(list).parts.end(), items.begin(), items.end());
    }

    void add_to_dict(const std::vector<Index>& items) {
        const Index dict = top();
        expect(dict, Kind::dict, "sets an entry of something that is not a dict");
        if (items.size() % 2 != 0) fail("sets a key without a value");
        for (std::size_t i = 0; i < items.size(); i += 2)
            if (node(items[i]).kind != Kind::text && node(items[i]).kind != Kind::integer &&
                !is_object(items[i]))
                fail("has a key that is neither text nor integer nor an object");
        node(dict).parts.insert(node(dict).parts.end(), items.begin(), items.end());
    }

    void put(std::uint32_t place) { memo_[place] = top(); }
    void get(std::uint32_t place) {
        const auto found = memo_.find(place);
        if (found == memo_.end()) fail("takes a value that it did not keep");
        push(found->second);
    }

    // -----------------------------------------------------------------------------------------------
    // names and their meanings

    /// A copy, so it must be short: a long tuple could be used again and again.
    std::vector<Index> arguments_in(Index index) {
        const std::vector<Index>& parts =
            expect(index, Kind::tuple, "makes a call without a tuple of arguments").parts;
        if (parts.size() > most_arguments) fail("calls with too many arguments");
        return parts;
    }

    void push_name(std::string_view module, std::string_view name) {
        const auto known = find_pickle_name(module, name);
        if (!known)
            throw Error(
                fmt::format("{} names {}, which is not one of the few things that are read from such a file.",
                            out_.where, quoted_name(std::string(module) + "." + std::string(name))),
                "Nothing of the file was run; only load files that you trust, saved by PyTorch or "
                "transformers.");
        push({.kind = Kind::object,
              .integer = static_cast<std::int64_t>(*known),
              .text = pickle_names[*known].full_name});
    }

    /// The table's entry for a value; null for other values.
    const PickleName* name_in(Index index) {
        const PickleNode& found = node(index);
        return found.kind == Kind::object && found.integer >= 0
                   ? &pickle_names[static_cast<std::size_t>(found.integer)]
                   : nullptr;
    }

    /// An object that stays closed.
    void push_closed(std::string_view name, std::vector<Index> parts, std::int64_t storage = 0) {
        push({.kind = Kind::object, .integer = -1 - storage, .text = name, .parts = std::move(parts)});
    }

    /// Whether it is an object that was made, and not a name or a storage.
    bool is_object(Index index) { return node(index).kind == Kind::object && node(index).integer == -1; }

    struct Storage {
        FileDType dtype;
        std::string_view name;
        std::string_view content;
        std::int64_t elements;
    };

    /// ("storage", class, key, device, elements)
    void push_storage(Index id) {
        const std::vector<Index> parts = arguments_in(id);
        if (parts.size() != 5 || node(parts[0]).text != "storage")
            fail("has a persistent id of another kind");
        const PickleName* const type = name_in(parts[1]);
        if (type == nullptr || type->meaning != PickleName::Meaning::storage)
            fail("has a storage without a type");
        const std::string_view key = expect(parts[2], Kind::text, "has a storage without a name").text;
        const std::int64_t elements = expect(parts[4], Kind::integer, "has a storage without a size").integer;
        const StoredZip::Entry* const entry =
            zip_ == nullptr ? nullptr : zip_->find(std::string(folder_) + "data/" + std::string(key));
        if (entry == nullptr) fail(fmt::format("names the storage {}, which is not there", quoted_name(key)));
        std::int64_t bytes = 0;
        if (elements < 0 || __builtin_mul_overflow(elements, bits_of(type->dtype) / 8, &bytes) ||
            static_cast<std::uint64_t>(bytes) != entry->content.size())
            fail(fmt::format("says that the storage {} has {} elements, and it has {} bytes",
                             quoted_name(key), elements, entry->content.size()));
        storages_.push_back({type->dtype, entry->name, entry->content, elements});
        push_closed("storage", {}, static_cast<std::int64_t>(storages_.size()));
    }

    void call(Index function, Index arguments) {
        const PickleName* const name = name_in(function);
        if (name == nullptr) fail("calls something that is not a name");
        const std::vector<Index> parts = arguments_in(arguments);
        switch (name->meaning) {
            case PickleName::Meaning::ordered_dict:
                if (!parts.empty()) fail("makes an OrderedDict of arguments");
                return push({.kind = Kind::dict});
            case PickleName::Meaning::tensor:
                return push_tensor(parts);
            case PickleName::Meaning::parameter:
                if (parts.empty()) fail("makes a parameter of nothing");
                expect(parts[0], Kind::tensor, "makes a parameter of something that is not a tensor");
                return push(parts[0]);
            case PickleName::Meaning::tensor_with_attributes:
                return call_for_tensor(parts);
            case PickleName::Meaning::size:
                if (parts.size() != 1) fail("makes a torch.Size from more or less than one value");
                expect(parts[0], Kind::tuple, "makes a torch.Size of something that is not a tuple");
                return push(parts[0]);
            case PickleName::Meaning::device:
                if (parts.empty()) fail("makes a torch.device of nothing");
                expect(parts[0], Kind::text, "makes a torch.device of something that is not text");
                return push(parts[0]);
            case PickleName::Meaning::encode:
                return push_encoded(parts);
            case PickleName::Meaning::closed:
                return push_closed(name->full_name, parts);
            case PickleName::Meaning::storage:
            case PickleName::Meaning::dtype:
            case PickleName::Meaning::reference:
            case PickleName::Meaning::record:
                break;
        }
        fail(fmt::format("calls {}", name->full_name));
    }

    /// (function, class, its arguments, attributes), of which the attributes do not matter here. One call, so
    /// that a program cannot make the reader recurse.
    void call_for_tensor(const std::vector<Index>& parts) {
        const PickleName* const name = parts.size() == 4 ? name_in(parts[0]) : nullptr;
        if (name == nullptr || name->meaning != PickleName::Meaning::tensor)
            fail("makes a tensor with attributes of something that is not a tensor");
        push_tensor(arguments_in(parts[2]));
    }

    /// An object that is made empty and then gets its attributes.
    void make_object(Index type, Index arguments) {
        const PickleName* const name = name_in(type);
        const bool can_be_made = name != nullptr && (name->meaning == PickleName::Meaning::reference ||
                                                     name->meaning == PickleName::Meaning::record);
        if (!can_be_made || !arguments_in(arguments).empty())
            fail("makes an object of a kind that is not on the list");
        push_closed(name->full_name, {});
    }

    /// Attributes of a dict (a state dict's `_metadata`) do not matter here; closed objects keep theirs.
    void set_state(Index target, Index state) {
        PickleNode& changed = node(target);
        if (is_object(target))
            changed.parts.push_back(state);
        else if (changed.kind != Kind::dict)
            fail("sets attributes of a plain value");
    }

    /// Bytes, which protocol 2 writes as a text of their code points.
    void push_encoded(const std::vector<Index>& parts) {
        if (parts.empty() || node(parts[0]).kind != Kind::text ||
            (parts.size() == 2 && node(parts[1]).text != "latin1") || parts.size() > 2)
            fail("encodes something other than text as latin1");
        const std::string_view text = node(parts[0]).text;
        // A text that is encoded repeatedly would outgrow the file.
        encoded_ += text.size();
        if (encoded_ > program_.size()) fail("encodes more text than it has");
        std::string& bytes = out_.encoded.emplace_back();
        for (std::size_t i = 0; i < text.size(); ++i) {
            const auto first = static_cast<unsigned char>(text[i]);
            if (first < 0x80) {
                bytes.push_back(static_cast<char>(first));
                continue;
            }
            if ((first != 0xC2 && first != 0xC3) || i + 1 == text.size() || (text[i + 1] & 0xC0) != 0x80)
                fail("encodes something other than text as latin1");
            bytes.push_back(static_cast<char>(((first & 3) << 6) | (text[++i] & 0x3F)));
        }
        push_bytes(bytes);
    }

    std::vector<std::int64_t> integers(Index index) {
        std::vector<std::int64_t> values;
        if (node(index).parts.size() > most_dimensions) fail("has a tensor of too many dimensions");
        for (const Index part : expect(index, Kind::tuple, "has a tensor without sizes or strides").parts)
            values.push_back(
                expect(part, Kind::integer, "has a size or a stride that is no integer").integer);
        return values;
    }

    /// (storage, offset, size, stride, requires_grad, hooks, …)
    void push_tensor(const std::vector<Index>& parts) {
        if (parts.size() < 6) fail("makes a tensor of too few arguments");
        const PickleNode& holder = expect(parts[0], Kind::object, "makes a tensor without a storage");
        if (holder.integer >= -1) fail("makes a tensor without a storage");
        const Storage& storage = storages_[static_cast<std::size_t>(-2 - holder.integer)];
        const std::int64_t offset = expect(parts[1], Kind::integer, "has a tensor without an offset").integer;
        PickleTensor tensor{.dtype = storage.dtype,
                            .shape = integers(parts[2]),
                            .strides = integers(parts[3]),
                            .elements = {},
                            .storage = storage.name};
        if (!fits(tensor, offset, storage.elements)) fail("has a tensor that is not inside its storage");
        tensor.elements = storage.content.substr(static_cast<std::size_t>(offset) *
                                                 static_cast<std::size_t>(bits_of(storage.dtype) / 8));
        out_.tensors.push_back(std::move(tensor));
        push({.kind = Kind::tensor, .integer = static_cast<std::int64_t>(out_.tensors.size() - 1)});
    }

    /// Whether every element lies inside a storage of `elements`, and the number of elements is a number.
    static bool fits(const PickleTensor& tensor, std::int64_t offset, std::int64_t elements) {
        if (tensor.shape.size() != tensor.strides.size() || offset < 0 || offset > elements) return false;
        std::int64_t count = 1, last = offset;
        bool is_empty = false;
        for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
            const std::int64_t size = tensor.shape[i], stride = tensor.strides[i];
            std::int64_t reach = 0;
            if (size < 0 || stride < 0) return false;
            is_empty |= size == 0;
            if (__builtin_mul_overflow(count, std::max<std::int64_t>(size, 1), &count)) return false;
            if (size > 0 && (__builtin_mul_overflow(size - 1, stride, &reach) ||
                             __builtin_add_overflow(last, reach, &last)))
                return false;
        }
        return is_empty || last < elements;
    }

    std::string_view program_;
    const StoredZip* zip_;
    std::string_view folder_;
    PickleNodes& out_;
    std::uint64_t next_ = 0;  // the next byte to read
    std::uint64_t at_ = 0;    // where the current instruction begins
    std::vector<Index> stack_;
    std::vector<std::size_t> marks_;  // heights of the stack
    std::unordered_map<std::uint32_t, Index> memo_;
    std::vector<Storage> storages_;
    std::uint64_t encoded_ = 0;  // bytes of text
};

}  // namespace

void run_pickle(std::string_view program, const StoredZip* zip, std::string_view folder, PickleNodes& nodes) {
    Machine(program, zip, folder, nodes).run();
}

}  // namespace drover
