// Tests predict_aware_memory.offload_strategy: drop_and_reinitialize.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/trainer/trainable_subject.h"

namespace hybrid_trainer {
namespace {

TEST(DroppedState, EightBitStateRestartsFromZero) {
  HybridTrainerConfig config = config_of("adamw", 4, 1);
  config.model.width = 64;
  config.optimizer.state_bits = 8;
  config.predict_aware_memory.offload_strategy = "drop_and_reinitialize";
  Subject setup(config);
  setup.trainable.enter_phase(Phase::kFull);
  setup.trainable.wait_for_gradient(setup.batch(0));
  setup.trainable.apply_gradient();
  setup.trainable.enter_phase(Phase::kPredict);
  setup.trainable.enter_phase(Phase::kCorrect);
  State state;
  setup.trainable.save(state);
  EXPECT_EQ(state.integers["optimizer.steps_taken"], 0);
  int codes = 0;
  for (const auto& [name, tensor] : state.tensors) {
    if (!name.starts_with("optimizer.")) continue;
    codes += tensor.dtype() == DType::kU8;
    const auto* const bytes = static_cast<const std::uint8_t*>(tensor.raw());
    EXPECT_TRUE(std::all_of(bytes, bytes + tensor.bytes(), [](auto b) { return b == 0; })) << name;
  }
  EXPECT_GT(codes, 0);
}

TEST(DroppedState, ResumeRestartsStepCountUnderAnyStrategy) {
  HybridTrainerConfig dropping = config_of("adamw", 4, 1);
  dropping.predict_aware_memory.offload_strategy = "drop_and_reinitialize";
  Subject run(dropping);
  run.trainable.enter_phase(Phase::kFull);
  for (std::uint64_t i = 0; i < 3; ++i) {
    run.trainable.wait_for_gradient(run.batch(i));
    run.trainable.apply_gradient();
  }
  run.trainable.enter_phase(Phase::kPredict);
  State state;
  run.trainable.save(state);
  run.trainable.release_after_save();
  for (const char* strategy : {"cpu_offload", "none", "drop_and_reinitialize"}) {
    HybridTrainerConfig config = dropping;
    config.predict_aware_memory.offload_strategy = strategy;
    Subject resumed(config);
    resumed.trainable.load(state);
    resumed.trainable.enter_phase(Phase::kPredict);
    resumed.trainable.enter_phase(Phase::kCorrect);
    resumed.trainable.wait_for_gradient(resumed.batch(3));
    resumed.trainable.apply_gradient();
    State next;
    resumed.trainable.save(next);
    EXPECT_EQ(next.integer("optimizer.steps_taken"), 1) << strategy;
  }
}

}  // namespace
}  // namespace hybrid_trainer
