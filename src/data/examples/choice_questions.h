#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/chat/chat_template.h"

namespace hybrid_trainer {

struct ChoiceQuestion {
  std::int64_t line = 0;  // line of its file or element of its array, from 1
  /// Tokens before each choice; at least one.
  std::vector<std::int32_t> prompt{};
  struct Choice {
    std::vector<std::int32_t> tokens{};  // tokens of the choice; at least one
    std::size_t bytes = 0;               // bytes of the choice's text
  };
  std::vector<Choice> choices{};
  std::size_t answer = 0;  // index of the right choice
};

struct ChoiceFormat {
  const Tokenizer& tokenizer;
  const ChatFiles& chat;
  std::int64_t context = 1024;  // maximum tokens of a sequence of the model
  std::int64_t vocabulary = 0;  // size of the model's vocabulary
  std::time_t now = 0;          // current time for a chat template
};

struct ChoiceQuestions {
  std::vector<ChoiceQuestion> questions;
  /// Number of questions without white space between prompt and choice.
  std::int64_t joined_words = 0;
};

/// Reads questions, JSON objects in lines or in one array:
///   {"prompt": …, "choices": [text, …], "answer": 1}
/// A prompt is a text, or a list of messages for the chat template, which then adds a generation
/// prompt. `answer` is the index of the right choice, counted from 0, its letter ("B") or its text.
/// The text of a choice directly follows the prompt. If the first token of a choice includes the
/// end of the prompt, `prompt` is shortened for all choices. Throws DataError naming each line that
/// is not such an object, has an ambiguous answer or two equal choices, or exceeds the context.
/// Also throws MissingInput and IoError.
ChoiceQuestions read_choice_questions(const std::filesystem::path& path,
                                      const ChoiceFormat& format);

}  // namespace hybrid_trainer
