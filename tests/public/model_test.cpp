#include "public/api_fixture.h"

namespace api {
namespace {

class PublicModel : public PublicApi {
  protected:
    fs::path saved(const drover::CausalLM& model, const std::string& name) const {
        model.save_pretrained(folder_ / name);
        return folder_ / name;
    }
    void expect_same_weights(const fs::path& a, const fs::path& b) const {
        EXPECT_EQ(bytes_of(a / "model.safetensors"), bytes_of(b / "model.safetensors"));
    }
};

TEST_F(PublicModel, IsSavedAsItWasLoaded) {
    const fs::path folder =
        saved(drover::CausalLM::from_pretrained(model_id(), {.torch_dtype = "auto"}), "saved");
    expect_same_weights(folder, model_id());
    EXPECT_EQ(json_of(folder / "config.json"), json_of(fs::path(model_id()) / "config.json"));
    EXPECT_TRUE(fs::exists(folder / "generation_config.json"));
    EXPECT_EQ(said_by(folder.string()), said_by(model_id()));
    const auto wide = drover::CausalLM::from_pretrained(model_id(), {.torch_dtype = "float32"});
    EXPECT_EQ(json_of(saved(wide, "wide") / "config.json").at("dtype"), "float32");
}

TEST_F(PublicModel, IsSavedAsItWasTrained) {
    const auto model = this->model();
    fs::path trained;
    {
        drover::Trainer trainer{quotes_run(model)};
        trainer.train();
        trainer.save_model(output());
        trained = saved(model, "trained");
    }
    for (const fs::path& folder : {trained, saved(model, "left")}) {
        expect_same_weights(folder, output());
        for (const char* file : {"config.json", "generation_config.json"})
            EXPECT_EQ(bytes_of(folder / file), bytes_of(fs::path(output()) / file));
    }
    EXPECT_NE(bytes_of(trained / "model.safetensors"),
              bytes_of(saved(this->model(), "fresh") / "model.safetensors"));
}

TEST_F(PublicModel, HasTrainedAdaptersMerged) {
    const auto model = this->model();
    const fs::path adapters = folder_ / "adapters";
    fs::path merged;
    {
        drover::Trainer trainer{
            quotes_run(model, {{"use_peft", "yes"}, {"lora_r", "4"}, {"use_rslora", "yes"}})};
        trainer.train();
        trainer.save_model(adapters);
        merged = saved(model, "merged");
        EXPECT_EQ(said_by(model), said_by(merged.string()));
    }
    EXPECT_TRUE(fs::exists(adapters / "adapter_model.safetensors"));
    EXPECT_FALSE(fs::exists(adapters / "model.safetensors"));
    EXPECT_EQ(json_of(adapters / "adapter_config.json").at("base_model_name_or_path"), model_id());
    EXPECT_NE(bytes_of(merged / "model.safetensors"),
              bytes_of(saved(this->model(), "fresh") / "model.safetensors"));
    // The Trainer is gone.
    expect_same_weights(saved(model, "kept"), merged);
}

TEST_F(PublicModel, IsMadeFromAConfig) {
    const std::string text = bytes_of(fs::path(model_id()) / "config.json");
    const auto model = drover::CausalLM::from_config(text, {.seed = 5});
    EXPECT_EQ(model.num_parameters(), this->model().num_parameters());
    EXPECT_EQ(model.model_type(), "llama");
    const fs::path first = saved(model, "first");
    expect_same_weights(first, saved(drover::CausalLM::from_config(model_id(), {.seed = 5}), "same"));
    EXPECT_NE(bytes_of(first / "model.safetensors"),
              bytes_of(saved(drover::CausalLM::from_config(model_id(), {.seed = 6}), "other") /
                       "model.safetensors"));
    EXPECT_EQ(said_by(model), said_by(first.string()));

    // The Trainer takes these weights, whatever its own seed is, and the order of the rows from its seed.
    const auto losses = [&](const drover::CausalLM& trained) {
        drover::TrainerParts parts = quotes_run(trained);
        parts.args.seed = 9;
        parts.args.logging_steps = 1;
        return drover::Trainer{parts}.train().losses;
    };
    EXPECT_EQ(losses(model), losses(drover::CausalLM::from_pretrained(first)));
}

TEST_F(PublicModel, SaysWhatIsWrongWithAConfig) {
    expect_part(message_of([] { drover::CausalLM::from_config("{\"model_type\": \"bert\"}"); }), "bert");
    expect_part(message_of([] { drover::CausalLM::from_config("no/such/config"); }), "no/such/config");
    expect_part(message_of([] { drover::CausalLM::from_config(" {"); }), "from_config()");
    expect_part(message_of([&] { drover::CausalLM::from_config(model_id(), {.torch_dtype = "int8"}); }),
                "int8");
}

}  // namespace
}  // namespace api
