#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

#include "functions.h"
#include "handle.h"
#include "python_callback.h"
#include "python_rows.h"
#include "values.h"
#include "work_thread.h"

namespace drover::python {

/// A Trainer, which is created, used and destroyed on the work thread, and what it needs of Python.
class WorkingTrainer {
  public:
    /// `train` and `evaluation` (or None) are handles of splits, or datasets written in Python.
    WorkingTrainer(TrainerParts parts, PyObject* train, PyObject* evaluation) {
        parts.train_dataset = split_of(train);
        if (evaluation != Py_None) parts.eval_dataset = split_of(evaluation);
        parts.callbacks = {callback_};
        try {
            run([&] { trainer_ = std::make_unique<Trainer>(parts); });
        } catch (...) {
            drop();  // it may have been created before a signal's handler raised an exception
            throw;
        }
    }
    ~WorkingTrainer() { drop(); }
    WorkingTrainer(const WorkingTrainer&) = delete;
    WorkingTrainer& operator=(const WorkingTrainer&) = delete;

    Trainer& trainer() { return *trainer_; }
    PythonCallback& callback() { return *callback_; }

    void run(const std::function<void()>& work) {
        failure_.drop();
        try {
            WorkThread::only().run([&] {
                work();
                std::fflush(stdout);  // before Python prints something
            });
        } catch (...) {
            if (!failure_ || PyErr_Occurred() != nullptr) throw;
            // The exception of a dataset, whatever it has become on its way through the library.
            failure_.raise();
            throw PythonRaised();
        }
    }

  private:
    void drop() {
        if (trainer_) WorkThread::only().run([&] { trainer_.reset(); }, WorkThread::Signals::leave);
    }

    Split split_of(PyObject* rows) {
        if (PyCapsule_IsValid(rows, handle_name<Split>) != 0) return Handle<Split>::get(rows);
        Py_INCREF(rows);
        datasets_.emplace_back(rows);
        return Split(std::make_shared<PythonRows>(rows, failure_));
    }

    // Destroyed after the Trainer, and with the GIL held.
    std::vector<Reference> datasets_;
    KeptException failure_;  ///< of a dataset
    std::shared_ptr<PythonCallback> callback_ = std::make_shared<PythonCallback>();
    std::unique_ptr<Trainer> trainer_;
};

template <>
inline constexpr const char* handle_name<std::unique_ptr<WorkingTrainer>> = "drover.Trainer";

namespace {

using TrainerHandle = Handle<std::unique_ptr<WorkingTrainer>>;

PyObject* make_trainer(PyObject*, PyObject* arguments) {
    PyObject *model = nullptr, *train = nullptr, *evaluation = nullptr, *tokenizer = nullptr,
             *named = nullptr;
    long long pad_to_multiple_of = 1;
    if (PyArg_ParseTuple(arguments, "OOOOLO!", &model, &train, &evaluation, &tokenizer, &pad_to_multiple_of,
                         &PyDict_Type, &named) == 0)
        return nullptr;
    return guarded([&] {
        const TrainerParts parts{
            .model = Handle<CausalLM>::get(model),
            .train_dataset = Split::from_rows({}),
            .args = {.more = to_string_map(named)},
            .data_collator = DataCollatorForLanguageModeling(Handle<Tokenizer>::get(tokenizer),
                                                             {.pad_to_multiple_of = pad_to_multiple_of})};
        return TrainerHandle::make(std::make_unique<WorkingTrainer>(parts, train, evaluation));
    });
}

PyObject* train(PyObject*, PyObject* arguments) {
    PyObject *handle = nullptr, *notify = nullptr, *resume = nullptr;
    if (PyArg_ParseTuple(arguments, "OOO", &handle, &notify, &resume) == 0) return nullptr;
    return guarded([&] {
        TrainOptions options;
        if (PyUnicode_Check(resume) != 0)
            options.resume_from_checkpoint = to_string(resume);
        else
            options.resume_from_checkpoint = resume == Py_True;
        WorkingTrainer& working = *TrainerHandle::get(handle);
        const PythonCallback::Listening listening(working.callback(), notify);
        TrainOutput output;
        working.run([&] { output = working.trainer().train(options); });
        const Reference losses = to_bytes(output.losses), metrics = to_dict(output.metrics);
        return checked(Py_BuildValue("LdOOO", static_cast<long long>(output.global_step),
                                     output.training_loss, losses.get(), metrics.get(),
                                     output.interrupted ? Py_True : Py_False));
    });
}

PyObject* evaluate(PyObject*, PyObject* arguments) {
    PyObject *handle = nullptr, *notify = nullptr;
    if (PyArg_ParseTuple(arguments, "OO", &handle, &notify) == 0) return nullptr;
    return guarded([&] {
        WorkingTrainer& working = *TrainerHandle::get(handle);
        const PythonCallback::Listening listening(working.callback(), notify);
        std::map<std::string, double> metrics;
        working.run([&] { metrics = working.trainer().evaluate(); });
        return to_dict(metrics);
    });
}

PyObject* save_model(PyObject*, PyObject* arguments) {
    PyObject *handle = nullptr, *folder = nullptr;
    if (PyArg_ParseTuple(arguments, "OU", &handle, &folder) == 0) return nullptr;
    return guarded([&] {
        const std::string name = to_string(folder);
        WorkingTrainer& working = *TrainerHandle::get(handle);
        working.run([&] { working.trainer().save_model(name); });
        return none();
    });
}

PyObject* is_world_process_zero(PyObject*, PyObject* handle) {
    return guarded([&] {
        return checked(
            PyBool_FromLong(TrainerHandle::get(handle)->trainer().is_world_process_zero() ? 1 : 0));
    });
}

PyObject* use_fsdp_v2(PyObject*, PyObject*) {
    drover::use_fsdp_v2();
    return none().release();
}

}  // namespace

PyMethodDef trainer_functions[] = {
    {"make_trainer", make_trainer, METH_VARARGS,
     "model, rows to train on, to evaluate on or None, tokenizer, pad_to_multiple_of, {argument: text} → "
     "handle"},
    {"train", train, METH_VARARGS,
     "trainer, notify or None, bool or checkpoint to resume from → (global_step, training_loss, float64 "
     "losses as a "
     "bytearray, metrics, interrupted)"},
    {"evaluate", evaluate, METH_VARARGS, "trainer, notify or None → metrics"},
    {"save_model", save_model, METH_VARARGS, "trainer, folder"},
    {"is_world_process_zero", is_world_process_zero, METH_O, "trainer → bool"},
    {"use_fsdp_v2", use_fsdp_v2, METH_NOARGS, "enables FSDP v2"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace drover::python
