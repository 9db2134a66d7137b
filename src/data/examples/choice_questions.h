#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/chat/chat_template.h"

namespace hybrid_trainer {

/// A multiple-choice question as tokens of one model.
struct ChoiceQuestion {
  std::int64_t line = 0;  // of its file, from 1; of an array its place
  /// With which the text of the prompt and each choice begins; at least one.
  std::vector<std::int32_t> prompt{};
  struct Choice {
    std::vector<std::int32_t> tokens{};  // that follow; at least one
    std::size_t bytes = 0;               // of its text
  };
  std::vector<Choice> choices{};
  std::size_t answer = 0;  // index of the right choice
};

/// What turns lines into questions; must outlive nothing but the call.
struct ChoiceFormat {
  const Tokenizer& tokenizer;
  const ChatFiles& chat;
  std::int64_t context = 1024;  // most tokens that the model sees
  std::int64_t vocabulary = 0;  // tokens of the model
  std::time_t now = 0;          // what a chat template takes for the time
};

struct ChoiceQuestions {
  std::vector<ChoiceQuestion> questions;
  /// Questions where neither the prompt ends nor a choice begins with white space.
  std::int64_t joined_words = 0;
};

/// Reads questions, JSON objects one a line or in one array:
///   {"prompt": …, "choices": [text, …], "answer": 1}
/// A prompt is a text, or a list of messages for the chat template, which then asks for an answer.
/// `answer` is the index of the right choice from 0 on, or its letter ("B") or text. A choice's text
/// follows the prompt's as it is. Where the first token of a choice also holds the end of the
/// prompt, `prompt` is shorter for all choices of the question, so that all are measured behind the
/// same text. Throws MissingInput, IoError, and DataError, which names the lines, where one is no such
/// object, its answer is ambiguous, two choices are the same or one does not fit the context.
ChoiceQuestions read_choice_questions(const std::filesystem::path& path,
                                      const ChoiceFormat& format);

}  // namespace hybrid_trainer
