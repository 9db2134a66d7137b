#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "hybrid_trainer/core/random.h"
#include "tests/support/model_folders.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

/// Trains on preference pairs with the code of `hybrid finetune`.
class CudaPreferenceTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    const Stream stream(MemoryPool::create("test"));
    HybridTrainerConfig shape = tiny_config();
    shape.model.family = "llama";
    shape.model.context = 32;
    shape.model.vocabulary = 256;
    export_hugging_face(*make_model(shape.model, 5, stream), nullptr, scratch_ / "model", stream);
    write_text(scratch_ / "model/tokenizer.json", R"({"type":"bytes"})");
    std::string lines;
    for (std::uint64_t i = 0; i < 12; ++i) {
      const auto text = [&](std::uint64_t place, std::size_t count) {
        return std::string(count,
                           static_cast<char>('a' + random_below({i}, place, std::uint64_t{20})));
      };
      lines += concat(R"({"prompt":")", text(0, 3), R"(","chosen":")", text(1, 2 + i % 3),
                      R"(x","rejected":")", text(2, 5), "\"}\n");
    }
    write_text(scratch_ / "pairs.jsonl", lines);
  }
  std::vector<StepRecord> train(const std::string& objective, const std::string& device) {
    HybridTrainerConfig config = tiny_config();
    config.model = read_hugging_face_model_config(scratch_ / "model", 0);
    config.objective = objective;
    config.device = device;
    config.data.batch_size = 2;
    config.data.sequence_length = 32;
    config.data.layout = "packed";
    config.phases.max_predict_steps = 0;
    config.training.steps = 5;
    config.mixed_precision = MixedPrecisionConfig::conservative();
    std::ostringstream console;
    const auto run = scratch_ / concat(objective, device);
    run_training({.config = config,
                  .data = scratch_ / "pairs.jsonl",
                  .run = run,
                  .init_from = scratch_ / "model",
                  .command = "test"},
                 console);
    return records_of(run);
  }
  const TemporaryFolder scratch_;
};

TEST_F(CudaPreferenceTraining, MatchesCpuForDpoAndOrpo) {
  for (const char* objective : {"dpo", "orpo"}) {
    const auto wanted = train(objective, "cpu"), found = train(objective, "cuda");
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(found[i].loss, wanted[i].loss, 1e-5 * wanted[i].loss) << objective << i;
      EXPECT_NEAR(*found[i].gradient_norm, *wanted[i].gradient_norm, 1e-4) << objective << i;
      EXPECT_NEAR(*found[i].reward_margin, *wanted[i].reward_margin, 1e-5) << objective << i;
    }
    EXPECT_EQ(*found.back().preference_accuracy, *wanted.back().preference_accuracy) << objective;
    EXPECT_NEAR(*found.back().validation_reward_margin, *wanted.back().validation_reward_margin,
                1e-5);
  }
}

}  // namespace
}  // namespace hybrid_trainer
