#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/observability/model_texts.h"

namespace hybrid_trainer {

/// The card of the report that shows answers to held-out prompts; "" where there are none.
std::string answers_html(const std::vector<ComparedAnswer>& answers);

}  // namespace hybrid_trainer
