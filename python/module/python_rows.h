#pragma once

#include <drover/drover.h>

#include "errors.h"
#include "python.h"

namespace drover::python {

/// A dataset written in Python: an object with __len__ and __getitem__, whose rows are mappings with
/// "input_ids" and perhaps "labels". The library reads it on threads of its own, which take the GIL for a
/// row.
class PythonRows final : public TokenDataset {
  public:
    /// Called with the GIL held. The caller keeps `object` and `failure` as long as this is used: an
    /// exception of the object is kept there. (Nothing here may need the GIL to be destroyed.)
    PythonRows(PyObject* object, KeptException& failure);

    std::int64_t size() const override { return size_; }
    TokenRow row(std::int64_t index) const override;

  private:
    PyObject* object_;
    KeptException& failure_;
    std::int64_t size_;
};

}  // namespace drover::python
