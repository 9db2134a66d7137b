#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

/// Ends a text that comes in pieces before the first of some strings. What may be the beginning of one
/// is held back until it is known.
class StopStrings {
 public:
  /// Throws UsageError of an empty one.
  explicit StopStrings(std::vector<std::string> strings);
  /// The text that surely comes before any of them.
  std::string add(std::string_view piece);
  /// Whether one of them came: nothing follows.
  bool reached() const { return reached_; }
  /// The text that was held back, if the text ends without a stop.
  std::string rest();

 private:
  std::vector<std::string> strings_;
  std::string held_;
  bool reached_ = false;
};

}  // namespace hybrid_trainer
