#include "app/bench_data.h"

#include <algorithm>
#include <cmath>

#include "args/command.h"
#include "core/error.h"
#include "core/torch_rng.h"

namespace drover {
namespace {

constexpr std::uint64_t data_seed = 42;

/// Lengths of examples as fine-tuning has them, many short ones and a few long ones: exponential, cut to a
/// row's length.
class ExampleLengths {
  public:
    ExampleLengths(TorchRng& generator, std::int64_t mean, std::int64_t longest)
        : generator_(generator), mean_(static_cast<double>(mean)), longest_(longest) {}

    std::int32_t next() {
        const double uniform = (static_cast<double>(generator_.next32()) + 1) / 0x1p32;
        const std::int64_t length = std::llround(-mean_ * std::log(uniform));
        return static_cast<std::int32_t>(std::clamp<std::int64_t>(length, 2, longest_));
    }

  private:
    TorchRng& generator_;
    double mean_;
    std::int64_t longest_;
};

/// The lengths of each row's examples.
using RowLengths = std::vector<std::vector<std::int32_t>>;

RowLengths row_lengths(const BenchData& data, const BenchShape& shape, TorchRng& generator) {
    RowLengths rows;
    ExampleLengths lengths(generator, data.length, shape.sequence);
    for (std::int64_t row = 0; row < shape.batch; ++row) {
        if (data.length == 0) {
            rows.push_back({static_cast<std::int32_t>(shape.sequence)});
            continue;
        }
        rows.push_back({lengths.next()});
        if (!data.packed) continue;
        // The first that no longer fits ends the row.
        std::int64_t left = shape.sequence - rows.back()[0];
        for (std::int32_t next = lengths.next(); next <= left; next = lengths.next()) {
            rows.back().push_back(next);
            left -= next;
        }
    }
    return rows;
}

/// As long as the longest row: a collator pads no further.
std::int64_t longest_row(const RowLengths& rows) {
    std::int64_t longest = 0;
    for (const std::vector<std::int32_t>& row : rows) {
        std::int64_t length = 0;
        for (const std::int32_t example : row) length += example;
        longest = std::max(longest, length);
    }
    return longest;
}

}  // namespace

void BenchData::add_to(const Command& command) {
    command
        .add_option("--targets", targets,
                    "share of the positions that have a label, those at the end of an example; the "
                    "vocabulary's products are computed, and count as FLOP, for these alone")
        .within(0.0, 1.0);
    const Flag lengths =
        command
            .add_option("--example_length", length,
                        "rows hold one example each and then padding; the examples' lengths are random "
                        "(exponential with this mean, at most --seq), and only their tokens count; 0: rows "
                        "are full")
            .between(0, 1 << 20);
    command.add_flag("--packed", packed, "as many examples in a row as fit").needs(lengths);
}

std::vector<Batch> BenchData::batches(const BenchShape& shape, std::int64_t vocab_size) const {
    if (packed && length == 0)
        throw UsageError("--packed is given, and --example_length is 0.",
                         "Say how long the examples are, such as --example_length 200.");
    constexpr int count = 4;
    TorchRng generator(data_seed);
    std::vector<Batch> batches;
    for (int i = 0; i < count; ++i) {
        const RowLengths rows = row_lengths(*this, shape, generator);
        const std::int64_t row_length = longest_row(rows);
        std::vector<std::int32_t> ids(static_cast<std::size_t>(shape.batch * row_length));
        for (std::int32_t& id : ids)
            id = static_cast<std::int32_t>(generator.next32() % static_cast<std::uint32_t>(vocab_size));
        std::vector<std::int32_t> labels = ids;
        for (std::int64_t row = 0; row < shape.batch; ++row) {
            auto example = labels.begin() + row * row_length;
            for (const std::int32_t tokens : rows[static_cast<std::size_t>(row)]) {
                std::fill_n(example, tokens - std::llround(targets * tokens), no_label);
                example += tokens;
            }
        }
        batches.push_back(Batch::packed(shape.batch, row_length, std::move(ids), std::move(labels), rows));
    }
    return batches;
}

double mean_length_around_tokens(const std::vector<Batch>& batches) {
    double tokens = 0, squares = 0;
    const auto add = [&](double length, double times) {
        tokens += times * length;
        squares += times * length * length;
    };
    for (const Batch& batch : batches) {
        if (batch.sequence_length.empty())
            add(static_cast<double>(batch.row_length), static_cast<double>(batch.rows));
        for (const std::int32_t length : batch.sequence_length) add(length, 1);
    }
    return squares / tokens;
}

}  // namespace drover
