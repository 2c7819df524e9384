#include <span>

#include "buffer.h"
#include "functions.h"
#include "handle.h"
#include "values.h"

namespace drover::python {
namespace {

using SplitHandle = Handle<Split>;

PyObject* ids(PyObject*, PyObject* row) {
    return guarded([&] { return to_bytes(to_ids(row)); });
}

PyObject* load_dataset(PyObject*, PyObject* name) {
    return guarded([&] {
        const Dataset dataset = Dataset::load(to_string(name));
        Reference splits = checked(PyDict_New());
        for (const std::string& split : dataset.split_names()) {
            const Reference key = to_text(split), handle = SplitHandle::make(dataset[split]);
            if (PyDict_SetItem(splits.get(), key.get(), handle.get()) != 0) throw PythonRaised();
        }
        return splits;
    });
}

PyObject* row_count(PyObject*, PyObject* handle) {
    return guarded([&] { return to_int(SplitHandle::get(handle).size()); });
}

void append(PyObject* list, const Reference& item) {
    if (PyList_Append(list, item.get()) != 0) throw PythonRaised();
}

PyObject* column_names(PyObject*, PyObject* handle) {
    return guarded([&] {
        Reference names = checked(PyList_New(0));
        for (const std::string& name : SplitHandle::get(handle).column_names())
            append(names.get(), to_text(name));
        return names;
    });
}

PyObject* read_column(PyObject*, PyObject* arguments) {
    PyObject *handle = nullptr, *name = nullptr;
    if (PyArg_ParseTuple(arguments, "OU", &handle, &name) == 0) return nullptr;
    return guarded([&] {
        const std::string column = to_string(name);
        Reference texts = checked(PyList_New(0));
        SplitHandle::get(handle).for_each_row(  // the whole files, so that their order is that of the rows
            [&](std::int64_t, const Row& row) { append(texts.get(), to_text(row[column])); });
        return texts;
    });
}

/// The rows of a TokenColumn: all numbers (int32), and where each row ends among them (int64).
std::vector<std::vector<std::int32_t>> rows_of(PyObject* numbers, PyObject* ends) {
    const Buffer all(numbers), last(ends);
    const std::span<const std::int32_t> values = all.as<std::int32_t>();
    std::vector<std::vector<std::int32_t>> rows;
    std::size_t begin = 0;
    for (const std::int64_t end : last.as<std::int64_t>()) {
        const auto row = values.subspan(begin, static_cast<std::size_t>(end) - begin);
        rows.emplace_back(row.begin(), row.end());
        begin = static_cast<std::size_t>(end);
    }
    return rows;
}

PyObject* split_of_rows(PyObject*, PyObject* arguments) {
    PyObject *numbers = nullptr, *ends = nullptr, *labels = nullptr, *label_ends = nullptr;
    if (PyArg_ParseTuple(arguments, "OOOO", &numbers, &ends, &labels, &label_ends) == 0) return nullptr;
    return guarded([&] {
        std::vector<TokenRow> rows;
        for (std::vector<std::int32_t>& row : rows_of(numbers, ends))
            rows.push_back({.input_ids = std::move(row)});
        if (labels != Py_None) {
            std::size_t index = 0;
            for (std::vector<std::int32_t>& row : rows_of(labels, label_ends))
                rows.at(index++).labels = std::move(row);
        }
        return SplitHandle::make(Split::from_rows(std::move(rows)));
    });
}

/// The numbers 0 … count − 1 as rows, for which the library finds the random order.
Split numbered_rows(std::int64_t count) {
    std::vector<TokenRow> rows(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].input_ids = {static_cast<std::int32_t>(i)};
    return Split::from_rows(std::move(rows));
}

Reference numbers_of(const Split& rows) {
    Reference numbers = checked(PyList_New(0));
    for (const std::vector<std::int32_t>& row : rows.input_ids()) append(numbers.get(), to_int(row.at(0)));
    return numbers;
}

PyObject* shuffled(PyObject*, PyObject* arguments) {
    long long count = 0;
    unsigned long long seed = 0;
    if (PyArg_ParseTuple(arguments, "LK", &count, &seed) == 0) return nullptr;
    return guarded([&] { return numbers_of(numbered_rows(count).shuffle(seed)); });
}

PyObject* train_and_test(PyObject*, PyObject* arguments) {
    long long count = 0;
    double test_size = 0;
    unsigned long long seed = 0;
    int shuffle = 0;
    if (PyArg_ParseTuple(arguments, "LdKp", &count, &test_size, &seed, &shuffle) == 0) return nullptr;
    return guarded([&] {
        const Dataset parts = numbered_rows(count).train_test_split(test_size, seed, shuffle != 0);
        const Reference train = numbers_of(parts["train"]), test = numbers_of(parts["test"]);
        return checked(PyTuple_Pack(2, train.get(), test.get()));
    });
}

}  // namespace

PyMethodDef data_functions[] = {
    {"ids", ids, METH_O, "integers of one row → int32 numbers as a bytearray"},
    {"load_dataset", load_dataset, METH_O, "name → {split: handle}"},
    {"row_count", row_count, METH_O, "split → number of rows"},
    {"column_names", column_names, METH_O, "split → names of the columns of its files"},
    {"read_column", read_column, METH_VARARGS, "split, column → list of texts"},
    {"split_of_rows", split_of_rows, METH_VARARGS,
     "ids, where each row ends, the same for labels or two None → handle"},
    {"shuffled", shuffled, METH_VARARGS, "count, seed → 0 … count − 1 in random order"},
    {"train_and_test", train_and_test, METH_VARARGS,
     "count, test_size, seed, shuffle → the rows to train on and to test with"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace drover::python
