#include "python_callback.h"

#include <algorithm>
#include <optional>

#include "errors.h"
#include "values.h"
#include "work_thread.h"

namespace drover::python {
namespace {

void set(const Reference& dict, const char* key, const Reference& value) {
    if (PyDict_SetItemString(dict.get(), key, value.get()) != 0) throw PythonRaised();
}

template <class Value, class Convert>
Reference or_none(const std::optional<Value>& value, const Convert& convert) {
    return value ? convert(*value) : none();
}

Reference to_float(double number) {
    return checked(PyFloat_FromDouble(number));
}

bool is_true(PyObject* tuple, Py_ssize_t index) {
    const Reference item = checked(PySequence_GetItem(tuple, index));
    const int truth = PyObject_IsTrue(item.get());
    if (truth < 0) throw PythonRaised();
    return truth != 0;
}

}  // namespace

Reference PythonCallback::state_dict(const TrainerState& state) {
    Reference dict = checked(PyDict_New());
    set(dict, "global_step", to_int(state.global_step));
    set(dict, "max_steps", to_int(state.max_steps));
    set(dict, "epoch", to_float(state.epoch));
    set(dict, "num_train_epochs", to_int(state.num_train_epochs));
    set(dict, "best_metric", or_none(state.best_metric, to_float));
    set(dict, "best_global_step", or_none(state.best_global_step, to_int));
    set(dict, "best_model_checkpoint", or_none(state.best_model_checkpoint, to_text));
    set(dict, "is_world_process_zero", checked(PyBool_FromLong(state.is_world_process_zero ? 1 : 0)));
    // Only what is new: the log may be long.
    const Reference records = checked(PyList_New(0));
    told_ = std::min(told_, state.log_history.size());
    set(dict, "records_before", to_int(static_cast<std::int64_t>(told_)));
    for (; told_ < state.log_history.size(); ++told_)
        if (PyList_Append(records.get(), to_dict(state.log_history[told_]).get()) != 0) throw PythonRaised();
    set(dict, "new_records", records);
    return dict;
}

void PythonCallback::tell(const char* event, const TrainerState& state, TrainerControl& control,
                          const char* name, const Added& added) {
    WorkThread& thread = WorkThread::only();
    if (notify_ == nullptr) return thread.check_stop();
    thread.call_back([&] {
        const Reference named = state_dict(state);
        const Reference positional = checked(
            Py_BuildValue("sO(NNNNN)", event, named.get(), PyBool_FromLong(control.should_training_stop),
                          PyBool_FromLong(control.should_epoch_stop), PyBool_FromLong(control.should_save),
                          PyBool_FromLong(control.should_evaluate), PyBool_FromLong(control.should_log)));
        const Reference keywords = checked(PyDict_New());
        if (name != nullptr) set(keywords, name, added());
        const Reference answer = checked(PyObject_Call(notify_, positional.get(), keywords.get()));
        control.should_training_stop = is_true(answer.get(), 0);
        control.should_epoch_stop = is_true(answer.get(), 1);
        control.should_save = is_true(answer.get(), 2);
        control.should_evaluate = is_true(answer.get(), 3);
        control.should_log = is_true(answer.get(), 4);
    });
}

void PythonCallback::on_train_begin(const TrainerState& state, TrainerControl& control) {
    told_ = 0;
    tell("on_train_begin", state, control);
}
void PythonCallback::on_epoch_begin(const TrainerState& state, TrainerControl& control) {
    tell("on_epoch_begin", state, control);
}
void PythonCallback::on_step_begin(const TrainerState& state, TrainerControl& control) {
    tell("on_step_begin", state, control);
}
void PythonCallback::on_step_end(const TrainerState& state, TrainerControl& control) {
    tell("on_step_end", state, control);
}
void PythonCallback::on_epoch_end(const TrainerState& state, TrainerControl& control) {
    tell("on_epoch_end", state, control);
}
void PythonCallback::on_log(const TrainerState& state, TrainerControl& control,
                            const std::map<std::string, double>& logs) {
    tell("on_log", state, control, "logs", [&] { return to_dict(logs); });
}
void PythonCallback::on_evaluate(const TrainerState& state, TrainerControl& control,
                                 const std::map<std::string, double>& metrics) {
    tell("on_evaluate", state, control, "metrics", [&] { return to_dict(metrics); });
}
void PythonCallback::on_save(const TrainerState& state, TrainerControl& control,
                             const std::string& checkpoint) {
    tell("on_save", state, control, "checkpoint", [&] { return to_text(checkpoint); });
}
void PythonCallback::on_train_end(const TrainerState& state, TrainerControl& control) {
    tell("on_train_end", state, control);
}

}  // namespace drover::python
