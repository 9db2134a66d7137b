#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// What a model answers to a prompt before and after a run. Texts are UTF-8.
struct ComparedAnswer {
  std::string prompt;
  std::string wanted;                 // the answer of the examples
  std::optional<std::string> before;  // where the run knows it
  std::string after;
  bool held_out = true;  // the prompt is of no example that is trained on
};

/// What a trained model writes: text of its own, or answers to prompts.
struct ModelTexts {
  std::string sample{};
  std::vector<ComparedAnswer> answers{};
};

/// Writes and reads `RUN/answers.json`: {"answers":[{"prompt","wanted","before","after","held_out"}]}.
/// Nothing is read of a file that is missing or damaged. Throws IoError.
void write_answers(const std::string& file, const std::vector<ComparedAnswer>& answers);
std::vector<ComparedAnswer> read_answers(const std::string& file);

/// What the prompts are: "held-out prompts", or "prompts of the training examples".
std::string kind_of_prompts(const std::vector<ComparedAnswer>& answers);

/// Lines for the console.
std::string answers_text(const std::vector<ComparedAnswer>& answers);

}  // namespace hybrid_trainer
