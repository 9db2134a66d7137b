#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// A model's answers to a prompt before and after a run. Texts are UTF-8.
struct ComparedAnswer {
  std::string prompt;
  std::string wanted;                 // answer in the example
  std::optional<std::string> before;  // unknown if empty
  std::string after;
  bool held_out = true;  // whether no training example has the prompt
};

/// Output of a trained model: a sample, or answers to prompts.
struct ModelTexts {
  std::string sample{};
  std::vector<ComparedAnswer> answers{};
};

/// Write and read `RUN/answers.json`:
/// {"answers":[{"prompt","wanted","before","after","held_out"}]}. Reading a missing or damaged file
/// returns no answers. Throw IoError.
void write_answers(const std::string& file, const std::vector<ComparedAnswer>& answers);
std::vector<ComparedAnswer> read_answers(const std::string& file);

/// Returns "held-out prompts" or "prompts of the training examples".
std::string kind_of_prompts(const std::vector<ComparedAnswer>& answers);

/// Formats answers for the console.
std::string answers_text(const std::vector<ComparedAnswer>& answers);

}  // namespace hybrid_trainer
