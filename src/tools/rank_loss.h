#pragma once

#include <string>

#include "hybrid_trainer/run/training_run.h"

namespace hybrid_trainer {

// What a job leaves behind that ends because a rank is lost: lines in log.txt and a summary.json.

/// `line` says who is lost; a rank that speaks tells it on standard error, too, and writes the summary.
/// Nothing here waits for what the trainer holds.
void tell_of_loss(const TrainingRunSettings& settings, const std::string& line, bool speaks);
/// By the rank that gives up, since it ends the others before they could. Nothing where it did not
/// come to have a part in the run.
void leave_word_in_run(const TrainingRunSettings& settings, const std::string& reason);

}  // namespace hybrid_trainer
