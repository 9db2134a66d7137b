#pragma once

#include "src/data/chat/chat_template.h"

namespace hybrid_trainer {

/// A template for Ollama's chats: the text around a message depends only on its role and position.
struct GoTemplate {
  enum class Place {
    kAny,
    kFirst,           // first of all messages
    kAfterSystem,     // second message, after a system message
    kLast,            // last of all messages
    kLastWithSystem,  // last message, if any earlier one is a system message
  };
  struct Segment {
    enum class Kind { kText, kContent, kSystem };
    Kind kind = Kind::kText;
    std::string text{};  // used if `kind` is kText
  };
  using Segments = std::vector<Segment>;
  struct Turn {
    std::string role;
    std::vector<std::pair<Place, Segments>>
        forms{};  // the first form whose place matches the message applies
  };
  std::vector<Turn> turns;
  /// Written after the last message unless this is an assistant message.
  std::string generation_prompt;
};

struct GoMessage {
  std::string role, content;
};

/// Returns the template in Go's syntax. Escapes texts that Go would read as actions.
std::string text_of(const GoTemplate& source);
std::string render(const GoTemplate& source, const std::vector<GoMessage>& messages);

struct OllamaTemplate {
  std::string text;                  // value of TEMPLATE, in the language of Go's text/template
  std::string stop;                  // text that ends an answer; empty if it is only white space
  std::vector<std::string> remarks;  // limitations: "leaves out tools"
  std::size_t compared = 0;          // number of conversations that both templates render equally
};

/// Derives a template from the folder's chat template. Renders conversations of marker words, and
/// takes the text around each marker as the form of the marker's role. Then compares the output of
/// both templates. Omits `runner_bos`, the text that the runner adds before each prompt. Keeps
/// white space around messages, which most templates strip. Throws DataError with the reason.
OllamaTemplate derive_ollama_template(const ChatFiles& chat, const std::string& runner_bos);

}  // namespace hybrid_trainer
