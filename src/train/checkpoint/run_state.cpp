#include "train/checkpoint/run_state.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"

namespace drover {

Json LoopState::json() const {
    Json json = {{"step", step},
                 {"schedule_steps", schedule_steps},
                 {"last_logged_step", last_logged_step},
                 {"loss_sum", static_cast<double>(loss_sum)},
                 {"total_loss", total_loss},
                 {"cursor", {{"epoch", epoch}, {"samples", samples}}},
                 {"seeds", {{"seed", seed}, {"data_seed", data_seed ? Json(*data_seed) : Json(nullptr)}}}};
    if (predicted.micro_batches > 0)
        json["predicted"] = {{"entropy_sum", predicted.entropy_sum},
                             {"accuracy_sum", predicted.accuracy_sum},
                             {"micro_batches", predicted.micro_batches}};
    return json;
}

LoopState LoopState::from(const Json& json) {
    LoopState state{.step = json.at("step"),
                    .schedule_steps = json.at("schedule_steps"),
                    .last_logged_step = json.at("last_logged_step"),
                    .loss_sum = static_cast<float>(json.at("loss_sum").get<double>()),
                    .total_loss = json.at("total_loss"),
                    .epoch = json.at("cursor").at("epoch"),
                    .samples = json.at("cursor").at("samples"),
                    .seed = json.at("seeds").at("seed"),
                    .data_seed = std::nullopt};
    if (const auto predicted = json.find("predicted"); predicted != json.end()) {
        // JSON has null for what is not a number.
        const auto sum = [&](const char* key) {
            const Json& value = predicted->at(key);
            return value.is_null() ? std::nan("") : value.get<double>();
        };
        state.predicted = {.entropy_sum = sum("entropy_sum"),
                           .accuracy_sum = sum("accuracy_sum"),
                           .micro_batches = predicted->at("micro_batches")};
    }
    if (const Json& seed = json.at("seeds").at("data_seed"); !seed.is_null())
        state.data_seed = seed.get<std::uint64_t>();
    return state;
}

Json EngineState::json() const {
    Json scaling = nullptr;
    if (scaler) scaling = {{"scale", static_cast<double>(scaler->scale)}, {"good_steps", scaler->good_steps}};
    return {{"updates", updates}, {"loss_scaler", scaling}};
}

EngineState EngineState::from(const Json& json) {
    EngineState state{.updates = json.at("updates"), .scaler = std::nullopt};
    if (const Json& scaling = json.at("loss_scaler"); !scaling.is_null())
        state.scaler = Scaler{.scale = static_cast<float>(scaling.at("scale").get<double>()),
                              .good_steps = scaling.at("good_steps")};
    return state;
}

RunState RunState::parse(const Json& json, std::string_view where) {
    RunState state;
    try {
        state.engine = EngineState::from(json.at("engine"));
        if (const Json& loop = json.at("loop"); !loop.is_null()) state.loop = LoopState::from(loop);
    } catch (const nlohmann::json::exception& failure) {
        throw Error(fmt::format("{} is not the state of a training run: {}.", where, failure.what()),
                    "Resume from another checkpoint.");
    }
    const LoopState loop = state.loop.value_or(LoopState{});
    const bool possible = loop.step >= 0 && loop.schedule_steps >= 0 && loop.epoch >= 0 &&
                          loop.samples >= 0 && loop.last_logged_step >= 0 &&
                          loop.last_logged_step <= loop.step && state.engine.updates >= 0;
    if (!possible)
        throw Error(fmt::format("{} holds a count that cannot be.", where),
                    "Resume from another checkpoint.");
    return state;
}

}  // namespace drover
