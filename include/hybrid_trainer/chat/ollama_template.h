#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/chat/chat_template.h"

namespace hybrid_trainer {

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
