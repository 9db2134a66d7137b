#pragma once

#include <optional>
#include <vector>

#include "hybrid_trainer/chat/chat_template.h"

namespace hybrid_trainer {

/// Where a text has a message: what one round of the template's loop wrote.
struct MessagePlace {
  /// Without what an inner loop wrote of other messages; in order, never empty.
  std::vector<RenderedChat::Span> spans;
  bool holds_others = false;  // there is such
};

/// The place of each of `count` messages; none where the text has none, or several.
std::vector<std::optional<MessagePlace>> message_places(const RenderedChat& chat,
                                                        std::size_t count);

}  // namespace hybrid_trainer
