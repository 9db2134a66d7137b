#pragma once

#include "src/data/chat/chat_template.h"

namespace hybrid_trainer {

/// The part of Go's text/template that a chat needs with Ollama's data: for each message a text
/// that depends on its role and position.
struct GoTemplate {
  enum class Place {
    kAny,
    kFirst,           // of all messages
    kAfterSystem,     // the second, after a system message
    kLast,            // of all messages
    kLastWithSystem,  // with any earlier system message
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
        forms{};  // the first one that matches the message's place applies
  };
  std::vector<Turn> turns;
  std::string generation_prompt;  // after the last message, if the assistant has not begun
};

struct GoMessage {
  std::string role, content;
};

/// Returns the source text for Go. Escapes texts that Go would read as actions.
std::string text_of(const GoTemplate& source);
/// Returns Go's output for the messages.
std::string render(const GoTemplate& source, const std::vector<GoMessage>& messages);

/// A chat template for Ollama's Modelfile.
struct OllamaTemplate {
  std::string text;                  // of TEMPLATE, in the language of Go's text/template
  std::string stop;                  // end of an assistant's turn; empty: only white space
  std::vector<std::string> remarks;  // limitations: "leaves out tools"
  std::size_t compared = 0;          // conversations for which both templates give the same output
};

/// Derives it from the folder's chat template: renders conversations of sentinels, uses the text
/// around each as the form of its role, and compares both templates on at least eight
/// conversations. `runner_bos`, the text that the runner adds before each prompt, or "", is
/// excluded. Keeps white space around a message, which most chat templates strip. Throws DataError
/// with one line on why the template cannot be expressed.
OllamaTemplate derive_ollama_template(const ChatFiles& chat, const std::string& runner_bos);

}  // namespace hybrid_trainer
