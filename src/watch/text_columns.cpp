#include "src/watch/text_columns.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/terminal_text.h"
#include "hybrid_trainer/files/utf8.h"

namespace hybrid_trainer {
namespace {

struct CharacterRange {
  char32_t first, last;
};

constexpr CharacterRange kWide[] = {{0x1100, 0x115F},   {0x2E80, 0xA4CF},  {0xAC00, 0xD7A3},
                                    {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},  {0xFF00, 0xFF60},
                                    {0x1F300, 0x1FAFF}, {0x20000, 0x3FFFD}};
constexpr CharacterRange kCombining[] = {{0x300, 0x36F}, {0x200B, 0x200F}, {0xFE00, 0xFE0F}};

std::size_t columns_of_character(char32_t value) {
  const auto holds = [&](const CharacterRange& range) {
    return value >= range.first && value <= range.last;
  };
  if (std::ranges::any_of(kCombining, holds)) return 0;
  return std::ranges::any_of(kWide, holds) ? 2 : 1;
}

/// Bytes and columns of the longest start that fits.
struct Fitting {
  std::size_t bytes = 0, columns = 0;
};

Fitting fitting(std::string_view text, std::size_t columns) {
  Fitting fits;
  while (fits.bytes < text.size()) {
    const CodePoint next = decode_utf8(text, fits.bytes);
    const std::size_t width = next.bytes == 0 ? 1 : columns_of_character(next.value);
    if (fits.columns + width > columns) break;
    fits.columns += width;
    fits.bytes += std::max<std::size_t>(next.bytes, 1);
  }
  return fits;
}

}  // namespace

std::size_t columns_of(std::string_view text) { return fitting(text, text.size() * 2).columns; }

std::string cut_to(std::string_view text, std::size_t columns) {
  const Fitting whole = fitting(text, columns);
  if (whole.bytes == text.size()) return std::string(text);
  if (columns == 0) return "";
  return std::string(text.substr(0, fitting(text, columns - 1).bytes)) + "…";
}

StyledLine& StyledLine::add(std::string_view text, std::string_view color) {
  std::string shown = printable(text);
  std::ranges::replace_if(
      shown, [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
  spans_.push_back({std::move(shown), std::string(color)});
  columns_ += columns_of(spans_.back().text);
  return *this;
}

StyledLine& StyledLine::pad_to(std::size_t column) {
  if (columns_ < column) add(std::string(column - columns_, ' '));
  return *this;
}

std::string StyledLine::text(std::size_t columns, bool colors) const {
  std::string out;
  std::size_t left = columns;
  for (const Span& span : spans_) {
    const std::string cut = cut_to(span.text, left);
    const bool styled = colors && !span.color.empty();
    out += styled ? concat("\x1b[", span.color, "m", cut, "\x1b[0m") : cut;
    if (cut.size() < span.text.size() || cut != span.text) break;
    left -= columns_of(cut);
  }
  return out;
}

}  // namespace hybrid_trainer
