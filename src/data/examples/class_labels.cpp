#include "src/data/examples/class_labels.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <set>

#include "src/core/messages.h"
#include "src/core/narrow.h"
#include "src/files/json.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kExcerpt = 60;  // characters of a value in a message

std::optional<double> number_in_text(std::string_view text) {
  text = trimmed(text);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

bool is_integer(double number) { return std::trunc(number) == number; }  // false for NaN

/// Returns the first names, quoted: "a", "b" and 3 more.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kListed = 8;
  std::vector<std::string> quoted;
  for (const std::string& name : names)
    if (quoted.size() < kListed) quoted.push_back(json_string(name.substr(0, kExcerpt)));
  return concat(join(quoted),
                names.size() > kListed ? concat(" and ", names.size() - kListed, " more") : "");
}

std::string excerpt(const json::value& value) { return json_line(value).substr(0, kExcerpt); }

/// Returns whether a list contains one number per class instead of the names of some classes.
bool has_numbers(const json::array& list) {
  return !list.empty() && std::ranges::all_of(list, [](const json::value& item) {
    return item.is_number() || item.is_bool();
  });
}

bool are_numbers(const std::vector<std::string>& names) {
  return !names.empty() && std::ranges::all_of(names, [](const std::string& name) {
    return std::isfinite(number_in_text(name).value_or(HUGE_VAL));
  });
}

LabelKind kind_of(std::span<const json::value> labels) {
  std::size_t count = 0, lists = 0, numbers = 0;
  bool has_fraction = false;
  for (const json::value& label : labels) {
    if (label.is_null()) continue;
    ++count;
    if (label.is_array()) ++lists;
    const std::optional<double> number = number_in(label);
    if (number) ++numbers;
    has_fraction = has_fraction || (number && std::isfinite(*number) && !is_integer(*number));
  }
  if (2 * lists > count) return LabelKind::kSeveral;
  return has_fraction && 2 * numbers > count ? LabelKind::kRegression : LabelKind::kSingle;
}

}  // namespace

const std::vector<std::string>& label_kind_names() {
  static const std::vector<std::string> names{"single", "several", "regression"};
  return names;
}

std::optional<double> number_in(const json::value& value) {
  return value.is_string() ? number_in_text(value.get_string()) : number_of(value);
}

float score_in(const json::value& value, std::string_view name, const ScoreRange& range) {
  const std::optional<double> number = number_in(value);
  if (!number) throw DataError(concat('"', name, "\" is ", excerpt(value), "; want a number"));
  if (!std::isfinite(static_cast<float>(*number)))
    throw DataError(concat('"', name, "\" is ", excerpt(value), "; want a finite number"));
  if (*number < range.lowest || *number > range.highest)
    throw DataError(concat('"', name, "\" is ", excerpt(value), "; want a number from ",
                           shortest(range.lowest), " to ", shortest(range.highest)));
  return static_cast<float>(*number);
}

json::value parsed_label(const json::value& label) {
  if (!label.is_string()) return label;
  const std::string_view text = trimmed(label.get_string());
  if (!text.starts_with('[') || !text.ends_with(']')) return label;
  if (text.starts_with("['"))
    throw DataError("the label is a list in Python's format, not JSON; write it with json.dumps");
  try {
    return parse_json_text(text, "label");
  } catch (const DataError&) {
    return label;
  }
}

ClassLabels::ClassLabels(std::span<const json::value> labels, std::optional<LabelKind> kind,
                         std::vector<std::string> names)
    : kind_(kind ? *kind : kind_of(labels)), names_(std::move(names)) {
  if (kind_ == LabelKind::kRegression) {
    names_.clear();
  } else if (names_.empty()) {
    collect_names(labels);
  }
  names_are_numbers_ = are_numbers(names_);
}

void ClassLabels::collect_names(std::span<const json::value> labels) {
  std::size_t texts = 0, others = 0, classes = 0;
  const auto count = [&](const json::value& label) {
    ++(label.is_string() || label.is_bool() ? texts : others);
  };
  for (const json::value& label : labels) {
    const json::array* const list = label.if_array();
    if (kind_ == LabelKind::kSeveral && list != nullptr) {
      if (has_numbers(*list) && classes == 0) classes = list->size();
      ++(has_numbers(*list) ? others : texts);
    } else if (kind_ == LabelKind::kSingle && list == nullptr && !label.is_null()) {
      count(label);
    }
  }
  are_texts_ = texts >= others;
  if (kind_ == LabelKind::kSeveral && !*are_texts_) {
    for (std::size_t i = 0; i < classes; ++i) names_.push_back(concat("LABEL_", i));
    return;
  }
  std::set<std::string> found;
  const auto collect = [&](const json::value& label) {
    try {
      found.insert(name_in(label));
    } catch (const DataError&) {  // class_of and numbers_of refuse the label
    }
  };
  for (const json::value& label : labels) {
    const json::array* const list = label.if_array();
    if (kind_ == LabelKind::kSeveral && list != nullptr)
      std::ranges::for_each(*list, collect);
    else if (kind_ == LabelKind::kSingle && !label.is_null())
      collect(label);
  }
  names_.assign(found.begin(), found.end());
  if (!are_numbers(names_)) return;
  const auto number = [](const std::string& name) { return *number_in_text(name); };
  std::ranges::stable_sort(names_, {}, number);
  const auto repeated = std::ranges::unique(names_, {}, number);  // "1" and "1.0"
  names_.erase(repeated.begin(), repeated.end());
}

std::string ClassLabels::name_in(const json::value& label) const {
  if (label.is_bool()) return label.get_bool() ? "true" : "false";
  const std::optional<double> number = number_of(label);
  const bool is_class_number = number && is_integer(*number) && holds_number<std::int64_t>(*number);
  if (!label.is_string() && !is_class_number) refuse(label);
  if (are_texts_ && *are_texts_ != label.is_string())
    throw DataError(concat("the label is ", excerpt(label), ", but most other labels are ",
                           *are_texts_ ? "names" : "numbers",
                           "; write all labels in the same way"));
  if (is_class_number)
    return std::to_string(label.is_int64() ? label.get_int64()
                                           : static_cast<std::int64_t>(*number));
  const std::string_view name = label.get_string();
  if (trimmed(name).empty()) throw DataError("the label is empty; want the name of a class");
  return std::string(name);
}

std::int32_t ClassLabels::index_of(const std::string& name) const {
  const auto found = std::ranges::find(names_, name);
  if (found != names_.end()) return narrow<std::int32_t>(found - names_.begin());
  const std::optional<double> number = number_in_text(name);
  if (names_are_numbers_ && number) {
    const auto equal = std::ranges::find(names_, number, number_in_text);
    if (equal != names_.end()) return narrow<std::int32_t>(equal - names_.begin());
  }
  const auto count = static_cast<double>(names_.size());
  if (!names_are_numbers_ && number && is_integer(*number) && *number >= 0 && *number < count)
    return narrow<std::int32_t>(*number);
  if (names_are_numbers_ || !number)
    throw DataError(concat("the label ", json_string(name.substr(0, kExcerpt)),
                           " is not a class of the model; its classes are ", listed(names_)));
  throw DataError(concat("the label ", name.substr(0, kExcerpt),
                         " is not a class of the model; want ", "a number from 0 to ",
                         names_.size() - 1, ", or one of ", listed(names_)));
}

std::int32_t ClassLabels::class_of(const json::value& label) const {
  return index_of(name_in(label));
}

std::vector<float> ClassLabels::numbers_of(const json::value& label) const {
  if (kind_ == LabelKind::kRegression) {
    if (label.is_array() || label.is_object() || label.is_bool()) refuse(label);
    return {score_in(label, "label")};
  }
  const json::array* const list = label.if_array();
  if (list == nullptr) refuse(label);
  std::vector<float> values(names_.size());
  if (!has_numbers(*list) && are_texts_.value_or(true)) {
    for (const json::value& item : *list)
      values[static_cast<std::size_t>(index_of(name_in(item)))] = 1;
    return values;
  }
  if (are_texts_.value_or(false)) refuse(label);
  if (list->size() != names_.size())
    throw DataError(concat("the label has ", list->size(), " numbers; want ", names_.size(),
                           ", a 0 or 1 for each class"));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const json::value& item = (*list)[i];
    const std::optional<double> number = item.is_bool() ? item.get_bool() : number_of(item);
    if (number != 0.0 && number != 1.0)
      throw DataError(concat("the label has ", excerpt(item), "; want 0 or 1 for each class"));
    values[i] = static_cast<float>(*number);
  }
  return values;
}

void ClassLabels::refuse(const json::value& label) const {
  const char* const wanted = kind_ == LabelKind::kSingle       ? "one class, by name or number"
                             : kind_ == LabelKind::kRegression ? "a number"
                             : are_texts_.value_or(true)       ? "a list of class names"
                                                         : "a list with a 0 or 1 for each class";
  throw DataError(concat("the label is ", excerpt(label), "; want ", wanted));
}

}  // namespace hybrid_trainer
