#include "model/router_product.h"

#include "model/adapter_dropout.h"

namespace drover {

bool RouterProduct::drops() const {
    return adapters_drop(c_);
}

void RouterProduct::drop(const Tensor& x, const Tensor& y) const {
    drop_adapter_input(c_, block_, BlockStorage::router,
                       {.x = x, .y = y, .first_row = c_.batch.noise->first_token, .columns = x.size(1)});
}

Tensor RouterProduct::dropped(const Tensor& x) const {
    return c_.scratch.dropped.rows(0, x.numel()).view(x.shape());
}

Tensor RouterProduct::half(std::int64_t tokens, int which) const {
    const std::int64_t size = tokens * a().size(0);
    return c_.scratch.dadapter_inputs.rows(which * size, size).view({tokens, a().size(0)});
}

void RouterProduct::scale(const Tensor& t) const {
    c_.run(Scale{.x = t, .factor = c_.adapters->scale(block_, BlockStorage::router_b)});
}

void RouterProduct::make_t(const Tensor& x) const {
    if (drops()) drop(x, dropped(x));
    const Tensor t = this->t(x.size(0));
    c_.run(Gemm::forward(drops() ? dropped(x) : x, a(), t));
    scale(t);
}

void RouterProduct::forward(const Tensor& x, const Tensor& logits) const {
    Gemm product = Gemm::forward(x, router(), logits);
    if (a()) {
        make_t(x);
        c_.run(Gemm::forward(t(x.size(0)), b(), logits));
        product.accumulate = true;
    }
    c_.run(product);
}

void RouterProduct::weight_gradients(const UnitGradients& g, const Tensor& dlogits, const Tensor& x) const {
    if (const Tensor& dweight = g.tensors[BlockStorage::router])
        c_.run(Gemm::weight_gradient(dlogits, x, dweight, g.accumulate));
    if (!a()) return;
    const Tensor t = this->t(x.size(0)), dt = this->dt(x.size(0));
    make_t(x);
    c_.run(Gemm::weight_gradient(dlogits, t, g.tensors[BlockStorage::router_b], g.accumulate));
    c_.run(Gemm::data_gradient(dlogits, b(), dt));
    scale(dt);
    c_.run(
        Gemm::weight_gradient(dt, drops() ? dropped(x) : x, g.tensors[BlockStorage::router_a], g.accumulate));
}

void RouterProduct::add_data_gradient(const Tensor& dlogits, const Tensor& dx) const {
    const auto add = [&](const Tensor& dy, const Tensor& weight, const Tensor& to, bool accumulate) {
        Gemm product = Gemm::data_gradient(dy, weight, to);
        product.accumulate = accumulate;
        c_.run(product);
    };
    add(dlogits, router(), dx, true);
    if (!a()) return;
    const Tensor dt = this->dt(dx.size(0));
    if (!drops()) return add(dt, a(), dx, true);
    const Tensor part = dropped(dx);
    add(dt, a(), part, false);
    drop(part, part);
    c_.run(Add{.into = dx, .x = part});
}

}  // namespace drover
