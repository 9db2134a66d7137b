#pragma once

#include <boost/json.hpp>

#include "src/fine_tuning/row_tokens.h"

namespace hybrid_trainer {

/// A pair of answers as two examples, {"prompt": …, "completion": …} each.
struct PreferencePair {
  boost::json::object chosen, rejected;
};

/// Reads {"prompt": …, "chosen": …, "rejected": …}: texts or lists of messages. Where the answers are
/// messages, a prompt that is a text is what the user says, and an answer that is a text what the
/// assistant does. Without a prompt, or where both lists begin with the user's message, the prompt is
/// how both answers begin alike. Other keys, such as "tools", belong to both. Throws DataError, which
/// says what is wanted, and where both answers are the same.
PreferencePair preference_pair(const boost::json::object& example);

/// The pair as one row: the tokens of the chosen text and behind them those of the rejected one.
/// Throws DataError where RowMaker refuses one of both, or both together do not fit format.longest.
ExampleRow preference_row(const boost::json::object& example, const WideIntegers& wide,
                          const ExampleFormat& format, RowMaker& maker);

}  // namespace hybrid_trainer
