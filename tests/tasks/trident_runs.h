#pragma once

#include <gtest/gtest.h>

#include <sstream>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "src/tasks/network_task.h"
#include "tests/run/run_contracts.h"

namespace hybrid_trainer {

/// Runs of networks with several sensors.
class TridentRuns : public RunContracts {
 protected:
  /// A small config that passes through all phases in 40 steps.
  static HybridTrainerConfig small_config() {
    HybridTrainerConfig config = tiny_config();
    config.model = {.family = "trident", .layers = 1, .heads = 2, .width = 16, .context = 4};
    config.model.trident = {.frames = 4,
                            .fragment_frames = 2,
                            .video_size = 8,
                            .video_width = 4,
                            .image_size = 16,
                            .visible_channels = 1,
                            .plume_width = 4,
                            .kinematic_steps = 16,
                            .kinematic_channels = 2,
                            .cooling_samples = 4,
                            .geo_numbers = 2,
                            .held_out = 40};
    config.data.batch_size = 4;
    config.data.sequence_length = config.model.context;
    config.gradient_accumulation.micro_batches = 2;
    config.mixed_precision = MixedPrecisionConfig::conservative();
    config.training.threads = 1;
    return config;
  }
  /// `hybrid train --preset trident-tiny` without prediction.
  static HybridTrainerConfig preset() {
    HybridTrainerConfig config = preset_config("trident-tiny");
    config.phases.max_predict_steps = 0;
    config.mixed_precision = MixedPrecisionConfig::conservative();
    return config;
  }
  TrainingRunSettings settings(const HybridTrainerConfig& config,
                               const std::string& run) const override {
    return {.config = config,
            .run = scratch_ / run,
            .command = "test",
            .task = [](const TrainingRunSettings& all) { return network_task(all); }};
  }
};

}  // namespace hybrid_trainer
