#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// Labels of an example: one class, any number of classes, or a number. Each is a problem_type of
/// transformers: single_label_classification, multi_label_classification, regression.
enum class LabelKind { kSingle, kSeveral, kRegression };
/// Returns "single", "several", "regression", the values of classification.type.
const std::vector<std::string>& label_kind_names();

/// Interval of valid scores.
struct ScoreRange {
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();
};

/// Returns a number, or a text that is a number, as in CSV; none for other values.
std::optional<double> number_in(const boost::json::value& value);
/// Returns a score as f32. `name` is its key. Throws DataError unless it is a finite number in the
/// range.
float score_in(const boost::json::value& value, std::string_view name,
               const ScoreRange& range = {});

/// Reads the labels of a file:
///   "spam", 3, true           one class, by name or number
///   ["news", "sport"]         several classes by name; also as JSON text, for CSV
///   [0, 1, 1]                 several classes: 1 for each class of the example
///   2.5                       a number, for regression
class ClassLabels {
 public:
  /// Determines the kind of the labels and the class names if they are not given. Labels are
  /// several classes if most are lists, and numbers if most are numbers and one of these is not an
  /// integer. The names are sorted, numerically if all are numbers; lists of 0 and 1 have the names
  /// "LABEL_0", "LABEL_1", … of transformers. `labels` has null for an example without a label.
  ClassLabels(std::span<const boost::json::value> labels, std::optional<LabelKind> kind,
              std::vector<std::string> names);

  LabelKind kind() const { return kind_; }
  /// Returns the classes' names; empty for regression.
  const std::vector<std::string>& names() const { return names_; }

  /// Returns the class of a label of kSingle. A number is a class's name or, unless all names are
  /// numbers, its index. Throws DataError.
  std::int32_t class_of(const boost::json::value& label) const;
  /// Returns 0 or 1 for each class, or the number for regression. Throws DataError.
  std::vector<float> numbers_of(const boost::json::value& label) const;

 private:
  std::string name_in(const boost::json::value& label) const;
  std::int32_t index_of(const std::string& name) const;
  void collect_names(std::span<const boost::json::value> labels);
  [[noreturn]] void refuse(const boost::json::value& label) const;

  LabelKind kind_ = LabelKind::kSingle;
  std::vector<std::string> names_;
  bool names_are_numbers_ = false;
  std::optional<bool> are_texts_{};  // labels of the data, if the names are from the data
};

/// Returns the label, or the list that it is the JSON text of. Throws DataError for a list in
/// Python's format.
boost::json::value parsed_label(const boost::json::value& label);

}  // namespace hybrid_trainer
