#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "src/generation/text_batch.h"
#include "src/tools/open_model.h"

namespace hybrid_trainer {

/// A file of prompts, one a line, and how they are continued.
struct PromptFile {
  std::string path;
  ControlText control = ControlText::kAsTokens;
  GenerationSettings generation{};
  /// Texts written at a time; with 1 what a prompt has in common with the one before is computed
  /// once.
  std::int64_t batch = 1;
};

/// The lines of a file of prompts. Throws MissingInput, DataError where it has none.
std::vector<std::string> prompt_lines(const std::string& file);

/// Prints a JSON object for each prompt, in order; all are checked before the first. `draft` may be
/// null. Throws DataError where a prompt is refused.
void continue_prompts(const PromptFile& file, const WritingModel& model, DraftModel* draft,
                      const Stream& stream);

/// Prints the piece at once. Throws IoError.
void print_now(std::string_view piece);

}  // namespace hybrid_trainer
