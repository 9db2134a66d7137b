// Trains a GPT-2 on a folder written by `hybrid prepare`: train_gpt2 DATA RUN [PRESET] [STEPS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/run/training_run.h"

using namespace hybrid_trainer;

namespace {

HybridTrainerConfig make_config(const std::string& preset, std::int64_t steps) {
  const HybridTrainerConfig ready = preset_config(preset);
  return HybridTrainerConfig::builder()
      .model_config(ready.model)
      .data_config(ready.data)
      .optimizer_config(ready.optimizer)
      .schedule_config({.name = "cosine", .warmup_steps = std::min<std::int64_t>(100, steps / 10)})
      .training_config(
          {.steps = steps, .seed = 1, .evaluate_every_steps = std::max<std::int64_t>(1, steps / 4)})
      .warmup_steps(std::min<std::int64_t>(200, steps / 5))
      .full_steps(20)
      .max_predict_steps(50)
      .confidence_threshold(0.60)
      .correction_interval(15)
      .mixed_precision_config(MixedPrecisionConfig::aggressive())
      .gradient_accumulation_config(GradientAccumulationConfig::aggressive())
      .predict_aware_memory_config(PredictAwareMemoryConfig::aggressive())
      .build();
}

}  // namespace

int main(int count, char** arguments) try {
  if (count < 3) throw UsageError("usage: train_gpt2 DATA RUN [PRESET] [STEPS]");
  const std::string preset = count > 3 ? arguments[3] : "gpt2-124m";
  const std::int64_t steps = count > 4 ? std::atoll(arguments[4]) : 1000;
  TrainingRunSettings settings;
  settings.config = make_config(preset, steps);
  settings.data = arguments[1];
  settings.run = arguments[2];
  for (int i = 0; i < count; ++i) settings.command.append(i > 0 ? " " : "").append(arguments[i]);
  const TrainingRunResult result = run_training(settings, std::cerr);
  if (result.end == RunEnd::kInterrupted) return static_cast<int>(ExitCode::kInterrupted);
  const PredictionCounts& predictions = result.summary.predictions;
  std::printf("validation loss %.4f after %lld steps; %lld predictions made, %lld accepted\n",
              result.summary.final_validation_loss.value_or(0),
              static_cast<long long>(result.summary.steps),
              static_cast<long long>(predictions.made),
              static_cast<long long>(predictions.accepted));
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return static_cast<int>(error.code());
}
