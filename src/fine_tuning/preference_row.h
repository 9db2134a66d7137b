#pragma once

#include "src/fine_tuning/shaped_row.h"

namespace hybrid_trainer {

/// Makes "prompt" with "completion" of both halves of an example with "chosen" and "rejected": texts,
/// messages, or one message each. The prompt is "prompt", or "conversations", or "messages"; or where
/// there is none, or the halves repeat it, what both begin with. `asked`: the prompt that
/// "instruction" and "input" make, if any. Throws DataError.
ShapedRow preference_row(const boost::json::object& example,
                         const std::optional<boost::json::value>& asked);

}  // namespace hybrid_trainer
