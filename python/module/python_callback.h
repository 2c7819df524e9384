#pragma once

#include <drover/drover.h>

#include <functional>

#include "python.h"

namespace drover::python {

/// Passes the events of a run on to Python, and looks between two steps whether the run is to stop.
class PythonCallback final : public TrainerCallback {
  public:
    /// For as long as this lives, `notify` is told of the events: notify(event, state, control, **added) →
    /// control. State is a dict, control a tuple of the switches in their order. None: nobody is told.
    class Listening {
      public:
        Listening(PythonCallback& callback, PyObject* notify) : callback_(callback) {
            callback_.notify_ = notify == Py_None ? nullptr : notify;
        }
        ~Listening() { callback_.notify_ = nullptr; }
        Listening(const Listening&) = delete;
        Listening& operator=(const Listening&) = delete;

      private:
        PythonCallback& callback_;
    };

    void on_train_begin(const TrainerState& state, TrainerControl& control) override;
    void on_epoch_begin(const TrainerState& state, TrainerControl& control) override;
    void on_step_begin(const TrainerState& state, TrainerControl& control) override;
    void on_step_end(const TrainerState& state, TrainerControl& control) override;
    void on_epoch_end(const TrainerState& state, TrainerControl& control) override;
    void on_log(const TrainerState& state, TrainerControl& control,
                const std::map<std::string, double>& logs) override;
    void on_evaluate(const TrainerState& state, TrainerControl& control,
                     const std::map<std::string, double>& metrics) override;
    void on_save(const TrainerState& state, TrainerControl& control, const std::string& checkpoint) override;
    void on_train_end(const TrainerState& state, TrainerControl& control) override;

  private:
    using Added = std::function<Reference()>;
    void tell(const char* event, const TrainerState& state, TrainerControl& control,
              const char* name = nullptr, const Added& added = {});
    Reference state_dict(const TrainerState& state);

    PyObject* notify_ = nullptr;  ///< borrowed from the caller of train()
    std::size_t told_ = 0;        ///< records of the log that Python has
};

}  // namespace drover::python
