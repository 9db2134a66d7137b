#pragma once

#include "src/data/chat/chat_template.h"

namespace hybrid_trainer {

/// The part of Go's text/template that a chat needs as Ollama gives it: for each message a text that
/// depends on its role and its place.
struct GoTemplate {
  enum class Place {
    kAny,
    kFirst,           // of all messages
    kAfterSystem,     // the second, with a message of the system before
    kLast,            // of all messages
    kLastWithSystem,  // with a message of the system anywhere before
  };
  struct Segment {
    enum class Kind { kText, kContent, kSystem };
    Kind kind = Kind::kText;
    std::string text{};  // of kText
  };
  using Segments = std::vector<Segment>;
  struct Turn {
    std::string role;
    std::vector<std::pair<Place, Segments>>
        forms{};  // the first counts whose place is the message's
  };
  std::vector<Turn> turns;
  std::string generation_prompt;  // after the last message, where the assistant has not begun
};

struct GoMessage {
  std::string role, content;
};

/// As Go reads it. A text between braces that Go would read as its own is written as a string.
std::string text_of(const GoTemplate& source);
/// What Go writes for the messages.
std::string render(const GoTemplate& source, const std::vector<GoMessage>& messages);

/// A chat template as a Modelfile of Ollama has it.
struct OllamaTemplate {
  std::string text;                  // of TEMPLATE, in the language of Go's text/template
  std::string stop;                  // what ends an assistant's turn; empty: white space alone
  std::vector<std::string> remarks;  // what it cannot do: "leaves out tools"
  std::size_t compared = 0;          // conversations that both templates write alike
};

/// Derives it from the folder's chat template: renders conversations of sentinels, takes what stands
/// around each as the form of its role, and compares both on eight conversations and more. `runner_bos`
/// is the text that the runner puts before each prompt by itself, or "": it is left out of the text.
/// White space around a message is kept, which most chat templates take away. Throws DataError that
/// says in one line why the template cannot be expressed.
OllamaTemplate derive_ollama_template(const ChatFiles& chat, const std::string& runner_bos);

}  // namespace hybrid_trainer
