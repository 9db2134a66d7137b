#include "src/observability/watch/terminal_drawing.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "src/files/escaped_text.h"
#include "src/files/text.h"

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

/// Size, in bytes and columns, of the longest prefix that fits.
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

BraillePlot::BraillePlot(std::size_t columns, std::size_t rows)
    : columns_(columns),
      rows_(rows),
      dots_(rows, std::vector<unsigned>(columns)),
      cells_(rows, std::vector<std::string>(columns, " ")) {}

/// Returns the height of a value, in dots from the bottom; `low` is at 0.
std::size_t BraillePlot::height_of(double value, double low, double high) const {
  const double top = static_cast<double>(4 * rows_ - 1);
  const double share = high > low ? (value - low) / (high - low) : 0.5;
  return static_cast<std::size_t>(std::lround(std::clamp(share, 0., 1.) * top));
}

void BraillePlot::set(std::size_t x, std::size_t y) {
  static constexpr unsigned kBits[2][4] = {{0x40, 0x04, 0x02, 0x01}, {0x80, 0x20, 0x10, 0x08}};
  const std::size_t row = rows_ - 1 - y / 4, column = x / 2;
  unsigned& cell = dots_[row][column];
  cell |= kBits[x % 2][y % 4];
  cells_[row][column].clear();
  append_utf8(0x2800 + cell, cells_[row][column]);
}

void BraillePlot::draw(const std::vector<std::optional<double>>& values, double low, double high) {
  std::optional<std::size_t> before;  // the last column with a value
  for (std::size_t x = 0; x < std::min(values.size(), 2 * columns_); ++x) {
    if (!values[x]) continue;
    const std::size_t y = height_of(*values[x], low, high);
    const std::size_t from = before.value_or(x);
    const double was = static_cast<double>(height_of(*values[from], low, high));
    std::size_t last = static_cast<std::size_t>(was);
    for (std::size_t i = before ? from + 1 : x; i <= x; ++i) {
      const double share =
          x == from ? 1 : static_cast<double>(i - from) / static_cast<double>(x - from);
      const auto here =
          static_cast<std::size_t>(std::lround(was + share * (static_cast<double>(y) - was)));
      const std::size_t next = here > last ? last + 1 : here < last ? last - 1 : here;
      for (std::size_t dot = std::min(next, here); dot <= std::max(next, here); ++dot) set(i, dot);
      last = here;
    }
    before = x;
  }
}

void BraillePlot::mark(std::size_t column, double value, double low, double high) {
  if (column >= columns_) return;
  cells_[rows_ - 1 - height_of(value, low, high) / 4][column] = "◆";
}

std::size_t LossCurve::column(std::int64_t step, std::size_t columns) const {
  if (last <= first || columns == 0) return 0;
  const double share = static_cast<double>(std::clamp(step, first, last) - first) /
                       static_cast<double>(last - first);
  return static_cast<std::size_t>(std::lround(share * static_cast<double>(columns - 1)));
}

LossCurve loss_curve(const Curves& curves, std::size_t columns) {
  LossCurve curve;
  curve.values.resize(columns);
  const auto& points = curves.points();
  if (points.empty()) return curve;
  curve.first = points.front().last_step - points.front().step_count() + 1;
  curve.last = points.back().last_step;
  std::vector<double> losses, sums(columns);
  std::vector<int> counts(columns);
  for (const CurvePoint& point : points) {
    if (point.finite_losses == 0) continue;
    losses.push_back(point.mean_loss());
    const std::size_t column = curve.column(point.last_step, columns);
    sums[column] += losses.back();
    ++counts[column];
  }
  if (losses.empty()) return curve;
  for (std::size_t i = 0; i < columns; ++i)
    if (counts[i] > 0) curve.values[i] = sums[i] / counts[i];
  std::ranges::sort(losses);
  const std::size_t top = losses.size() - 1;
  curve.low = losses.front();
  curve.high = losses[losses.size() < 60 ? top : top * 985 / 1000];  // excludes an initial spike
  for (const CurveMark& mark : curves.validation()) curve.low = std::min(curve.low, mark.value);
  return curve;
}

std::string sparkline(const Curves& curves, std::size_t columns) {
  static constexpr const char* kHeights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const LossCurve curve = loss_curve(curves, columns);
  std::string text;
  for (const std::optional<double>& value : curve.values) {
    const double span = curve.high > curve.low ? curve.high - curve.low : 1;
    if (value) {
      const double share = std::clamp((*value - curve.low) / span, 0., 1.);
      text += kHeights[std::lround(7 * share)];
    } else {
      text += " ";
    }
  }
  return text;
}

}  // namespace hybrid_trainer
