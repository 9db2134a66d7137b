#include "src/fine_tuning/message_places.h"

#include <algorithm>
#include <cstdint>

namespace hybrid_trainer {

namespace {

using Span = RenderedChat::Span;

bool holds(const Span& outer, const Span& inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

}  // namespace

std::vector<std::optional<MessagePlace>> message_places(const RenderedChat& chat,
                                                        std::size_t count) {
  std::vector<std::optional<Span>> wholes(count);
  std::vector<bool> has_several(count, false);
  std::vector<std::int32_t> owners(chat.text.size(), -1);
  for (auto part = chat.parts.rbegin(); part != chat.parts.rend(); ++part) {  // inner ones last
    const auto& [message, span] = *part;
    std::fill(owners.begin() + static_cast<std::ptrdiff_t>(span.begin),
              owners.begin() + static_cast<std::ptrdiff_t>(span.end),
              static_cast<std::int32_t>(message));
    std::optional<Span>& whole = wholes[message];
    has_several[message] = has_several[message] || (whole && !holds(*whole, span));
    if (!whole) whole = span;
  }
  std::vector<std::optional<MessagePlace>> places(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (!wholes[i] || has_several[i]) continue;
    MessagePlace place;
    for (std::size_t at = wholes[i]->begin; at < wholes[i]->end; ++at) {
      if (owners[at] != static_cast<std::int32_t>(i)) {
        place.holds_others = true;
        continue;
      }
      if (place.spans.empty() || place.spans.back().end != at) place.spans.push_back({at, at});
      place.spans.back().end = at + 1;
    }
    if (!place.spans.empty()) places[i] = std::move(place);
  }
  return places;
}

}  // namespace hybrid_trainer
