#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/fine_tuning/example_rows.h"
#include "src/fine_tuning/answer_finder.h"

namespace hybrid_trainer {

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
