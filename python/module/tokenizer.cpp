#include "functions.h"
#include "handle.h"
#include "values.h"

namespace drover::python {
namespace {

using TokenizerHandle = Handle<Tokenizer>;

PyObject* load_tokenizer(PyObject*, PyObject* model_id) {
    return guarded([&] { return TokenizerHandle::make(Tokenizer::from_pretrained(to_string(model_id))); });
}

PyObject* encode(PyObject*, PyObject* arguments) {
    PyObject *handle = nullptr, *text = nullptr;
    if (PyArg_ParseTuple(arguments, "OU", &handle, &text) == 0) return nullptr;
    return guarded([&] { return to_bytes(TokenizerHandle::get(handle)(to_string(text))); });
}

PyObject* decode(PyObject*, PyObject* arguments) {
    PyObject *handle = nullptr, *ids = nullptr;
    int skip_special_tokens = 0;
    if (PyArg_ParseTuple(arguments, "OOp", &handle, &ids, &skip_special_tokens) == 0) return nullptr;
    return guarded(
        [&] { return to_text(TokenizerHandle::get(handle).decode(to_ids(ids), skip_special_tokens != 0)); });
}

PyObject* vocabulary_size(PyObject*, PyObject* handle) {
    return guarded([&] { return to_int(TokenizerHandle::get(handle).size()); });
}

PyObject* eos_token(PyObject*, PyObject* handle) {
    return guarded([&] { return to_text(TokenizerHandle::get(handle).eos_token()); });
}

/// −1 for a token that there is not.
PyObject* eos_and_pad_ids(PyObject*, PyObject* handle) {
    return guarded([&] {
        const Tokenizer& tokenizer = TokenizerHandle::get(handle);
        return checked(Py_BuildValue("ii", tokenizer.eos_token_id(), tokenizer.pad_token_id()));
    });
}

PyObject* add_special_tokens(PyObject*, PyObject* arguments) {
    PyObject *handle = nullptr, *tokens = nullptr;
    if (PyArg_ParseTuple(arguments, "OO!", &handle, &PyDict_Type, &tokens) == 0) return nullptr;
    return guarded([&] {
        TokenizerHandle::get(handle).add_special_tokens(to_string_map(tokens));
        return none();
    });
}

}  // namespace

PyMethodDef tokenizer_functions[] = {
    {"load_tokenizer", load_tokenizer, METH_O, "model_id → handle"},
    {"encode", encode, METH_VARARGS, "handle, text → int32 ids as a bytearray"},
    {"decode", decode, METH_VARARGS, "handle, ids, skip_special_tokens → text"},
    {"vocabulary_size", vocabulary_size, METH_O, "handle → number of ids"},
    {"eos_token", eos_token, METH_O, "handle → text"},
    {"eos_and_pad_ids", eos_and_pad_ids, METH_O, "handle → (id, id)"},
    {"add_special_tokens", add_special_tokens, METH_VARARGS, "handle, {name: text}"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace drover::python
