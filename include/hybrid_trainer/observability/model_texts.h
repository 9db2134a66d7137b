#pragma once

#include <string>
#include <vector>

namespace hybrid_trainer {

/// What a model answers to a prompt before and after a run. Texts are UTF-8; `before` is empty where
/// the run does not know it.
struct ComparedAnswer {
  std::string prompt;
  std::string wanted;  // the answer of the examples
  std::string before, after;
};

/// What a trained model writes: text of its own, or answers to prompts.
struct ModelTexts {
  std::string sample{};
  std::vector<ComparedAnswer> answers{};
};

/// Writes and reads `RUN/answers.json`: {"answers":[{"prompt","wanted","before","after"}]}. Nothing is
/// read of a file that is missing or damaged. Throws IoError.
void write_answers(const std::string& file, const std::vector<ComparedAnswer>& answers);
std::vector<ComparedAnswer> read_answers(const std::string& file);

/// Lines for the console.
std::string answers_text(const std::vector<ComparedAnswer>& answers);

}  // namespace hybrid_trainer
