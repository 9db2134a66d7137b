#pragma once

#include "hybrid_trainer/fine_tuning/example_rows.h"

namespace hybrid_trainer {

/// A pair of answers as one row: the tokens of the chosen text and behind them those of the rejected
/// one. Throws DataError where both have the same tokens, or do not fit format.longest together.
ExampleRow pair_row(ExampleRow chosen, const ExampleRow& rejected, const ExampleFormat& format);

}  // namespace hybrid_trainer
