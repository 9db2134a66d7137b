#pragma once

#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// Replaces U·Vᵀ of each head in the tables by position (layers p of model.mixers) with the nearest
/// matrix of rank `rank`. Sorts columns by descending singular values; columns from `rank` on
/// become 0. The caller must refresh compute copies. Throws ConfigError if the model has no such
/// tables or `rank` is not between 1 and model.semiseparable.rank.
void truncate_factors(LanguageModel& model, std::int64_t rank, const Stream& stream);

}  // namespace hybrid_trainer
