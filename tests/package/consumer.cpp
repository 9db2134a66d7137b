#include <cstdio>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"

/// Trains a GPT-2 on a single batch. Succeeds if the loss falls.
int main() {
  using namespace hybrid_trainer;
  const ModelConfig model_config{
      .layers = 1, .heads = 2, .width = 16, .context = 8, .vocabulary = 16};
  const auto config = HybridTrainerConfig::builder()
                          .model_config(model_config)
                          .data_config({.batch_size = 2, .sequence_length = 8})
                          .steps(30)
                          .warmup_steps(10)
                          .build();

  const Stream stream(MemoryPool::create("device"));
  const Batch batch = token_batch(Tensor::zeros({2, 8}, DType::kI32, MemoryKind::kData, stream),
                                  Tensor::zeros({2, 8}, DType::kI32, MemoryKind::kData, stream));
  const auto model = make_model(config.model, 1, stream);
  HybridTrainer trainer(*model, config, stream);
  const double before = trainer.step(batch).loss;
  double after = before;
  while (trainer.steps_done() < 30) after = trainer.step(batch).loss;
  std::printf("loss %.3f -> %.3f\n", before, after);
  return after < before ? 0 : 1;
}
