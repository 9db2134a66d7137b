#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "src/chat/python_text.h"
#include "src/chat/value.h"

namespace hybrid_trainer::jinja {

namespace {

/// A text that grows up to what is allowed.
class Written {
 public:
  Written& operator<<(std::string_view part) {
    want_room(text_.size() + part.size(), "a value that is written out");
    text_ += part;
    return *this;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void write_repr(const Value& value, Written& out);

template <class Items, class Write>
void write_joined(const Items& items, std::string_view separator, Written& out, Write&& write) {
  bool is_first = true;
  for (const auto& item : items) {
    if (!std::exchange(is_first, false)) out << separator;
    write(item);
  }
}

void write_repr(const Sequence& sequence, Written& out) {
  out << (sequence.is_tuple ? "(" : "[");
  write_joined(*sequence.items, ", ", out, [&](const Value& item) { write_repr(item, out); });
  out << (!sequence.is_tuple ? "]" : sequence.items->size() == 1 ? ",)" : ")");
}

void write_repr(const Value& value, Written& out) {
  if (const auto* held = value.if_is<std::string>()) {
    out << (value.is_safe ? "Markup(" : "") << quoted_text(*held) << (value.is_safe ? ")" : "");
  } else if (const auto* held = value.if_is<bool>()) {
    out << (*held ? "True" : "False");
  } else if (const auto* held = value.if_is<std::int64_t>()) {
    out << std::to_string(*held);
  } else if (const auto* held = value.if_is<double>()) {
    out << float_text(*held);
  } else if (const auto* held = value.if_is<Sequence>()) {
    write_repr(*held, out);
  } else if (const auto* held = value.if_is<Mapping>()) {
    out << "{";
    write_joined(*held->entries, ", ", out, [&](const auto& entry) {
      out << quoted_text(entry.first) << ": ";
      write_repr(entry.second, out);
    });
    out << "}";
  } else if (value.is<None>() || value.is<Undefined>()) {
    out << (value.is<None>() ? "None" : "Undefined");
  } else {
    throw Problem(concat("a value of type ", type_of(value), " has no text"));
  }
}

void write_json(const Value& value, const JsonStyle& style, const std::string& margin,
                Written& out) {
  const std::string inner = margin + style.indent;
  const std::string separator = style.one_line ? ", " : ",\n" + inner;
  const auto enclosed = [&](const char* open, const auto& items, const char* close,
                            const auto& write) {
    const bool has_lines = !style.one_line && !items.empty();
    out << open << (has_lines ? "\n" + inner : "");
    write_joined(items, separator, out, write);
    out << (has_lines ? "\n" + margin : "") << close;
  };
  if (value.is<None>()) {
    out << "null";
  } else if (const auto* held = value.if_is<bool>()) {
    out << (*held ? "true" : "false");
  } else if (const auto* held = value.if_is<std::string>()) {
    out << json_quoted(*held, style.ascii);
  } else if (const auto* held = value.if_is<double>(); held != nullptr && !std::isfinite(*held)) {
    out << (std::isnan(*held) ? "NaN" : *held < 0 ? "-Infinity" : "Infinity");
  } else if (value.is<std::int64_t>() || value.is<double>()) {
    write_repr(value, out);
  } else if (const auto* held = value.if_is<Sequence>()) {
    enclosed("[", *held->items, "]",
             [&](const Value& item) { write_json(item, style, inner, out); });
  } else if (const auto* held = value.if_is<Mapping>()) {
    std::vector<const Dict::value_type*> entries;
    for (const auto& entry : *held->entries) entries.push_back(&entry);
    if (style.sorted)
      std::ranges::sort(entries, {},
                        [](const auto* entry) { return std::string_view(entry->first); });
    enclosed("{", entries, "}", [&](const auto* entry) {
      out << json_quoted(entry->first, style.ascii) << ": ";
      write_json(entry->second, style, inner, out);
    });
  } else {
    throw Problem(concat("tojson: a value of type ", type_of(value), " is no JSON"));
  }
}

}  // namespace

std::string text_of(const Value& value) {
  if (const auto* held = value.if_is<std::string>()) return *held;
  return value.is<Undefined>() ? "" : repr_of(value);
}

std::string repr_of(const Value& value) {
  Written out;
  write_repr(value, out);
  return out.take();
}

std::string json_of(const Value& value, const JsonStyle& style) {
  Written out;
  write_json(value, style, "", out);
  return out.take();
}

}  // namespace hybrid_trainer::jinja
