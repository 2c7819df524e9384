#include "train/callbacks/log_printer.h"

#include <fmt/format.h>

#include "core/console.h"
#include "core/python_json.h"
#include "core/python_text.h"

namespace drover {
namespace {

Json as_version_4(const Json& record, bool short_epoch) {
    Json shown = Json::object();
    for (const auto& [key, value] : record.items()) {
        if (key == "total_flos") continue;
        if (key == "loss")
            shown[key] = python_round(value.get<double>(), 4);
        else if (key == "epoch" && short_epoch && value.is_number_float())
            shown[key] = python_round(value.get<double>(), 2);
        else
            shown[key] = value;
    }
    return shown;
}

Json as_version_5(const Json& record) {
    Json shown = Json::object();
    for (const auto& [key, value] : record.items())
        if (key != "total_flos")
            shown[key] = value.is_number_float() ? Json(python_general(value.get<double>(), 4)) : value;
    return shown;
}

}  // namespace

std::string log_line(const Json& record, std::int64_t step, LogFormat format, LogStyle style) {
    if (format == LogFormat::hugging_face_4)
        return python_repr(as_version_4(record, style == LogStyle::beside_bar));
    if (format == LogFormat::hugging_face_5) return python_repr(as_version_5(record));
    Json with_step = record;
    with_step["step"] = step;
    return python_json_line(with_step);
}

void LogPrinter::on_log(TrainerView& view, const Json& record) {
    if (!training_ && format_ != LogFormat::json && style_ == LogStyle::beside_bar) return;
    print_log(out_, "{}\n", log_line(record, view.state.global_step, format_, style_));
}

}  // namespace drover
