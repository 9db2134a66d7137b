#include "hybrid_trainer/core/error.h"

#include <cstdio>

namespace hybrid_trainer {

std::string join(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const auto& part : parts) text += (&part == parts.data() ? "" : separator) + part;
  return text;
}

std::string brief(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", value);
  return text;
}

ConfigError::ConfigError(std::vector<std::string> problems)
    : Error(ExitCode::kConfig, join(problems, "\n")), problems_(std::move(problems)) {}

}  // namespace hybrid_trainer
