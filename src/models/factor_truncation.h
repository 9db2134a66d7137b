#pragma once

#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// Makes each head's U·Vᵀ in the tables by position (layers p of model.mixers) the nearest matrix of
/// rank `rank`, by its singular value decomposition. Columns that are left come in falling order of
/// their singular values; the others become 0. The tables are in memory. Throws ConfigError where the
/// model has none, or `rank` is not from 1 to theirs. Compute copies are the caller's to refresh.
void truncate_factors(LanguageModel& model, std::int64_t rank, const Stream& stream);

}  // namespace hybrid_trainer
