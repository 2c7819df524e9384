#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "args/arguments.h"
#include "run/settings/run_settings.h"

/// Settings that the commands that train have under the same names.
namespace drover {

std::string text_or_empty(const Arguments& arguments, std::string_view name);
std::optional<std::filesystem::path> optional_path(const Arguments& arguments, std::string_view name);

/// UsageError if --context_parallel_size asks for several processes.
void check_context_parallel(const Arguments& arguments);

OnNonFinite on_non_finite(const Arguments& arguments);

/// Who logs messages, where, and how much; nothing about records.
LogSettings message_settings(const Arguments& arguments);
DeviceSettings device_settings(const Arguments& arguments);
ProfileSettings profile_settings(const Arguments& arguments);

/// The settings as given; `compared` are the names that a resumed run compares with its checkpoint.
SettingsRecord settings_record(const Arguments& arguments, std::span<const std::string_view> compared);

}  // namespace drover
