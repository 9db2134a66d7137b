#pragma once

#include <string_view>

#include "hybrid_trainer/core/phase.h"
#include "src/observability/curves.h"

namespace hybrid_trainer {

/// Numbers of a terminal's escape sequences.
constexpr const char* kSoft = "2";
constexpr const char* kBold = "1";
constexpr const char* kRed = "31";
constexpr const char* kGreen = "32";

inline const char* color_of(Phase phase) {
  static constexpr std::array<const char*, kPhases> kColors{"36", "34", "35", "33"};
  return kColors[static_cast<std::size_t>(phase)];
}

/// Columns that UTF-8 text takes in a terminal: two for wide characters, none for combining ones.
std::size_t columns_of(std::string_view text);
/// The longest start of a text that fits into so many columns, with "…" where something is left out.
std::string cut_to(std::string_view text, std::size_t columns);

/// A line of text in several colors, with control characters made visible.
class StyledLine {
 public:
  /// `color`: the number of a terminal's escape sequence, such as "34"; "" for none.
  StyledLine& add(std::string_view text, std::string_view color = "");
  /// Spaces up to a column.
  StyledLine& pad_to(std::size_t column);
  std::size_t columns() const { return columns_; }
  /// Cut to `columns`, with or without escape sequences.
  std::string text(std::size_t columns, bool colors) const;

 private:
  struct Span {
    std::string text, color;
  };
  std::vector<Span> spans_;
  std::size_t columns_ = 0;
};

/// A curve in Braille characters, each of two by four dots.
class BraillePlot {
 public:
  /// In characters.
  BraillePlot(std::size_t columns, std::size_t rows);
  /// A curve that has a value for each column of dots, 2 × columns of them, from `low` at the bottom to
  /// `high` at the top; others are drawn at the border. Absent values are bridged.
  void draw(const std::vector<std::optional<double>>& values, double low, double high);
  /// A mark over the dots, at a column of characters.
  void mark(std::size_t column, double value, double low, double high);
  /// One string for each cell, row by row from the top: "⡠", " " or the mark "◆".
  const std::vector<std::vector<std::string>>& rows() const { return cells_; }

 private:
  std::size_t height_of(double value, double low, double high) const;
  void set(std::size_t x, std::size_t y);
  std::size_t columns_, rows_;
  std::vector<std::vector<unsigned>> dots_;
  std::vector<std::vector<std::string>> cells_;
};

/// A run's curve over columns, and the range that it is drawn in.
struct LossCurve {
  std::vector<std::optional<double>> values;  // means of the points that fall into each column
  double low = 0, high = 1;
  std::int64_t first = 0, last = 0;  // steps

  /// The column, of `columns`, that a step falls into.
  std::size_t column(std::int64_t step, std::size_t columns) const;
};

LossCurve loss_curve(const Curves& curves, std::size_t columns);

/// A curve of so many characters, "▇▅▃▂▁".
std::string sparkline(const Curves& curves, std::size_t columns);

}  // namespace hybrid_trainer
