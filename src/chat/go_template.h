#pragma once

#include <string>
#include <utility>
#include <vector>

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

}  // namespace hybrid_trainer
