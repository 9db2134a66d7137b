#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/fine_tuning/example_rows.h"
#include "src/fine_tuning/normal_row.h"

namespace hybrid_trainer {

/// A chat as text, with what is trained on.
struct RenderedRow {
  using Span = RenderedChat::Span;
  std::string text{};
  std::vector<Span> targets{};           // in order, apart
  std::int64_t left_out = 0;             // answers that are not found in the text
  std::optional<Span> last_answer{};     // where the chat ends with a target
  std::optional<std::string> ending{};   // what is behind what that says, where this is known
  std::vector<std::string> unwritten{};  // keys of texts that the template leaves out
};

struct FoundAnswers {
  RenderedRow row;
  bool writes_calls = false;  // whether each answer names the tools that it calls
};
/// The answers in one rendering of a row. Throws DataError where they cannot be told.
FoundAnswers find_answers(const ExampleFormat& format, const NormalRow& row, RenderedChat chat);

}  // namespace hybrid_trainer
