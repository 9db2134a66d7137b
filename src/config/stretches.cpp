#include "src/config/stretches.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace {

BatchShape shape_of(const HybridTrainerConfig& config) {
  return {config.data.batch_size * config.gradient_accumulation.micro_batches,
          config.data.sequence_length};
}

BatchShape shape_of(const StretchConfig& stretch, const BatchShape& whole) {
  const std::int64_t length = stretch.sequence_length.value_or(whole.sequence_length);
  return {stretch.effective_batch.value_or(whole.tokens() / length), length};
}

}  // namespace

const std::vector<std::string>& stretch_precision_names() {
  static const std::vector<std::string> names{"fp32", "bf16", "fp16", "fp8"};
  return names;
}

Stretches::Stretches(const HybridTrainerConfig& config) {
  const BatchShape whole = shape_of(config);
  std::int64_t begin = 0;
  for (const StretchConfig& stretch : config.stretches) {
    const BatchShape shape = shape_of(stretch, whole);
    const double share = static_cast<double>(shape.tokens()) / static_cast<double>(whole.tokens());
    stretches_.push_back({.first_step = begin,
                          .batch = shape,
                          .precision = stretch.precision,
                          .orthogonalization_period = stretch.orthogonalization_period,
                          .rate_factor = batch_rate_factor(share)});
    const std::int64_t pieces = whole.sequence_length / shape.sequence_length;
    const std::int64_t steps =
        std::llround(stretch.until * static_cast<double>(config.training.steps)) - begin;
    begin += std::max<std::int64_t>(0, (steps + pieces - 1) / pieces * pieces);
  }
  stretches_.push_back({.first_step = begin, .batch = whole});
}

const Stretch& Stretches::at(std::int64_t steps_done) const {
  std::size_t i = stretches_.size() - 1;
  while (i > 0 && stretches_[i].first_step > steps_done) --i;
  return stretches_[i];
}

std::vector<BatchStretch> Stretches::batches() const {
  std::vector<BatchStretch> batches;
  for (std::size_t i = 0; i + 1 < stretches_.size(); ++i)
    batches.push_back(
        {stretches_[i + 1].first_step - stretches_[i].first_step, stretches_[i].batch});
  return batches;
}

void collect_stretch_problems(const HybridTrainerConfig& config, std::vector<std::string>& found) {
  const BatchShape whole = shape_of(config);
  double before = 0;
  for (std::size_t i = 0; i < config.stretches.size(); ++i) {
    const StretchConfig& stretch = config.stretches[i];
    const std::string path = concat("stretches[", i, "].");
    const std::int64_t length = stretch.sequence_length.value_or(whole.sequence_length);
    if (length < 1 || whole.sequence_length % length != 0) {
      found.push_back(concat(path, "sequence_length: got ", length,
                             ", want a whole part of data.sequence_length ",
                             whole.sequence_length));
    } else if (const BatchShape shape = shape_of(stretch, whole); shape.tokens() > whole.tokens()) {
      found.push_back(concat(path, "effective_batch: got ", shape.batch_size, ", want at most ",
                             whole.tokens() / length,
                             ": a schedule stage has at most the configured tokens per step, ",
                             whole.batch_size, " sequences of ", whole.sequence_length));
    }
    if (stretch.until <= before) {
      found.push_back(concat(path, "until: got ", stretch.until,
                             ", want more than the stage before, ", before));
    }
    before = stretch.until;
  }
}

std::string text_of(const Stretch& stretch) {
  return concat(stretch.batch.batch_size, " sequences of ", stretch.batch.sequence_length,
                " tokens", stretch.precision ? concat(" in ", *stretch.precision) : "",
                stretch.orthogonalization_period
                    ? concat(", whole matrices orthogonalized every ",
                             *stretch.orthogonalization_period, " steps")
                    : "");
}

}  // namespace hybrid_trainer
