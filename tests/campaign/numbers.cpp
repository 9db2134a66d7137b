#include <algorithm>
#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"
#include "tests/campaign/campaign.h"
#include "tests/trainer/rank_outcome.h"

namespace hybrid_trainer {
namespace {

/// One wrong number: in the loss of a forward pass, or in the gradient of a parameter.
struct Injection {
  std::string family, method;
  std::int64_t step = 0;
  bool in_loss = false;
  std::size_t parameter = 0;  // modulo the number of parameters
  float value = 0;

  std::string text() const {
    return concat(family, ", ", method, ", step ", step + 1, ", ", value,
                  in_loss ? " as loss" : concat(" in gradient ", parameter));
  }
};

/// Passes all calls on, and writes the wrong number in the given step.
class PoisonedModel final : public LossModel {
 public:
  PoisonedModel(LossModel& model, const Injection& injection)
      : model_(model), injection_(injection), parameters_(trainable_parameters(model)) {}
  void arm(bool on) { is_armed_ = on; }
  bool was_hit() const { return was_hit_; }
  const std::string& parameter_name() const {
    return parameters_[injection_.parameter % parameters_.size()]->name();
  }

  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Stream& stream) override {
    Tensor loss = model_.forward(batch, gradient_scale, tape, stream);
    if (is_armed_ && injection_.in_loss) hit(loss.data<double>());
    return loss;
  }
  void backward(const Batch& batch, ActivationTape& tape, const Stream& stream) override {
    model_.backward(batch, tape, stream);
    if (!is_armed_ || injection_.in_loss) return;
    const Tensor gradient = parameters_[injection_.parameter % parameters_.size()]->gradient();
    if (gradient.defined() && gradient.dtype() == DType::kF32)
      hit(gradient.data<float>() + gradient.elements() / 2);
  }
  void visit_parameters(const ParameterVisitor& visit) override { model_.visit_parameters(visit); }
  void visit_routings(const RoutingVisitor& visit) override { model_.visit_routings(visit); }
  bool supports_segments() const override { return model_.supports_segments(); }
  bool carries_state() const override { return model_.carries_state(); }
  std::int64_t contributions(const Batch& batch, std::int64_t segment) const override {
    return model_.contributions(batch, segment);
  }
  std::int64_t parameter_count() override { return model_.parameter_count(); }
  double step_flops(const Batch& batch) override { return model_.step_flops(batch); }

 private:
  template <class Number>
  void hit(Number* place) {
    *place = static_cast<Number>(injection_.value);
    was_hit_ = true;
  }
  LossModel& model_;
  const Injection& injection_;
  std::vector<Parameter*> parameters_;
  bool is_armed_ = false, was_hit_ = false;
};

/// Trains through the injection. Returns the problem, or "". Counts injections that took place.
std::string problem_of(const Injection& injection, std::optional<Phase>& hit) {
  HybridTrainerConfig config = tiny_config();
  config.model = tiny_model(injection.family);
  config.model.vocabulary = 19;
  config.phases.method = injection.method;
  config.training.threads = 1;
  config.data.batch_size = 2;
  const Stream stream(MemoryPool::create("campaign"));
  const auto owner = make_model(config.model, 1, stream);
  PoisonedModel model(*owner, injection);
  HybridTrainer trainer(model, config, stream);
  bool is_reported = false;
  for (std::int64_t step = 0; step < injection.step + 6; ++step) {
    const std::vector<float> before = master_values(model, stream);
    model.arm(step == injection.step);
    const StepRecord record = trainer.step(step_batch(config, step, stream));
    const std::vector<float> after = master_values(model, stream);
    if (!std::ranges::all_of(after, [](float value) { return std::isfinite(value); }))
      return concat("weights are not finite after step ", step + 1, " (", model.parameter_name(),
                    ")");
    if (step != injection.step) continue;
    is_reported = !record.event.empty();
    if (model.was_hit()) hit = record.phase;
    const bool trains = record.phase == Phase::kWarmup || record.phase == Phase::kFull;
    if (model.was_hit() && !std::isfinite(injection.value) && trains &&
        injection.method == "skip_backward" && before != after)
      return concat("the step changed the weights (", model.parameter_name(), ")");
  }
  if (model.was_hit() && !std::isfinite(injection.value) && !is_reported)
    return concat("the record does not report it (", model.parameter_name(), ")");
  return "";
}

Injection injection_of(std::int64_t trial) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const char* const families[] = {"gpt2", "mamba2", "granitemoehybrid", "qwen3_5"};
  constexpr float kValues[] = {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity,
                               3e38f};
  constexpr std::int64_t kSteps[] = {2, 9, 15, 17, 18, 21};
  const auto pick = [&](std::int64_t count) {
    const std::int64_t picked = trial % count;
    trial /= count;
    return static_cast<std::size_t>(picked);
  };
  Injection injection;
  injection.family = families[pick(4)];
  injection.step = kSteps[pick(6)];
  injection.value = kValues[pick(4)];
  injection.method = pick(2) == 0 ? "skip_backward" : "asynchronous_optimizer";
  injection.in_loss = pick(6) == 0;
  injection.parameter = static_cast<std::size_t>(trial) * 7 + 3;
  return injection;
}

}  // namespace

void inject_numbers(PartRun& run) {
  for (; !run.is_over(); ++run.count("trial")) {
    const Injection injection = injection_of(run.count("trial"));
    std::optional<Phase> hit;  // phase of the step
    std::string problem;
    try {
      problem = problem_of(injection, hit);
    } catch (const std::exception& error) {
      problem = error.what();
    }
    ++run.count(hit ? concat("count.injections_in_", name_of(*hit))
                    : "count.without_backward_pass");
    if (!problem.empty()) run.find(concat(injection.text(), ": ", problem));
    if (std::ssize(run.state.finds) >= 20) return;
  }
}

}  // namespace hybrid_trainer
