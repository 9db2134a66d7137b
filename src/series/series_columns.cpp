#include "hybrid_trainer/series/series_columns.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// The next part of a list with commas, from `begin` on, which it moves behind it.
std::string next_part(const std::string& text, std::size_t& begin) {
  const std::string part = text.substr(begin, text.find(',', begin) - begin);
  begin += part.size() + 1;
  return part;
}

}  // namespace

SeriesColumns::SeriesColumns(const std::string& text, const std::string& key) {
  const auto refuse = [&](const std::string& problem) {
    throw ConfigError({concat(key, ": got \"", text, "\", ", problem,
                              "; want COLUMN,COLUMN,…,target=COLUMN, where rows are of several "
                              "series also series=COLUMN, and where rows may be missing also "
                              "time=COLUMN, such as speed,height,target=fuel")});
  };
  const auto set = [&](std::string& member, const char* name, const std::string& column) {
    if (!member.empty()) refuse(concat("which names ", name, " twice"));
    if (column.empty()) refuse(concat("in which ", name, "= has no column"));
    member = column;
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const std::string part = next_part(text, begin);
    if (part.empty()) refuse("in which a column has no name");
    if (part.starts_with("target=")) {
      set(target, "target", part.substr(7));
    } else if (part.starts_with("series=")) {
      set(series, "series", part.substr(7));
    } else if (part == "time=") {
      finds_time = false;
    } else if (part.starts_with("time=")) {
      set(time, "time", part.substr(5));
    } else if (std::ranges::find(inputs, part) != inputs.end()) {
      refuse(concat("which names the column ", part, " twice"));
    } else {
      inputs.push_back(part);
    }
  }
  if (inputs.empty()) refuse("which names no column of measurements");
  if (target.empty()) refuse("which names no target");
  if (std::ranges::find(inputs, target) != inputs.end())
    refuse(
        concat("in which the target ", target,
               " is also an input, so that the network reads the "
               "number that it has to tell; leave it out of the inputs, or add a column with the "
               "value of the row before and name that"));
}

}  // namespace hybrid_trainer
