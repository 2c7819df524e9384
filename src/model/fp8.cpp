#include "model/fp8.h"

#include <fmt/format.h>

#include "core/error.h"
#include "model/config.h"

namespace drover {

Fp8Recipe fp8_recipe_from_name(std::string_view name, std::string_view what) {
    if (name == "none") return Fp8Recipe::none;
    if (name == "tensorwise") return Fp8Recipe::tensorwise;
    if (name == "blockwise") return Fp8Recipe::blockwise;
    throw UsageError(fmt::format("{} is \"{}\".", what, name), "Use none, tensorwise or blockwise.");
}

Fp8Matrix Fp8Room::matrix(Fp8Scales kind, std::int64_t rows, std::int64_t columns,
                          std::int64_t groups) const {
    Fp8Matrix made{.numbers = numbers.rows(0, rows * columns).view({rows, columns}), .scales = {}};
    if (kind != Fp8Scales::one) {
        const Shape shape = shape_of_scales(kind, rows, columns, groups);
        made.scales = scales.rows(0, shape.numel()).view(shape);
    }
    return made;
}

void check_fp8(const ModelConfig& config, int ranks) {
    const auto check = [&](std::string_view name, std::int64_t size) {
        if (size % (16 * ranks) == 0) return;
        const std::string share = ranks > 1 ? fmt::format(" on each of {} ranks", ranks) : "";
        throw UsageError(fmt::format("{} is {}, but FP8 products take multiples of 16{}.", name, size, share),
                         "Train without --fp8.");
    };
    check("hidden_size", config.hidden_size * ranks);
    check("intermediate_size", config.intermediate_size);
    check("head_dim", config.head_dim * ranks);
}

}  // namespace drover
