#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
