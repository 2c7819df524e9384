#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string_view>

#include "backend/backend.h"
#include "support/golden.h"
#include "support/test_backend.h"

namespace drover::test {

/// Owns tensors on a backend's device and runs operations on them, so that a test reads the same for any
/// device.
class Workbench {
  public:
    Workbench() : backend_(make_test_backend()) {}
    explicit Workbench(const BackendSettings& settings) : backend_(make_test_backend(settings)) {}
    explicit Workbench(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

    Backend& backend() { return *backend_; }

    /// A packed device tensor filled with NaN (floating) or −7 (integers).
    Tensor make(DType dtype, const Shape& shape) { return put(OwnedTensor(dtype, shape)); }

    /// A device copy of a packed host tensor.
    Tensor put(const Tensor& host) {
        memory_.push_back(backend_->allocate(host.bytes() + 1));
        const Tensor device(memory_.back().get(), host.dtype(), host.shape(), backend_->device());
        backend_->copy(backend_->main_stream(), host, device);
        return device;
    }

    /// A device copy, converted to `dtype`.
    Tensor put(const Tensor& host, DType dtype) { return put(OwnedTensor::converted(host, dtype)); }

    template <class T>
    Tensor put(std::initializer_list<T> values) {
        return put(Tensor::of(values.begin(), {static_cast<std::int64_t>(values.size())}));
    }

    /// A host copy of a packed device tensor.
    OwnedTensor get(const Tensor& device) {
        OwnedTensor host(device.dtype(), device.shape());
        backend_->copy(backend_->main_stream(), device, host);
        backend_->synchronize(backend_->main_stream());
        return host;
    }

    /// Its elements.
    std::vector<double> values_of(const Tensor& device) { return values(get(device)); }

    template <class Operation>
    void run(const Operation& operation) {
        backend_->run(backend_->main_stream(), operation);
        backend_->synchronize(backend_->main_stream());
        operations_run_.insert(operation_name(operation));
    }

    /// The names of all operations that were run.
    const std::set<std::string_view>& operations_run() const { return operations_run_; }

  private:
    std::unique_ptr<Backend> backend_;
    std::set<std::string_view> operations_run_;
    std::deque<MemoryBlock> memory_;
};

}  // namespace drover::test
