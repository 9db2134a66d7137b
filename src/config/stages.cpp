#include "src/config/stages.h"

namespace hybrid_trainer {

namespace {

BatchShape shape_of(const HybridTrainerConfig& config) {
  return {config.data.batch_size * config.gradient_accumulation.micro_batches,
          config.data.sequence_length};
}

BatchShape shape_of(const StageConfig& stage, const BatchShape& whole) {
  const std::int64_t length = stage.sequence_length.value_or(whole.sequence_length);
  return {stage.effective_batch.value_or(whole.tokens() / length), length};
}

}  // namespace

const std::vector<std::string>& stage_precision_names() {
  static const std::vector<std::string> names{"fp32", "bf16", "fp16", "fp8"};
  return names;
}

Stages::Stages(const HybridTrainerConfig& config) {
  const BatchShape whole = shape_of(config);
  std::int64_t begin = 0;
  for (const StageConfig& stage : config.stages) {
    const BatchShape shape = shape_of(stage, whole);
    const double share = static_cast<double>(shape.tokens()) / static_cast<double>(whole.tokens());
    stages_.push_back({.first_step = begin,
                       .batch = shape,
                       .precision = stage.precision,
                       .orthogonalization_period = stage.orthogonalization_period,
                       .rate_factor = batch_rate_factor(share)});
    const std::int64_t pieces = whole.sequence_length / shape.sequence_length;
    const std::int64_t steps =
        std::llround(stage.until * static_cast<double>(config.training.steps)) - begin;
    begin += std::max<std::int64_t>(0, (steps + pieces - 1) / pieces * pieces);
  }
  stages_.push_back({.first_step = begin, .batch = whole});
}

const Stage& Stages::at(std::int64_t steps_done) const {
  std::size_t i = stages_.size() - 1;
  while (i > 0 && stages_[i].first_step > steps_done) --i;
  return stages_[i];
}

std::vector<BatchStage> Stages::batches() const {
  std::vector<BatchStage> batches;
  for (std::size_t i = 0; i + 1 < stages_.size(); ++i)
    batches.push_back({stages_[i + 1].first_step - stages_[i].first_step, stages_[i].batch});
  return batches;
}

void collect_stage_problems(const HybridTrainerConfig& config, std::vector<std::string>& found) {
  const BatchShape whole = shape_of(config);
  double before = 0;
  for (std::size_t i = 0; i < config.stages.size(); ++i) {
    const StageConfig& stage = config.stages[i];
    const std::string path = concat("stages[", i, "].");
    const std::int64_t length = stage.sequence_length.value_or(whole.sequence_length);
    if (length < 1 || whole.sequence_length % length != 0) {
      found.push_back(concat(path, "sequence_length: got ", length,
                             ", want a divisor of data.sequence_length, ", whole.sequence_length));
    } else if (const BatchShape shape = shape_of(stage, whole); shape.tokens() > whole.tokens()) {
      found.push_back(concat(path, "effective_batch: got ", shape.batch_size, ", want at most ",
                             whole.tokens() / length,
                             ": a schedule stage has at most the configured tokens per step, ",
                             whole.batch_size, " sequences of ", whole.sequence_length));
    }
    if (stage.until <= before)
      found.push_back(concat(path, "until: got ", stage.until,
                             ", want more than in the previous stage, ", before));
    before = stage.until;
  }
}

std::string text_of(const Stage& stage) {
  return concat(stage.batch.batch_size, " sequences of ", stage.batch.sequence_length, " tokens",
                stage.precision ? concat(" in ", *stage.precision) : "",
                stage.orthogonalization_period ? concat(", whole matrices orthogonalized every ",
                                                        *stage.orthogonalization_period, " steps")
                                               : "");
}

}  // namespace hybrid_trainer
