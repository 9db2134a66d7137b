#pragma once

#include <boost/json/object.hpp>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "src/run/rank_statistics.h"
#include "src/run/text_outputs.h"

namespace hybrid_trainer {

/// How often examples of each class were predicted to be of each class.
class ConfusionTable {
 public:
  explicit ConfusionTable(std::vector<std::string> names)
      : names_(std::move(names)), counts_(names_.size() * names_.size()) {}
  void add(std::size_t actual, std::size_t predicted) {
    ++counts_[actual * names_.size() + predicted];
  }

  /// Quality of the predictions of one class; a share without examples is 0.
  struct Class {
    std::int64_t actual = 0, predicted = 0, right = 0;  // examples
    double precision() const { return share(right, predicted); }
    double recall() const { return share(right, actual); }
    double f1() const { return share(2 * right, actual + predicted); }

   private:
    static double share(std::int64_t part, std::int64_t whole) {
      return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
    }
  };
  Class of(std::size_t index) const;
  /// Returns the mean F1 of the classes that occur in labels or predictions.
  double macro_f1() const;

  /// Returns a row per actual and a column per predicted class, for at most `most` classes.
  std::string text(std::size_t most = 20) const;
  /// Returns {"classes": [{"name", "examples", "precision", "recall", "f1"}], "confusion": [[…]]}.
  boost::json::object json() const;

 private:
  std::int64_t count(std::size_t actual, std::size_t predicted) const {
    return counts_[actual * names_.size() + predicted];
  }
  std::vector<std::string> names_;
  std::vector<std::int64_t> counts_;
};

struct TextScore {
  struct Measure {
    std::string title, key;         // "macro F1", "macro_f1"
    std::optional<double> value{};  // none if it is undefined for these examples
    std::optional<ShareInterval> interval{};
    std::int64_t channels = 0;  // leading channels of the embeddings, if not all
  };
  std::int64_t examples = 0;
  std::vector<Measure> measures{};
  std::optional<ConfusionTable> confusion{};  // of one class per text

  /// Returns "accuracy 0.912 (95 % interval 0.881 to 0.936), macro F1 0.903 over 500 examples".
  std::string text() const;
  boost::json::object json() const;
};

/// Scores the outputs for the rows by the config's objective:
///   classify  one class: accuracy, macro F1 and confusion table. Several: micro and macro F1 of
///             labels with a probability above 0.5, and the share of examples with all labels right.
///             Numbers: mean squared error and correlations
///   embed     pairs with scores: correlations of their cosines with the scores. Other pairs:
///             accuracy@1 and mean reciprocal rank of each anchor's positive text among all texts
///             of the rows that are not anchors, as expected values if cosines are equal. For
///             texts.dimensions, the same for the leading channels
///   rank      labels 0 and 1: area under the ROC curve and average precision. Other scores:
///             Spearman's correlation
///   reward    share of pairs whose chosen text has the higher score, and mean margin
/// Throws ShapeMismatch if outputs and labels differ in number.
TextScore text_score(const TextOutputs& outputs, const std::vector<TextRow>& rows,
                     const HybridTrainerConfig& config);

}  // namespace hybrid_trainer
