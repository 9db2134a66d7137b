#pragma once

#include <string_view>

#include "hybrid_trainer/core/phase.h"
#include "src/observability/curves.h"

namespace hybrid_trainer {

/// Parameters of the terminal's escape sequences for colors.
constexpr const char* kSoft = "2";
constexpr const char* kBold = "1";
constexpr const char* kRed = "31";
constexpr const char* kGreen = "32";

inline const char* color_of(Phase phase) {
  static constexpr std::array<const char*, kPhases> kColors{"36", "34", "35", "33"};
  return kColors[static_cast<std::size_t>(phase)];
}

/// Returns the columns of UTF-8 text: two for a wide character, none for a combining one.
std::size_t columns_of(std::string_view text);
/// Returns the longest prefix that fits into `columns`, with "…" if it is shortened.
std::string cut_to(std::string_view text, std::size_t columns);

/// A line of text in several colors. Control characters are replaced by visible characters.
class StyledLine {
 public:
  /// `color` is the parameter of a terminal escape sequence, such as "34"; "" means no color.
  StyledLine& add(std::string_view text, std::string_view color = "");
  StyledLine& pad_to(std::size_t column);
  std::size_t columns() const { return columns_; }
  std::string text(std::size_t columns, bool colors) const;

 private:
  struct Span {
    std::string text, color;
  };
  std::vector<Span> spans_;
  std::size_t columns_ = 0;
};

/// A plot in Braille characters, each of which has two by four dots.
class BraillePlot {
 public:
  BraillePlot(std::size_t columns, std::size_t rows);
  /// Draws a curve of 2 · `columns` values, one per column of dots. `low` is at the bottom and
  /// `high` at the top; values outside this range are drawn at the edge. The curve continues across
  /// absent values.
  void draw(const std::vector<std::optional<double>>& values, double low, double high);
  /// Draws a mark over the dots, at a column of characters.
  void mark(std::size_t column, double value, double low, double high);
  /// Returns one string per cell, row by row from the top: "⡠", " " or the mark "◆".
  const std::vector<std::vector<std::string>>& rows() const { return cells_; }

 private:
  std::size_t height_of(double value, double low, double high) const;
  void set(std::size_t x, std::size_t y);
  std::size_t columns_, rows_;
  std::vector<std::vector<unsigned>> dots_;
  std::vector<std::vector<std::string>> cells_;
};

/// A run's loss curve over columns, and its ranges of losses and steps.
struct LossCurve {
  std::vector<std::optional<double>> values;  // mean of the points in each column
  double low = 0, high = 1;
  std::int64_t first = 0, last = 0;  // first and last step

  std::size_t column(std::int64_t step, std::size_t columns) const;
};

LossCurve loss_curve(const Curves& curves, std::size_t columns);

/// Returns a curve of `columns` characters, "▇▅▃▂▁".
std::string sparkline(const Curves& curves, std::size_t columns);

}  // namespace hybrid_trainer
