#include "functions.h"
#include "handle.h"
#include "values.h"
#include "work_thread.h"

namespace drover::python {
namespace {

using ModelHandle = Handle<CausalLM>;

PyObject* load_model(PyObject*, PyObject* arguments) {
    PyObject *model_id = nullptr, *dtype = nullptr;
    if (PyArg_ParseTuple(arguments, "UU", &model_id, &dtype) == 0) return nullptr;
    return guarded([&] {
        return ModelHandle::make(
            CausalLM::from_pretrained(to_string(model_id), {.torch_dtype = to_string(dtype)}));
    });
}

PyObject* new_model(PyObject*, PyObject* arguments) {
    PyObject *config = nullptr, *dtype = nullptr;
    unsigned long long seed = 0;
    if (PyArg_ParseTuple(arguments, "UUK", &config, &dtype, &seed) == 0) return nullptr;
    return guarded([&] {
        return ModelHandle::make(
            CausalLM::from_config(to_string(config), {.torch_dtype = to_string(dtype), .seed = seed}));
    });
}

PyObject* model_type(PyObject*, PyObject* handle) {
    return guarded([&] { return to_text(ModelHandle::get(handle).model_type()); });
}

PyObject* parameter_count(PyObject*, PyObject* handle) {
    return guarded([&] { return to_int(ModelHandle::get(handle).num_parameters()); });
}

PyObject* model_vocabulary_size(PyObject*, PyObject* handle) {
    return guarded([&] { return to_int(ModelHandle::get(handle).vocab_size()); });
}

PyObject* generate(PyObject*, PyObject* arguments) {
    PyObject *model = nullptr, *tokenizer = nullptr, *prompt = nullptr;
    GenerationOptions options;
    long long max_new_tokens = 0, top_k = 0;
    unsigned long long seed = 0;
    if (PyArg_ParseTuple(arguments, "OOULdLdK", &model, &tokenizer, &prompt, &max_new_tokens,
                         &options.temperature, &top_k, &options.top_p, &seed) == 0)
        return nullptr;
    return guarded([&] {
        options.max_new_tokens = max_new_tokens;
        options.top_k = top_k;
        options.seed = seed;
        const std::string before = to_string(prompt);
        const CausalLM speaker = ModelHandle::get(model);
        const Tokenizer words = Handle<Tokenizer>::get(tokenizer);
        std::string text;
        WorkThread::only().run([&] { text = speaker.generate(words, before, options); });
        return to_text(text);
    });
}

PyObject* save_pretrained(PyObject*, PyObject* arguments) {
    PyObject *handle = nullptr, *folder = nullptr;
    if (PyArg_ParseTuple(arguments, "OU", &handle, &folder) == 0) return nullptr;
    return guarded([&] {
        const std::string name = to_string(folder);
        const CausalLM model = ModelHandle::get(handle);
        WorkThread::only().run([&] { model.save_pretrained(name); });
        return none();
    });
}

PyObject* fsdp_training_args(PyObject*, PyObject* handle) {
    return guarded([&] {
        const FsdpTrainingArguments arguments = fsdp_v2_training_args(ModelHandle::get(handle));
        const Reference fsdp = to_text(arguments.fsdp), config = to_text(arguments.fsdp_config);
        return checked(PyTuple_Pack(2, fsdp.get(), config.get()));
    });
}

}  // namespace

PyMethodDef model_functions[] = {
    {"load_model", load_model, METH_VARARGS, "model_id, dtype → handle"},
    {"new_model", new_model, METH_VARARGS, "config, dtype, seed → handle"},
    {"model_type", model_type, METH_O, "model → the type in its config.json"},
    {"parameter_count", parameter_count, METH_O, "model → number of parameters"},
    {"model_vocabulary_size", model_vocabulary_size, METH_O, "model → number of ids"},
    {"generate", generate, METH_VARARGS,
     "model, tokenizer, prompt, max_new_tokens, temperature, top_k, top_p, seed → text"},
    {"save_pretrained", save_pretrained, METH_VARARGS, "model, folder"},
    {"fsdp_training_args", fsdp_training_args, METH_O, "model → (fsdp, fsdp_config as JSON)"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace drover::python
