#include "hybrid_trainer/phases/predictor.h"

#include "hybrid_trainer/core/nearest_name.h"
#include "phases/linear_predictor.h"

namespace hybrid_trainer {
namespace {

/// The optimizer's next step from its moments alone, which already are a mean of past gradients.
class MomentumPredictor : public Predictor {
 public:
  void observe(Trainable&) override {}
  Readiness readiness() const override { return Readiness::kReady; }
  void write_directions(Trainable& model, const std::vector<Tensor>& directions) override {
    model.write_momentum_directions(directions);
  }
  void save(State&) const override {}
  void load(const State&, const Stream&) override {}
};

class ZeroPredictor : public Predictor {
 public:
  void observe(Trainable&) override {}
  Readiness readiness() const override { return Readiness::kChangesNothing; }
  void write_directions(Trainable&, const std::vector<Tensor>&) override {}
  void save(State&) const override {}
  void load(const State&, const Stream&) override {}
};

using Maker = std::unique_ptr<Predictor> (*)(const PhaseConfig&);
struct Entry {
  const char* name;
  Maker make;
};

const Entry kPredictors[] = {
    {"momentum",
     [](const PhaseConfig&) -> std::unique_ptr<Predictor> {
       return std::make_unique<MomentumPredictor>();
     }},
    {"linear",
     [](const PhaseConfig& config) -> std::unique_ptr<Predictor> {
       return std::make_unique<LinearPredictor>(config.history_interval);
     }},
    {"zero",
     [](const PhaseConfig&) -> std::unique_ptr<Predictor> {
       return std::make_unique<ZeroPredictor>();
     }},
};

}  // namespace

const std::vector<std::string>& predictor_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Entry& entry : kPredictors) all.emplace_back(entry.name);
    return all;
  }();
  return names;
}

std::unique_ptr<Predictor> make_predictor(const PhaseConfig& config) {
  for (const Entry& entry : kPredictors) {
    if (config.predictor == entry.name) return entry.make(config);
  }
  throw ConfigError({concat("phases.predictor: got \"", config.predictor, "\"",
                            name_hint(config.predictor, predictor_names()))});
}

}  // namespace hybrid_trainer
