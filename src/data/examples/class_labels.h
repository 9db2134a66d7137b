#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// Kind of an example's labels: one class, any number of classes, or a number. These are the values
/// of problem_type in transformers.
enum class LabelKind { kSingle, kSeveral, kRegression };
const std::vector<std::string>& label_kind_names();

struct ScoreRange {
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();
};

/// Returns a number, also from a text as in CSV, or nullopt for other values.
std::optional<double> number_in(const boost::json::value& value);
/// Returns a score as f32. Throws DataError naming the key unless it is finite and in the range.
float score_in(const boost::json::value& value, std::string_view name,
               const ScoreRange& range = {});

/// Reads the labels of a file:
///   "spam", 3, true           one class, by name or number
///   ["news", "sport"]         several classes by name; also as JSON text, for CSV
///   [0, 1, 1]                 several classes: 1 for each class of the example
///   2.5                       a number, for regression
class ClassLabels {
 public:
  /// Determines the kind and the class names if they are not given: kSeveral if most labels are
  /// lists, kRegression if most are numbers and one is not an integer. Names are sorted,
  /// numerically if all are numbers. Lists of 0 and 1 have the names "LABEL_0", … as in
  /// transformers. `labels` has null for an example without a label.
  ClassLabels(std::span<const boost::json::value> labels, std::optional<LabelKind> kind,
              std::vector<std::string> names);

  LabelKind kind() const { return kind_; }
  const std::vector<std::string>& names() const { return names_; }

  /// Returns the class of a label of kSingle. A number is the name of a class or, unless all names
  /// are numbers, the index of a class. Throws DataError.
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
  std::optional<bool> are_texts_{};  // whether the labels are texts, if the names are from the data
};

/// Returns the label, parsed if it is the JSON text of a list. Throws DataError for Python's lists.
boost::json::value parsed_label(const boost::json::value& label);

}  // namespace hybrid_trainer
