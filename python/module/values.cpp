#include "values.h"

#include <utility>

#include "buffer.h"

namespace drover::python {
namespace {

[[noreturn]] void raise(PyObject* type, const std::string& text) {
    PyErr_SetString(type, text.c_str());
    throw PythonRaised();
}

template <class Number>
std::vector<std::int32_t> narrowed(const std::vector<char>& bytes) {
    const auto* const numbers = reinterpret_cast<const Number*>(bytes.data());
    const std::size_t count = bytes.size() / sizeof(Number);
    std::vector<std::int32_t> ids(count);
    for (std::size_t i = 0; i < count; ++i) {
        if (!std::in_range<std::int32_t>(numbers[i]))
            raise(PyExc_OverflowError, "ids: " + std::to_string(numbers[i]) + " at index " +
                                           std::to_string(i) + " is not a 32-bit number.");
        ids[i] = static_cast<std::int32_t>(numbers[i]);
    }
    return ids;
}

std::vector<std::int32_t> ids_of_buffer(PyObject* object) {
    Buffer buffer(object);
    const Py_buffer& view = buffer.view();
    if (view.ndim != 1)
        raise(PyExc_ValueError, "ids: an array of " + std::to_string(view.ndim) +
                                    " dimensions, where one row of ids is needed.");
    std::string_view format = view.format == nullptr ? "B" : view.format;
    if (!format.empty() && (format[0] == '@' || format[0] == '=' || format[0] == '<'))
        format.remove_prefix(1);
    const std::string_view is_signed = "bhilqn", is_unsigned = "BHILQN";
    if (format.size() == 1 && is_signed.find(format[0]) != std::string_view::npos) {
        if (view.itemsize == 1) return narrowed<std::int8_t>(buffer.contents());
        if (view.itemsize == 2) return narrowed<std::int16_t>(buffer.contents());
        if (view.itemsize == 4) return narrowed<std::int32_t>(buffer.contents());
        if (view.itemsize == 8) return narrowed<std::int64_t>(buffer.contents());
    }
    if (format.size() == 1 && is_unsigned.find(format[0]) != std::string_view::npos) {
        if (view.itemsize == 1) return narrowed<std::uint8_t>(buffer.contents());
        if (view.itemsize == 2) return narrowed<std::uint16_t>(buffer.contents());
        if (view.itemsize == 4) return narrowed<std::uint32_t>(buffer.contents());
        if (view.itemsize == 8) return narrowed<std::uint64_t>(buffer.contents());
    }
    raise(PyExc_TypeError, "ids: an array of type \"" +
                               std::string(view.format == nullptr ? "" : view.format) +
                               "\", where integers are needed.");
}

std::vector<std::int32_t> ids_of_iterable(PyObject* object) {
    const Reference items = checked(PySequence_List(object));
    const Py_ssize_t count = PyList_Size(items.get());
    std::vector<std::int64_t> numbers;
    numbers.reserve(static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
        // numpy's and torch's numbers too, and no float
        const Reference number = checked(PyNumber_Index(PyList_GetItem(items.get(), i)));
        const long long value = PyLong_AsLongLong(number.get());
        if (value == -1 && PyErr_Occurred() != nullptr) throw PythonRaised();
        numbers.push_back(value);
    }
    const auto* const bytes = reinterpret_cast<const char*>(numbers.data());
    return narrowed<std::int64_t>({bytes, bytes + numbers.size() * sizeof(std::int64_t)});
}

}  // namespace

Reference to_text(std::string_view text) {
    return checked(
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
}

std::string to_string(PyObject* text) {
    const Reference encoded = checked(PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape"));
    char* bytes = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(encoded.get(), &bytes, &size) != 0) throw PythonRaised();
    return {bytes, static_cast<std::size_t>(size)};
}

std::map<std::string, std::string> to_string_map(PyObject* dict) {
    std::map<std::string, std::string> map;
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t position = 0; PyDict_Next(dict, &position, &key, &value) != 0;)
        map[to_string(key)] = to_string(value);
    return map;
}

Reference to_dict(const std::map<std::string, double>& numbers) {
    Reference dict = checked(PyDict_New());
    for (const auto& [key, value] : numbers) {
        const Reference name = to_text(key), number = checked(PyFloat_FromDouble(value));
        if (PyDict_SetItem(dict.get(), name.get(), number.get()) != 0) throw PythonRaised();
    }
    return dict;
}

std::vector<std::int32_t> to_ids(PyObject* ids) {
    return PyObject_CheckBuffer(ids) != 0 ? ids_of_buffer(ids) : ids_of_iterable(ids);
}

Reference to_int(std::int64_t number) {
    return checked(PyLong_FromLongLong(number));
}

}  // namespace drover::python
