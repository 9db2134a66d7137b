#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/fine_tuning/example_rows.h"

namespace hybrid_trainer {

/// Tokens and targets of one example, without its line. Throws DataError that says why it is
/// refused.
ExampleRow tokens_of_example(const boost::json::object& example, const ExampleFormat& format);

}  // namespace hybrid_trainer
