#include "hybrid_trainer/core/fields.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"

namespace hybrid_trainer {

std::string Range::text() const {
  const auto end = [](double value) {
    return std::isinf(value) ? std::string(value < 0 ? "-inf" : "inf") : concat(value);
  };
  return concat(low_open || std::isinf(low) ? "(" : "[", end(low), ", ", end(high),
                high_open || std::isinf(high) ? ")" : "]");
}

std::string range_problem(const std::string& path, double value, const Range& range) {
  return concat(path, ": got ", value, ", want a number in ", range.text());
}

std::string choice_problem(const std::string& path, const std::string& value,
                           const std::vector<std::string>& choices) {
  std::vector<std::string> shown = choices;
  std::ranges::replace(shown, std::string(), std::string("\"\""));
  return concat(path, ": got \"", value, "\"", name_hint(value, shown));
}

}  // namespace hybrid_trainer
