#include "hybrid_trainer/phases/predictor.h"

#include "phases/experiments/random_predictor.h"
#include "phases/experiments/zero_predictor.h"
#include "phases/skip_backward/linear_predictor.h"
#include "phases/skip_backward/merged_predictor.h"
#include "phases/skip_backward/two_timescale_predictor.h"

namespace hybrid_trainer {
namespace {

/// The optimizer's next step from its moments alone, which already are a mean of past gradients.
class MomentumPredictor : public Predictor {
 public:
  void observe(Trainable&) override {}
  Readiness readiness() const override { return Readiness::kReady; }
  void write_directions(Trainable& model, const std::vector<Tensor>& directions) override {
    model.weights().write_momentum_directions(directions);
  }
  void follow(Trainable&, const std::vector<Tensor>&, double) override {}
  void save(State&) const override {}
  void load(const State&, Trainable&) override {}
};

using Made = std::unique_ptr<Predictor>;
struct Row {
  const char* name;
  Made (*make)(const SkipBackwardConfig& config);
};

const Row kPredictors[] = {
    {"momentum",
     [](const SkipBackwardConfig&) -> Made { return std::make_unique<MomentumPredictor>(); }},
    {"linear",
     [](const SkipBackwardConfig& config) -> Made {
       return std::make_unique<LinearPredictor>(config.history_interval);
     }},
    {"two_timescale",
     [](const SkipBackwardConfig& config) -> Made {
       return std::make_unique<TwoTimescalePredictor>(config.slow_steps, config.history_interval,
                                                      config.slow_share);
     }},
    {"merged",
     [](const SkipBackwardConfig& config) -> Made {
       return std::make_unique<MergedPredictor>(config.slow_steps, config.history_interval);
     }},
    {"random",
     [](const SkipBackwardConfig&) -> Made { return std::make_unique<RandomPredictor>(); }},
    {"zero", [](const SkipBackwardConfig&) -> Made { return std::make_unique<ZeroPredictor>(); }},
};

}  // namespace

const std::vector<std::string>& predictor_names() {
  static const std::vector<std::string> names = names_of(kPredictors);
  return names;
}

std::unique_ptr<Predictor> make_predictor(const SkipBackwardConfig& config) {
  return named_row(kPredictors, "phases.skip_backward.predictor", config.predictor).make(config);
}

}  // namespace hybrid_trainer
