// Depth of calls between a trainer's step and the model.
#include <execinfo.h>
#include <gtest/gtest.h>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

int frames_here() {
  void* frames[256];
  return backtrace(frames, 256);
}

/// A model that records the depth at which it is called.
class CountedModel final : public LossModel {
 public:
  explicit CountedModel(LossModel& model) : model_(model) {}
  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Stream& stream) override {
    deepest = std::max(deepest, frames_here());
    return model_.forward(batch, gradient_scale, tape, stream);
  }
  void backward(const Batch& batch, ActivationTape& tape, const Stream& stream) override {
    model_.backward(batch, tape, stream);
  }
  void visit_parameters(const ParameterVisitor& visit) override { model_.visit_parameters(visit); }

  int deepest = 0;

 private:
  LossModel& model_;
};

TEST(StepFrames, AtMostNineBetweenTrainerAndModel) {
  for (const std::int64_t micro_batches : {1, 2}) {
    HybridTrainerConfig config = tiny_config();
    config.model.vocabulary = 20;
    config.data.batch_size = 2;
    config.gradient_accumulation.micro_batches = micro_batches;
    config.phases.warmup_steps = 2;
    config.phases.max_predict_steps = 4;
    const Stream stream(MemoryPool::create("device"));
    const auto made = make_model(config.model, 3, stream);
    CountedModel model(*made);
    HybridTrainer trainer(model, config, stream);
    const Shape shape{2 * micro_batches, config.data.sequence_length};
    const Batch batch = token_batch(Tensor::zeros(shape, DType::kI32, MemoryKind::kData, stream),
                                    Tensor::zeros(shape, DType::kI32, MemoryKind::kData, stream));
    const int before = frames_here();
    for (int i = 0; i < 4; ++i) trainer.step(batch);
    const int between = model.deepest - before - 1;  // excludes the model's own frame
    EXPECT_LE(between, 9) << micro_batches;
    EXPECT_GE(between, 4) << micro_batches;
  }
}

}  // namespace
}  // namespace hybrid_trainer
