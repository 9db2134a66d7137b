#pragma once

#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// Replaces each head's U·Vᵀ in the tables by position (layers p of model.mixers) with the nearest
/// matrix of rank `rank`, by singular value decomposition. Sorts columns by falling singular
/// values, and sets columns beyond `rank` to 0. The tables must be in memory. Throws ConfigError if
/// the model has no such tables, or if `rank` is not between 1 and model.semiseparable.rank. The
/// caller must refresh compute copies.
void truncate_factors(LanguageModel& model, std::int64_t rank, const Stream& stream);

}  // namespace hybrid_trainer
