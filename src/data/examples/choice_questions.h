#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/chat/chat_template.h"

namespace hybrid_trainer {

/// A multiple-choice question as tokens of one model.
struct ChoiceQuestion {
  std::int64_t line = 0;  // line of its file or element of its array, from 1
  /// Tokens before each choice; at least one.
  std::vector<std::int32_t> prompt{};
  struct Choice {
    std::vector<std::int32_t> tokens{};  // continuation; at least one
    std::size_t bytes = 0;               // of its text
  };
  std::vector<Choice> choices{};
  std::size_t answer = 0;  // index of the right choice
};

/// Arguments to turn lines into questions; need not outlive the call.
struct ChoiceFormat {
  const Tokenizer& tokenizer;
  const ChatFiles& chat;
  std::int64_t context = 1024;  // of the model
  std::int64_t vocabulary = 0;  // of the model
  std::time_t now = 0;          // current time for a chat template
};

struct ChoiceQuestions {
  std::vector<ChoiceQuestion> questions;
  /// Number of questions with no white space between prompt and choice.
  std::int64_t joined_words = 0;
};

/// Reads questions, JSON objects in lines or in one array:
///   {"prompt": …, "choices": [text, …], "answer": 1}
/// A prompt is a text, or a list of messages for the chat template, which then adds a generation
/// prompt. `answer` is the index of the right choice from 0, its letter ("B") or its text. A
/// choice's text follows the prompt's unchanged. If the first token of a choice includes the end of
/// the prompt, `prompt` is shortened for all choices of the question, so that all are scored after
/// the same text. Throws MissingInput, IoError, and DataError naming each line that is not such an
/// object, or has an ambiguous answer, two equal choices or a choice that exceeds the context.
ChoiceQuestions read_choice_questions(const std::filesystem::path& path,
                                      const ChoiceFormat& format);

}  // namespace hybrid_trainer
