#include "hybrid_trainer/nn/loss_model.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kUsualSegment = 2048;

}  // namespace

std::int64_t LossModel::segment_for(std::int64_t wanted, std::int64_t time) const {
  if (wanted > 0 && goes_in_segments()) return wanted;
  const bool is_usual = carries_state() && goes_in_segments();
  return time > kWholeUpTo && is_usual ? kUsualSegment : 0;
}

std::int64_t LossModel::parameter_count() {
  std::int64_t sum = 0;
  visit_parameters([&](const Parameter& parameter) { sum += parameter.elements(); });
  return sum;
}

double LossModel::step_flops(const Batch& batch) {
  double of_token = 0;
  visit_parameters([&](const Parameter& parameter) {
    of_token += (parameter.trainable() ? 6.0 : 4.0) * static_cast<double>(parameter.elements());
  });
  return of_token * static_cast<double>(batch.tokens());
}

}  // namespace hybrid_trainer
