#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/fine_tuning/example_rows.h"
#include "normal_row.h"

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

/// Renders chats by a model folder's template and finds the answers, what the assistant says, in
/// the text of the whole chat, in time proportional to its length.
///
/// An answer is what the template writes of its message, through the end of the turn, but for what
/// it begins with in common with the generation prompt. Where a template has `generation` blocks,
/// these are the answers. An answer is left out where the template does not write it, or its tool
/// calls, or writes it in several places.
class ChatRows {
 public:
  explicit ChatRows(const ExampleFormat& format);

  /// How the template takes messages.
  const MessageForm& form() const { return form_; }

  /// `row` is the example in this form; where the template refuses that, or does not write its
  /// tool calls so, the others are tried. Throws DataError where the template refuses all.
  RenderedRow render(const boost::json::object& example, const NormalRow& row) const;

 private:
  const ExampleFormat& format_;
  MessageForm form_;
};

}  // namespace hybrid_trainer
