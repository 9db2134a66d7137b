#include "src/chat/go_template.h"

#include <algorithm>
#include <string_view>

#include "src/chat/python_text.h"

namespace hybrid_trainer {
namespace {

using Place = GoTemplate::Place;
using SegmentKind = GoTemplate::Segment::Kind;

const char* condition_of(Place place) {
  switch (place) {
    case Place::kFirst:
      return "eq $i 0";
    case Place::kAfterSystem:
      return "and (eq $i 1) $.System";
    case Place::kLast:
      return "$last";
    case Place::kLastWithSystem:
      return "and $last $.System";
    case Place::kAny:
      break;
  }
  return "true";
}

/// A text between actions: Go would take "{{" for the begin of one.
std::string literal(std::string_view plain) {
  std::string text = jinja::replaced(plain, "{{", R"({{ "{{" }})", -1);
  if (text.ends_with('{')) text.replace(text.size() - 1, 1, R"({{ "{" }})");  // before an action
  return text;
}

std::string text_of(const GoTemplate::Segments& segments) {
  std::string text;
  for (const GoTemplate::Segment& segment : segments) {
    if (segment.kind == SegmentKind::kText) text += literal(segment.text);
    if (segment.kind == SegmentKind::kContent) text += "{{ .Content }}";
    if (segment.kind == SegmentKind::kSystem) text += "{{ $.System }}";
  }
  return text;
}

std::string text_of(const GoTemplate::Turn& turn) {
  std::string text;
  bool first = true, needs_end = false;
  for (const auto& [place, segments] : turn.forms) {
    if (place == Place::kAny && first) return text_of(segments);
    if (place == Place::kAny) {
      text += "{{ else }}" + text_of(segments);
    } else {
      text += std::string(first ? "{{ if " : "{{ else if ") + condition_of(place) + " }}" +
              text_of(segments);
    }
    first = false;
    needs_end = true;
    if (place == Place::kAny) break;
  }
  return needs_end ? text + "{{ end }}" : text;
}

/// The system's messages as $.System has them.
std::string system_in(const std::vector<GoMessage>& messages) {
  std::string system;
  for (const GoMessage& message : messages)
    if (message.role == "system") system += (system.empty() ? "" : "\n\n") + message.content;
  return system;
}

struct Seen {
  std::size_t index;
  bool is_last;
  const std::string& system;
};

bool holds(Place place, const Seen& seen) {
  const bool has_system = !seen.system.empty();
  switch (place) {
    case Place::kFirst:
      return seen.index == 0;
    case Place::kAfterSystem:
      return seen.index == 1 && has_system;
    case Place::kLast:
      return seen.is_last;
    case Place::kLastWithSystem:
      return seen.is_last && has_system;
    case Place::kAny:
      break;
  }
  return true;
}

std::string render(const GoTemplate::Turn& turn, const GoMessage& message, const Seen& seen) {
  const auto form =
      std::ranges::find_if(turn.forms, [&](const auto& one) { return holds(one.first, seen); });
  std::string text;
  if (form == turn.forms.end()) return text;
  for (const GoTemplate::Segment& segment : form->second) {
    if (segment.kind == SegmentKind::kText) text += segment.text;
    if (segment.kind == SegmentKind::kContent) text += message.content;
    if (segment.kind == SegmentKind::kSystem) text += seen.system;
  }
  return text;
}

}  // namespace

std::string text_of(const GoTemplate& source) {
  std::string text =
      "{{ range $i, $_ := .Messages }}{{ $last := eq (len (slice $.Messages $i)) 1 }}";
  const char* begin = "{{ if eq .Role \"";
  for (const GoTemplate::Turn& turn : source.turns) {
    text += begin + turn.role + "\" }}" + text_of(turn);
    begin = "{{ else if eq .Role \"";
  }
  if (!source.turns.empty()) text += "{{ end }}";
  if (!source.generation_prompt.empty())
    text += "{{ if and $last (ne .Role \"assistant\") }}" + literal(source.generation_prompt) +
            "{{ end }}";
  return text + "{{ end }}";
}

std::string render(const GoTemplate& source, const std::vector<GoMessage>& messages) {
  const std::string system = system_in(messages);
  std::string text;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Seen seen{i, i + 1 == messages.size(), system};
    for (const GoTemplate::Turn& turn : source.turns)
      if (turn.role == messages[i].role) text += render(turn, messages[i], seen);
    if (seen.is_last && messages[i].role != "assistant") text += source.generation_prompt;
  }
  return text;
}

}  // namespace hybrid_trainer
