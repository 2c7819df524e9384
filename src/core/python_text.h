#pragma once

#include <string>
#include <string_view>

/// Numbers as Python writes them: in the files that Hugging Face's tools read, and in its log lines.
namespace drover {

/// repr(float): the shortest digits that read back as the same number; an exponent below 1e-4 and from 1e16
/// on; ".0" after whole numbers; inf, -inf, nan.
std::string python_float(double value);

/// round(value, digits): the decimal number nearest to the exact value of `value`.
double python_round(double value, int digits);

/// f"{value:.4g}" for `digits` = 4.
std::string python_general(double value, int digits);

/// str(datetime.timedelta(seconds=…)) with the given whole seconds: "0:01:05", "1 day, 2:03:04".
std::string python_timedelta(long long seconds);

}  // namespace drover
