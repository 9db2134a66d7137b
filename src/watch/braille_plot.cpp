#include "src/watch/braille_plot.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/files/utf8.h"

namespace hybrid_trainer {

BraillePlot::BraillePlot(std::size_t columns, std::size_t rows)
    : columns_(columns),
      rows_(rows),
      dots_(rows, std::vector<unsigned>(columns)),
      cells_(rows, std::vector<std::string>(columns, " ")) {}

/// In dots from the bottom.
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

}  // namespace hybrid_trainer
