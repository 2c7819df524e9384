#pragma once

#include <drover/drover.h>

#include <memory>

#include "errors.h"
#include "python.h"

namespace drover::python {

template <class Object>
constexpr const char* handle_name = nullptr;
template <>
inline constexpr const char* handle_name<Tokenizer> = "drover.Tokenizer";
template <>
inline constexpr const char* handle_name<CausalLM> = "drover.CausalLM";
template <>
inline constexpr const char* handle_name<Split> = "drover.Split";

/// What Python holds of a C++ object: an opaque capsule, of which the package's classes hold one each.
template <class Object>
struct Handle {
    static constexpr const char* name = handle_name<Object>;

    static Reference make(Object object) {
        auto owned = std::make_unique<Object>(std::move(object));
        Reference capsule = checked(PyCapsule_New(owned.get(), name, destroy));
        owned.release();
        return capsule;
    }
    static Object& get(PyObject* capsule) {
        void* const pointer = PyCapsule_GetPointer(capsule, name);
        if (pointer == nullptr) throw PythonRaised();
        return *static_cast<Object*>(pointer);
    }

  private:
    static void destroy(PyObject* capsule) {
        KeptException on_its_way;  // an object may be dropped while an exception passes
        on_its_way.take();
        delete &get(capsule);
        on_its_way.raise();
    }
};

}  // namespace drover::python
