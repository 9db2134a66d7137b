#include "hybrid_trainer/core/shell_word.h"

#include <algorithm>
#include <cctype>

namespace hybrid_trainer {

std::string shell_word(const std::string& word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  const bool controls =
      std::ranges::any_of(word, [](unsigned char c) { return std::iscntrl(c) != 0; });
  std::string quoted = controls ? "$'" : "'";
  for (const char character : word) {
    const auto byte = static_cast<unsigned char>(character);
    if (std::iscntrl(byte) != 0) {  // on one line, and harmless to a terminal
      constexpr const char* kDigits = "0123456789abcdef";
      ((quoted += "\\x") += kDigits[byte >> 4]) += kDigits[byte & 15];
    } else if (controls && (character == '\'' || character == '\\')) {
      (quoted += '\\') += character;
    } else {
      quoted += character == '\'' ? "'\\''" : std::string(1, character);
    }
  }
  return quoted + "'";
}

std::string shell_path(const std::filesystem::path& path) {
  const std::string text = path.string();
  return shell_word(text.starts_with('-') ? "./" + text : text);
}

}  // namespace hybrid_trainer
