#pragma once

#include <algorithm>
#include <array>

#include "hybrid_trainer/observability/run_summary.h"
#include "tests/trainer/rank_outcome.h"

namespace hybrid_trainer {

using PhasePeaks = std::array<std::size_t, kPhases>;

/// Peaks by phase of one rank on its device, with only one prefetched batch.
inline PhasePeaks rank_peaks(const HybridTrainerConfig& config, Communicator& ranks,
                             Device device = {}) {
  const Stream stream{make_device_pool(device)};
  const Batch batch = step_batch(config, 0, stream), prefetched = step_batch(config, 1, stream);
  const Batch windows = batch.examples(0, config.data.batch_size);
  const auto model = make_model(config.model, 1, stream);
  HybridTrainer trainer(*model, config, stream, make_host_pool(device), &ranks);
  RunSummary summary;
  for (std::int64_t i = 0; i < config.training.steps; ++i) summary.add(trainer.step(batch));
  PhasePeaks peaks{};
  for (const Phase phase : kAllPhases)
    peaks[static_cast<std::size_t>(phase)] = summary.phase(phase).peak_bytes;
  return peaks;
}

/// The highest peak of any rank, by phase.
inline PhasePeaks most_of(const std::vector<PhasePeaks>& by_rank) {
  PhasePeaks most{};
  for (const PhasePeaks& peaks : by_rank) {
    for (std::size_t i = 0; i < kPhases; ++i) most[i] = std::max(most[i], peaks[i]);
  }
  return most;
}

}  // namespace hybrid_trainer
