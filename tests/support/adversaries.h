#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/phases/phase_machine.h"
#include "src/trainer/model_trainable.h"

namespace hybrid_trainer::testing {

/// Distorts the optimizer's own direction; keeps its size unless it distorts the size itself.
class Adversary final : public Predictor {
 public:
  /// Distorts the values of one tensor of a direction; called once for each tensor.
  using Corruption = std::function<void(std::vector<float>& values, std::size_t tensor)>;
  explicit Adversary(Corruption corruption) : corruption_(std::move(corruption)) {}
  void observe(Trainable&) override {}
  Readiness readiness() const override { return Readiness::kReady; }
  void write_directions(Trainable& model, const std::vector<Tensor>& directions) override {
    model.weights().write_momentum_directions(directions);
    for (std::size_t i = 0; i < directions.size(); ++i) {
      float* const data = directions[i].data<float>();
      std::vector<float> values(data, data + directions[i].elements());
      corruption_(values, i);
      std::memcpy(data, values.data(), values.size() * sizeof(float));
    }
  }
  void follow(Trainable&, const std::vector<Tensor>&, double) override {}
  void save(State&) const override {}
  void load(const State&, Trainable&) override {}

 private:
  Corruption corruption_;
};

struct AdversaryRow {
  const char* name;
  std::function<Adversary::Corruption(std::uint64_t seed)> make;  // called once per run
  bool is_finite = true;  // false: no prediction is possible
};

inline const std::vector<AdversaryRow>& adversaries() {
  using Values = std::vector<float>;
  const auto same = [](const std::function<void(Values&)>& corruption) {
    return [corruption](std::uint64_t) -> Adversary::Corruption {
      return [corruption](Values& values, std::size_t) { corruption(values); };
    };
  };
  static const std::vector<AdversaryRow> rows{
      {"random",
       [](std::uint64_t seed) -> Adversary::Corruption {
         return [seed, call = std::uint64_t{0}](Values& values, std::size_t) mutable {
           double squares = 0;
           for (const float v : values) squares += static_cast<double>(v) * v;
           const double size = std::sqrt(squares / static_cast<double>(values.size()));
           const RandomKey key{seed, ++call, 5};
           for (std::size_t i = 0; i < values.size(); ++i)
             values[i] = static_cast<float>(size) * random_normal(key, i);
         };
       }},
      {"sign-flipped", same([](Values& values) {
         for (float& v : values) v = -v;
       })},
      {"x1000", same([](Values& values) {
         for (float& v : values) v *= 1000;
       })},
      {"constant", same([](Values& values) {
         for (float& v : values) v = 1e-3f;
       })},
      {"stale",
       [](std::uint64_t) -> Adversary::Corruption {
         return [first = std::vector<Values>()](Values& values, std::size_t tensor) mutable {
           if (tensor == first.size()) first.push_back(values);
           values = first[tensor];
         };
       }},
      {"NaN", same([](Values& values) {
         for (float& v : values) v = std::numeric_limits<float>::quiet_NaN();
       }),
       false},
  };
  return rows;
}

/// Returns the config of a GPT-2 of 0.1 M parameters (width 64, two layers) for a made-up grammar.
inline HybridTrainerConfig adversary_config(std::uint64_t seed, std::int64_t steps) {
  HybridTrainerConfig config;
  config.model = {.layers = 2, .heads = 4, .width = 64, .context = 16};
  config.model.vocabulary = 24;
  config.data.batch_size = 8;
  config.data.sequence_length = 16;
  config.training.steps = steps;
  config.training.seed = static_cast<std::int64_t>(seed);
  config.optimizer.learning_rate = 4e-3;
  config.schedule.warmup_steps = 20;
  config.phases.warmup_steps = 20;
  return config;
}

/// Returns learnable text: three of four tokens follow from the two tokens before.
inline Batch grammar_batch(const HybridTrainerConfig& config, std::uint64_t stream_of,
                           std::uint64_t number, const Stream& stream) {
  const std::int64_t length = config.data.sequence_length,
                     examples = config.data.batch_size * config.gradient_accumulation.micro_batches;
  const auto vocabulary = static_cast<std::uint64_t>(config.model.vocabulary);
  const RandomKey key{stream_of, number, 1};
  const Shape shape{examples, length};
  Batch batch = token_batch(Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream),
                            Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream));
  std::int32_t *tokens = batch.at("tokens").data<std::int32_t>(),
               *targets = batch.at("targets").data<std::int32_t>();
  std::uint64_t draw = 0;
  for (std::int64_t example = 0; example < examples; ++example) {
    std::uint64_t before = random_below(key, draw++, vocabulary), last = before;
    for (std::int64_t t = 0; t <= length; ++t) {
      const bool follows = random_below(key, draw++, 4) != 0;
      const std::uint64_t next = follows ? (5 * last + 3 * before + 1) % vocabulary
                                         : random_below(key, draw++, vocabulary);
      const std::int64_t at = example * length + t;
      if (t < length) tokens[at] = static_cast<std::int32_t>(last);
      if (t > 0) targets[at - 1] = static_cast<std::int32_t>(last);
      before = last;
      last = next;
    }
  }
  return batch;
}

struct AdversaryResult {
  std::vector<float> weights;
  double loss = 0;               // mean of 16 batches that were not trained on
  double overhead = 0;           // extra cost relative to a Full step, per step
  double planning = 0;           // part of `overhead` that model-based horizons cost
  std::size_t device_bytes = 0;  // including freed memory kept for reuse
  std::size_t live_bytes = 0;    // excluding freed memory
  PredictionCounts predictions;
  bool kept_none() const { return predictions.accepted + predictions.shrunk == 0; }
};

/// Trains to config.training.steps. Without `corruption`, trains plainly.
inline AdversaryResult train_with(HybridTrainerConfig config,
                                  const Adversary::Corruption& corruption,
                                  std::optional<std::size_t> budget_bytes = {}) {
  if (!corruption) config.phases.max_predict_steps = 0;
  const auto seed = static_cast<std::uint64_t>(config.training.seed);
  const Stream stream(MemoryPool::create("device", budget_bytes));
  const auto model = make_model(config.model, seed, stream);
  ModelTrainable trainable(*model, config, stream, MemoryPool::create("host"),
                           [](const std::string&) {});
  PhaseMachine::Setup setup{config.phases, config.divergence, 0, config.training.steps};
  const auto kept =
      std::make_shared<Adversary::Corruption>(corruption);  // shared, so it survives new predictors
  setup.make_predictor = [kept](const SkipBackwardConfig&) {
    return std::make_unique<Adversary>(
        [kept](std::vector<float>& values, std::size_t tensor) { (*kept)(values, tensor); });
  };
  PhaseMachine machine(trainable, setup);
  for (std::int64_t step = 0; step < config.training.steps; ++step) {
    trainable.set_steps_done(step);
    machine.step(grammar_batch(config, seed, static_cast<std::uint64_t>(step), stream));
  }
  AdversaryResult result;
  result.device_bytes = stream.pool()->use().max_taken;
  result.live_bytes = stream.pool()->use().peak_total;
  trainable.enter_phase(Phase::kCorrect);
  for (std::uint64_t i = 0; i < 16; ++i) {
    const Batch batch = grammar_batch(config, 1'000'000, i, stream);
    result.loss += trainable.wait_for_loss(batch, batch.size()) / 16;
  }
  for (const Parameter* parameter : trainable_parameters(*model)) {
    const float* const data = parameter->master_in_place().data<float>();
    result.weights.insert(result.weights.end(), data, data + parameter->elements());
  }
  const auto steps = static_cast<double>(config.training.steps);
  result.overhead = machine.statistics().cost() / steps - 1;
  result.planning = machine.statistics().planning_cost / steps;
  result.predictions = machine.statistics().predictions;
  return result;
}

}  // namespace hybrid_trainer::testing
