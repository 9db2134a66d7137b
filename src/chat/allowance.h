#pragma once

#include <cstddef>

#include "src/chat/value.h"

namespace hybrid_trainer::jinja {

/// What one rendering may compute and hold, so that it ends soon whatever the template does. It
/// grows with what the template is given. Counts are of operations and bytes, not of time, so that
/// the same chat is always rendered or always refused.
class Allowance {
 public:
  explicit Allowance(std::size_t input_bytes);

  /// Each throws Problem where that is too much.
  void spend(std::size_t operations) {
    operations_ += operations;
    if (operations_ > most_operations_) refuse();
  }
  /// For an operation that looks at so much.
  void spend_on_reading(std::size_t bytes);
  /// For the copy that a value is, without what lists share.
  void spend_on_copy(const Value& value);
  void spend_on_bytes(std::size_t bytes);
  void check_output(std::size_t bytes) const;

 private:
  [[noreturn]] void refuse() const;
  std::size_t input_bytes_, most_operations_;
  std::size_t operations_ = 0, bytes_ = 0;
};

}  // namespace hybrid_trainer::jinja
