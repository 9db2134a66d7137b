#pragma once

#include <cstdint>
#include <string>

#include "src/tools/open_model.h"

namespace hybrid_trainer {

/// `hybrid eval MODEL --choices FILE`, as it was typed.
struct ChoiceEvaluation {
  std::string model, file, against;  // against: another model, or empty
  RunWeights weights{};              // of `model`
  std::string precision = "fp32", home = "device";
  bool json = false;
};

/// Prints how often the model, and the one to compare with, finds the right choice of each question
/// the likeliest: by the sum of its tokens' log-probabilities, and by that for each byte of its text.
/// Throws as WritingModel and read_choice_questions.
void evaluate_choices(const ChoiceEvaluation& asked, const Stream& stream);

}  // namespace hybrid_trainer
