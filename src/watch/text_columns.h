#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
