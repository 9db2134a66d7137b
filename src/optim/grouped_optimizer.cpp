#include "grouped_optimizer.h"

#include "optimizer_slots.h"

namespace hybrid_trainer {
namespace {

float rate_of(const GroupedOptimizer::Part& part, float learning_rate) {
  return static_cast<float>(part.rate_factor * static_cast<double>(learning_rate));
}

}  // namespace

void GroupedOptimizer::step(float learning_rate, float gradient_scale, const Stream& stream) {
  for (const Part& part : parts_)
    part.optimizer->step(rate_of(part, learning_rate), gradient_scale, stream);
  ++steps_;
}

void GroupedOptimizer::write_momentum_directions(const std::vector<Tensor>& directions,
                                                 float learning_rate, const Stream& stream) {
  require_directions(directions, parameters_);
  for (const Part& part : parts_) {
    std::vector<Tensor> own;
    for (const std::size_t member : part.members) own.push_back(directions[member]);
    part.optimizer->write_momentum_directions(own, rate_of(part, learning_rate), stream);
  }
}

void GroupedOptimizer::visit_state(const StateVisitor& visit) {
  for (const Part& part : parts_) part.optimizer->visit_state(visit);
}

void GroupedOptimizer::set_steps_taken(std::int64_t steps) {
  steps_ = steps;
  for (const Part& part : parts_) part.optimizer->set_steps_taken(steps);
}

}  // namespace hybrid_trainer
