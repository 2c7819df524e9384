#include "core/python_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/python_json.h"
#include "support/errors.h"

namespace drover {
namespace {

TEST(PythonText, FloatsAsRepr) {
    EXPECT_EQ(python_float(0.1), "0.1");
    EXPECT_EQ(python_float(1), "1.0");
    EXPECT_EQ(python_float(-2.5), "-2.5");
    EXPECT_EQ(python_float(0), "0.0");
    EXPECT_EQ(python_float(-0.0), "-0.0");
    EXPECT_EQ(python_float(5e-5), "5e-05");
    EXPECT_EQ(python_float(1e-4), "0.0001");
    EXPECT_EQ(python_float(0.00012345), "0.00012345");
    EXPECT_EQ(python_float(1e16), "1e+16");
    EXPECT_EQ(python_float(1e15), "1000000000000000.0");
    EXPECT_EQ(python_float(9007199254740993.0), "9007199254740992.0");
    EXPECT_EQ(python_float(1.2345678901234567e+20), "1.2345678901234567e+20");
    EXPECT_EQ(python_float(-1.5e-300), "-1.5e-300");
    EXPECT_EQ(python_float(123456.789), "123456.789");
    EXPECT_EQ(python_float(0.009000000000000001), "0.009000000000000001");
    EXPECT_EQ(python_float(5e-324), "5e-324");
    EXPECT_EQ(python_float(1.7976931348623157e308), "1.7976931348623157e+308");
    EXPECT_EQ(python_float(INFINITY), "inf");
    EXPECT_EQ(python_float(-INFINITY), "-inf");
    EXPECT_EQ(python_float(std::nan("")), "nan");
}

// Python rounds the exact binary value: 2.675 is stored as a little less.
TEST(PythonText, Rounds) {
    EXPECT_EQ(python_round(2.675, 2), 2.67);
    EXPECT_EQ(python_round(0.5, 0), 0.0);
    EXPECT_EQ(python_round(4.18631, 4), 4.1863);
    EXPECT_EQ(python_round(1e22, 4), 1e22);
    EXPECT_TRUE(std::isnan(python_round(std::nan(""), 4)));
}

TEST(PythonText, GeneralFormat) {
    EXPECT_EQ(python_general(1, 4), "1");
    EXPECT_EQ(python_general(4.18635, 4), "4.186");
    EXPECT_EQ(python_general(0.00005, 4), "5e-05");
    EXPECT_EQ(python_general(123456, 4), "1.235e+05");
    EXPECT_EQ(python_general(0, 4), "0");
    EXPECT_EQ(python_general(std::nan(""), 4), "nan");
}

TEST(PythonText, Repr) {
    Json record = Json::object();
    record["loss"] = 4.5;
    record["step"] = 3;
    record["none"] = nullptr;
    record["it's"] = {true, "a'b", "tab\t"};
    EXPECT_EQ(python_repr(record),
              R"({'loss': 4.5, 'step': 3, 'none': None, "it's": [True, "a'b", 'tab\t']})");
}

TEST(PythonText, JsonAsDumps) {
    Json value = Json::object();
    value["b"] = {1, 2.0};
    value["a"] = Json::object();
    value["é"] = "ü\n";
    value["c"] = INFINITY;
    EXPECT_EQ(python_json(value, 2),
              "{\n  \"a\": {},\n  \"b\": [\n    1,\n    2.0\n  ],\n  \"c\": Infinity,\n  \"\\u00e9\": "
              "\"\\u00fc\\n\"\n}");
    EXPECT_EQ(python_json_line(value), R"({"b": [1, 2.0], "a": {}, "\u00e9": "\u00fc\n", "c": Infinity})");
}

TEST(PythonText, ReadsWhatItWrites) {
    Json value = Json::object();
    value["NaN"] = "Infinity \" -Infinity";
    value["values"] = {std::nan(""), INFINITY, -INFINITY, -1.5};
    const Json read = parse_python_json(python_json(value, 4), "text");
    EXPECT_EQ(python_json(read, 4), python_json(value, 4));
    EXPECT_TRUE(read.at("values")[0].is_number_float());
    test::expect_error([&] { parse_python_json("{\"a\": NaNa}", "text"); }, {"text is not valid JSON"});
}

TEST(PythonText, Times) {
    EXPECT_EQ(python_timedelta(0), "0:00:00");
    EXPECT_EQ(python_timedelta(3665), "1:01:05");
    EXPECT_EQ(python_timedelta(86400), "1 day, 0:00:00");
    EXPECT_EQ(python_timedelta(200000), "2 days, 7:33:20");
}

}  // namespace
}  // namespace drover
