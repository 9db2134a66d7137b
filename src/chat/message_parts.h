#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "hybrid_trainer/chat/chat_template.h"
#include "src/chat/nodes.h"

namespace hybrid_trainer::jinja {

/// Notes which of `messages` each round of a loop writes: its item, or what it looks up by its
/// number. Messages are told by their address, which slices and filters keep; they are held, so that
/// nothing else gets one.
class MessageParts {
 public:
  explicit MessageParts(const Dict& variables) {
    if (const Value* messages = find(variables, "messages")) messages_ = *messages;
    const auto* list = messages_.if_is<Sequence>();
    for (std::size_t i = 0; list != nullptr && i < list->items->size(); ++i) {
      const auto* message = (*list->items)[i].if_is<Mapping>();
      if (message != nullptr) numbers_.emplace(message->entries.get(), i);
    }
  }

  /// Runs the body of a round over `item`; `captured`: what it writes goes elsewhere first.
  template <class Body>
  void in_round(const Expression& target, const Value& item, RenderedChat& rendered, bool captured,
                Body&& body) {
    Round round;
    if (target.kind == Expression::Kind::kName) round.target = target.text;
    round.message = number_of(item);
    const std::size_t begin = rendered.text.size();
    Round* const around = std::exchange(round_, &round);
    body();
    round_ = around;
    const std::size_t end = rendered.text.size();
    if (round.message && !captured && end > begin)
      rendered.parts.push_back({*round.message, {begin, end}});
  }

  /// What an expression like messages[i] gave.
  void looked_up(const Expression& index, const Value& value) {
    if (round_ == nullptr || round_->message || index.kind != Expression::Kind::kName) return;
    if (index.text == round_->target) round_->message = number_of(value);
  }

 private:
  struct Round {
    std::string_view target{};
    std::optional<std::size_t> message{};
  };

  std::optional<std::size_t> number_of(const Value& value) const {
    const auto* held = value.if_is<Mapping>();
    const auto found = held == nullptr ? numbers_.end() : numbers_.find(held->entries.get());
    return found == numbers_.end() ? std::nullopt : std::optional(found->second);
  }

  Value messages_;
  std::map<const Dict*, std::size_t> numbers_;
  Round* round_ = nullptr;  // the innermost one
};

}  // namespace hybrid_trainer::jinja
