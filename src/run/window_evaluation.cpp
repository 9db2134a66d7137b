#include "hybrid_trainer/run/window_evaluation.h"

namespace hybrid_trainer {

std::unique_ptr<EvaluationBatches> window_evaluation(const TokenDataset& dataset,
                                                     const HybridTrainerConfig& config,
                                                     std::int64_t sequence_length,
                                                     const Stream& stream) {
  auto windows =
      std::make_unique<EvaluationWindows>(dataset, config.data.batch_size, sequence_length, stream);
  if (!config.masks()) return windows;
  return std::make_unique<MaskedEvaluation>(
      std::move(windows),
      config.masking(dataset.vocabulary_size().value_or(config.data_vocabulary())));
}

}  // namespace hybrid_trainer
