#pragma once

#include <cstdint>
#include <memory>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/data/batch_loader.h"

namespace hybrid_trainer {

/// The windows of a split that a run of this configuration is measured on, in batches of
/// data.batch_size; masked where its objective is. `dataset` must outlive them. Throws as
/// EvaluationWindows.
std::unique_ptr<EvaluationBatches> window_evaluation(const TokenDataset& dataset,
                                                     const HybridTrainerConfig& config,
                                                     std::int64_t sequence_length,
                                                     const Stream& stream);

}  // namespace hybrid_trainer
