#pragma once

#include "hybrid_trainer/phases/predictor.h"

namespace hybrid_trainer {

/// A placebo: each tensor's direction is random and as long as momentum's, another one each time. What
/// a jump along it gains, any jump of that length gains.
///
/// Memory: one tensor at a time on the host.
class RandomPredictor final : public Predictor {
 public:
  RandomPredictor() : host_(MemoryPool::create("host")) {}
  void observe(Trainable&) override {}
  Readiness readiness() const override { return Readiness::kReady; }
  void write_directions(Trainable& model, const std::vector<Tensor>& directions) override;
  void follow(Trainable&, const std::vector<Tensor>&, double) override {}
  void save(State& state) const override;
  void load(const State& state, Trainable& model) override;

 private:
  Stream host_;
  std::int64_t drawn_ = 0;  // sets of directions
};

}  // namespace hybrid_trainer
