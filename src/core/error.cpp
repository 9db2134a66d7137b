#include "hybrid_trainer/core/error.h"

#include <cstdio>

namespace hybrid_trainer {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

}  // namespace

std::string brief(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", value);
  return text;
}

ConfigError::ConfigError(std::vector<std::string> problems)
    : Error(ExitCode::kConfig, joined(problems)), problems_(std::move(problems)) {}

}  // namespace hybrid_trainer
