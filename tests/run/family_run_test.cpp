#include "src/model_files/hugging_face/hugging_face.h"
#include "tests/run/run_over_ranks.h"

// Runs of the decoder families, with the sizes of their folders in tests/golden.
namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

class FamilyRun : public RunOverRanks, public ::testing::WithParamInterface<const char*> {};

TEST_P(FamilyRun, ResumeAndTwoRanksMatchUninterruptedRun) {
  HybridTrainerConfig training = config();
  training.model = read_hugging_face_model_config(concat(HT_TEST_DATA_DIR, "/", GetParam()), 0);
  training.model.vocabulary = training.model.gemma4.input_rows = 0;  // from the data
  training.gradient_accumulation.micro_batches = 2;
  training.training.steps = 4;
  training.checkpoint.every_steps = 2;
  const fs::path one = scratch_ / "one", two = scratch_ / "two";
  train(training, one, 1);
  const std::string wanted = newest_checkpoint_digest(one);
  ASSERT_GT(fs::remove_all(one / "checkpoints/step-0000000004"), 0u);
  EXPECT_NE(newest_checkpoint_digest(one), wanted);
  train(training, one, 1, true);
  EXPECT_EQ(newest_checkpoint_digest(one), wanted);
  training.distributed.zero = 2;
  train(training, two, 2);
  EXPECT_EQ(newest_checkpoint_digest(two), wanted);
}

INSTANTIATE_TEST_SUITE_P(All, FamilyRun,
                         ::testing::Values("phi3_longrope", "smollm3_a", "olmo2_a", "olmo3_a",
                                           "granite_a", "ministral3_a", "mistral3_images", "glm4_a",
                                           "exaone4_a", "lfm2_a", "lfm2_moe_a", "gemma4_a",
                                           "qwen3_next_moe", "qwen3_5_moe_text"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hybrid_trainer
