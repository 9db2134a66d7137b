#pragma once

#include "src/run/language_task.h"
#include "src/run/text_data.h"

namespace hybrid_trainer {

/// Makes the task of text-level objectives. Throws as language_task and read_text_data.
std::unique_ptr<Task> text_training(const TrainingRunSettings& settings, const ReadInputs& read);

}  // namespace hybrid_trainer
