#include <gtest/gtest.h>

#include <map>

#include "hybrid_trainer/models/model_family.h"
#include "src/trainer/model_trainable.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

/// Second-moment scales rounded as if they were signed would become zeros for gradients that are
/// relatively small. The next update would then be divided by epsilon alone.
TEST(RoundedState, PredictDoesNotRoundEightBitStateAgain) {
  HybridTrainerConfig config = tiny_config();
  config.model.vocabulary = 20;
  config.model.width = 64;
  config.data.batch_size = 4;
  config.optimizer.name = "adamw";
  config.optimizer.state_bits = 8;
  config.predict_aware_memory.offload_strategy = "compress_in_place";
  const Stream stream(MemoryPool::create("device"));
  const auto model = make_model(config.model, 3, stream);
  ModelTrainable trainable(*model, config, stream, MemoryPool::create("host"),
                           [](const std::string&) {});
  const auto zeros = [&] {
    return Tensor::zeros({4, config.data.sequence_length}, DType::kI32, MemoryKind::kData, stream);
  };
  trainable.enter_phase(Phase::kFull);
  trainable.wait_for_gradient(token_batch(zeros(), zeros()));
  trainable.apply_gradient();
  const auto state_of = [&] {
    State state;
    trainable.save(state);
    std::map<std::string, std::string> bytes;
    for (const auto& [name, tensor] : state.tensors) {
      if (name.starts_with("optimizer."))
        bytes[name] = {static_cast<const char*>(tensor.raw()), tensor.bytes()};
    }
    return bytes;
  };
  const auto before = state_of();
  trainable.enter_phase(Phase::kPredict);
  trainable.enter_phase(Phase::kCorrect);
  int same = 0, rounded = 0;
  for (const auto& [name, bytes] : state_of()) {
    const bool is_coded = name.ends_with(".codes") || name.ends_with(".scales");
    (bytes == before.at(name) ? same : rounded) += 1;
    EXPECT_TRUE(!is_coded || bytes == before.at(name)) << name;
  }
  EXPECT_GT(same, 0);
  EXPECT_GT(rounded, 0) << "small weights have f32 state";
}

}  // namespace
}  // namespace hybrid_trainer
