#include "public/api_fixture.h"

namespace api {
namespace {

/// A run that is stopped and continued, compared with one that is not.
class PublicResume : public PublicApi {
  protected:
    PublicResume() {
        drover::Trainer whole{run(folder_ / "whole")};
        whole.train();
        whole.save_model(folder_ / "whole");
    }

    drover::TrainerParts run(const fs::path& folder, std::int64_t steps = 6) const {
        drover::TrainerParts parts = quotes_run(model());
        parts.args.output_dir = folder;
        parts.args.max_steps = steps;
        parts.args.lr_scheduler_type = "constant";
        parts.args.logging_steps = 1;
        parts.args.save_strategy = "steps";
        parts.args.save_steps = 2;
        return parts;
    }
    std::string checkpoint(int step) const {
        return folder_ / "whole" / ("checkpoint-" + std::to_string(step));
    }
    nlohmann::json losses(const fs::path& folder) const {
        const nlohmann::json state = json_of(folder / "trainer_state.json");
        nlohmann::json found = nlohmann::json::array();
        for (const auto& record : state.at("log_history"))
            if (record.contains("loss")) found.push_back(record);
        EXPECT_FALSE(found.empty()) << folder;
        return found;
    }
    /// The trained model and the records are those of the run that was not stopped.
    void expect_continued(drover::Trainer& trainer, const fs::path& folder,
                          const drover::CausalLM& trained) const {
        EXPECT_EQ(losses(folder), losses(folder_ / "whole"));
        trainer.save_model(folder_ / "continued");
        EXPECT_EQ(bytes_of(folder_ / "continued/model.safetensors"),
                  bytes_of(folder_ / "whole/model.safetensors"));
        EXPECT_EQ(said_by(trained), said_by((folder_ / "whole").string()));
    }
};

TEST_F(PublicResume, ContinuesFromAFolderBitForBit) {
    drover::TrainerParts parts = run(folder_ / "again");
    drover::Trainer trainer{parts};
    const drover::TrainOutput output = trainer.train({.resume_from_checkpoint = checkpoint(2)});
    EXPECT_EQ(output.global_step, 6);
    EXPECT_EQ(output.losses.size(), 6u);
    expect_continued(trainer, folder_ / "again", parts.model);
}

TEST_F(PublicResume, ContinuesFromTheNewestCheckpoint) {
    drover::Trainer{run(folder_ / "stopped", 4)}.train();
    drover::TrainerParts parts = run(folder_ / "stopped");
    drover::Trainer trainer{parts};
    trainer.evaluate();  // with the weights of before, which the checkpoint's then replace
    EXPECT_EQ(trainer.train({.resume_from_checkpoint = true}).global_step, 6);
    expect_continued(trainer, folder_ / "stopped", parts.model);
}

TEST_F(PublicResume, TakesTheCheckpointNotWhatTheModelWasTrainedTo) {
    drover::TrainerParts parts = run(folder_ / "again");
    {
        drover::Trainer other{quotes_run(parts.model)};
        other.train();
    }
    drover::Trainer trainer{parts};
    trainer.train({.resume_from_checkpoint = checkpoint(4)});
    expect_continued(trainer, folder_ / "again", parts.model);
    // The same Trainer once more, from an earlier one; and without, it goes on with what it has.
    trainer.train({.resume_from_checkpoint = checkpoint(2)});
    expect_continued(trainer, folder_ / "again", parts.model);
    EXPECT_EQ(trainer.train().losses.size(), 6u);
    EXPECT_NE(losses(folder_ / "again"), losses(folder_ / "whole"));
}

TEST_F(PublicResume, WarnsOfOtherRows) {
    drover::TrainerParts parts = run(folder_ / "again");
    const auto said = [&] {
        drover::Trainer trainer{parts};
        testing::internal::CaptureStderr();
        trainer.train({.resume_from_checkpoint = checkpoint(4)});
        return testing::internal::GetCapturedStderr();
    };
    EXPECT_EQ(said().find("will differ"), std::string::npos);
    parts.train_dataset = parts.train_dataset.select(0, 100);
    expect_part(said(), "hash of the training text");
}

TEST_F(PublicResume, SaysThatThereIsNothingToContinue) {
    const auto refusal = [&](const drover::TrainOptions& options) {
        return message_of([&] { drover::Trainer{run(folder_ / "none")}.train(options); });
    };
    expect_part(refusal({.resume_from_checkpoint = true}), "holds no complete checkpoint");
    expect_part(refusal({.resume_from_checkpoint = "no/such/folder"}), "no/such/folder is not a folder");
}

TEST_F(PublicResume, ReportsAsAsked) {
    drover::TrainerParts parts = run(folder_ / "reported");
    parts.args.report_to = "tensorboard";
    drover::Trainer{parts}.train();
    bool found = false;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "reported/runs"))
        found |= entry.path().filename().string().find("tfevents") != std::string::npos;
    EXPECT_TRUE(found);
    EXPECT_FALSE(fs::exists(folder_ / "whole/runs"));
    parts.args.report_to = "the_press";
    expect_part(message_of([&] { drover::Trainer{parts}; }), "the_press");
}

}  // namespace
}  // namespace api
