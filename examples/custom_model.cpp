// Trains a custom model in phases: a multilayer perceptron classifies points of three spirals.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/loss.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"

using namespace hybrid_trainer;

namespace {

constexpr std::int64_t kClasses = 3, kWidth = 64, kBatch = 128, kSteps = 600;

/// Perceptron with two hidden layers and GELU. Saves tensors for backward on the tape; otherwise
/// stateless.
class Perceptron final : public LossModel {
 public:
  explicit Perceptron(const Stream& stream)
      : first_("first", 2, kWidth, stream),
        second_("second", kWidth, kWidth, stream),
        last_("last", kWidth, kClasses, stream) {
    initialize_normal(first_.weight(), 1.0, 1, stream);
    initialize_normal(second_.weight(), 1.0 / std::sqrt(kWidth), 1, stream);
    initialize_normal(last_.weight(), 1.0 / std::sqrt(kWidth), 1, stream);
  }

  Tensor scores(const Tensor& points, ActivationTape& tape, const Stream& stream) {
    const Tensor once = active(first_.forward(points, tape, stream), tape, stream);
    const Tensor twice = active(second_.forward(once, tape, stream), tape, stream);
    return last_.forward(twice, tape, stream);
  }

  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Stream& stream) override {
    const Tensor scores = this->scores(batch.at("points"), tape, stream);
    const Tensor losses =
        Tensor::empty({batch.size()}, DType::kF32, MemoryKind::kWorkspace, stream);
    const float scale = tape.keeps() ? gradient_scale / static_cast<float>(batch.size()) : 0.0f;
    kernels::softmax_cross_entropy(losses, scores, batch.at("spirals"), kClasses, scale, stream);
    tape.save({ActivationRole::kLossGradient, scores},
              stream);  // replaces the scores by their gradient
    Tensor loss = kernels::empty_result(stream);
    kernels::quotient(loss, losses, static_cast<double>(losses.elements()), stream);
    return loss;
  }

  void backward(const Batch&, ActivationTape& tape, const Stream& stream) override {
    const Tensor dscores = tape.take(stream);
    const Tensor dtwice = last_.backward(dscores, tape, stream);
    kernels::gelu_backward(dtwice, dtwice, tape.take(stream), stream);
    const Tensor donce = second_.backward(dtwice, tape, stream);
    kernels::gelu_backward(donce, donce, tape.take(stream), stream);
    first_.backward(donce, tape, stream);
  }

  void visit_parameters(const ParameterVisitor& visit) override {
    for (Linear* layer : {&first_, &second_, &last_}) layer->visit_parameters(visit);
  }

 private:
  static Tensor active(const Tensor& x, ActivationTape& tape, const Stream& stream) {
    const Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
    kernels::gelu_forward(y, x, stream);
    tape.save({ActivationRole::kPreActivation, x}, stream);
    return y;
  }
  Linear first_, second_, last_;
};

/// Makes noisy points of three interleaved spirals. Points depend only on `size` and `step`. The
/// tensors of the batch have the names that the model reads.
Batch spirals(std::int64_t size, std::uint64_t step, const Stream& stream) {
  const Tensor points = Tensor::empty({size, 2}, DType::kF32, MemoryKind::kData, stream),
               labels = Tensor::empty({size}, DType::kI32, MemoryKind::kData, stream);
  for (std::int64_t i = 0; i < size; ++i) {
    const auto words = philox({5, step, 0}, static_cast<std::uint64_t>(i));
    const auto label = static_cast<std::int32_t>(i % kClasses);
    const float radius = 0.1f + 0.9f * to_unit_float(words[0]);
    const float angle =
        2 * std::numbers::pi_v<float> * (radius + static_cast<float>(label) / kClasses) +
        0.4f * (to_unit_float(words[1]) - 0.5f);
    points.data<float>()[2 * i] = 2 * radius * std::cos(angle);
    points.data<float>()[2 * i + 1] = 2 * radius * std::sin(angle);
    labels.data<std::int32_t>()[i] = label;
  }
  return Batch({{"points", points}, {"spirals", labels}});
}

double accuracy(Perceptron& model, const Batch& batch, const Stream& stream) {
  ForwardOnlyTape tape(Pass{.training = false});
  const Tensor scores = model.scores(batch.at("points"), tape, stream);
  const auto* const labels = batch.at("spirals").data<std::int32_t>();
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    const float* row = scores.data<float>() + i * kClasses;
    right += std::max_element(row, row + kClasses) - row == labels[i] ? 1 : 0;
  }
  return static_cast<double>(right) / static_cast<double>(batch.size());
}

}  // namespace

int main() try {
  const auto config = HybridTrainerConfig::builder()
                          .data_config({.batch_size = kBatch, .sequence_length = 1})
                          .steps(kSteps)
                          .phase_config({.warmup_steps = 60,
                                         .full_steps = 20,
                                         .max_predict_steps = 10,
                                         // At 0.005 a run this short would never probe.
                                         .skip_backward = {.trial_share = 0.05}})
                          .optimizer_config({.name = "adamw", .learning_rate = 1e-2})
                          .schedule_config({.warmup_steps = 20})
                          .mixed_precision_config(MixedPrecisionConfig::conservative())
                          .build();
  const Stream stream(MemoryPool::create("device"));
  Perceptron model(stream);
  HybridTrainer trainer(model, config, stream);

  const Batch unseen = spirals(3000, 1 << 20, stream);
  const double before = accuracy(model, unseen, stream);
  while (trainer.steps_done() < kSteps) {
    trainer.step(spirals(kBatch, static_cast<std::uint64_t>(trainer.steps_done()), stream));
  }
  const double after = accuracy(model, unseen, stream);

  std::printf("accuracy %.1f %% before, %.1f %% after\n", 100 * before, 100 * after);
  bool all_phases = true;
  for (const Phase phase : kAllPhases) {
    const std::int64_t steps = trainer.machine().statistics().of(phase).steps;
    std::printf("%-8s %4d steps\n", name_of(phase), static_cast<int>(steps));
    all_phases = all_phases && steps > 0;
  }
  return all_phases && after > 0.9 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return static_cast<int>(error.code());
}
