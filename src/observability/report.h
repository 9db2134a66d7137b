#pragma once

#include <filesystem>
#include <map>
#include <string_view>

#include "hybrid_trainer/observability/model_texts.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "hybrid_trainer/observability/step_record.h"
#include "src/observability/curves.h"

namespace hybrid_trainer {

/// Calibration of predictions: the share of predictions that were accepted in full, for each interval
/// of confidence of width 0.1.
class Reliability {
 public:
  void add(const StepRecord& record);
  /// Returns a plot of the share of accepted predictions over the mean confidence, and the same
  /// values as text for screen readers. Returns "" if there are no decisions.
  std::string html() const;

 private:
  struct Bin {
    std::int64_t made = 0, accepted = 0;
    double confidence = 0;  // sum over predictions
  };
  std::array<Bin, 10> bins_;
};

/// Texts of a page that do not depend on records. Members named html contain HTML.
struct PageTexts {
  std::string title;  // the run's name
  std::string kind;   // "training report"
  std::string settings;
  ModelTexts of_model{};
  std::string top_html{};              // HTML at the top of the page
  std::string_view style{}, script{};  // appended to the style and script of the report
};

/// Converts a run's records to curves for report.js and HTML. Its memory is limited.
class ReportContent {
 public:
  void add(const StepRecord& record);
  const Curves& curves() const { return curves_; }
  /// Returns the HTML of the parts of the page that change with the records, keyed by the id of the
  /// element: tiles, time-bar, phases, savings, predictions, facts.
  std::map<std::string, std::string> parts(const RunSummary& summary) const;
  /// Returns the whole page. It loads no other resources.
  std::string page(const RunSummary& summary, const PageTexts& texts) const;

 private:
  Curves curves_;
  Reliability reliability_;
  ExpertLoads experts_;  // loads of the last step with expert loads
  RoutingFlips flips_;
};

std::string_view report_style();
/// Returns the beginning of a table up to its first row. `columns` are HTML.
std::string table_head(const std::vector<std::string>& columns);
/// Returns the Content-Security-Policy of a page whose PageTexts have this script.
std::string report_policy(std::string_view script);

struct ReportInput {
  std::string title;              // the run's name
  std::filesystem::path metrics;  // metrics.jsonl
  RunSummary summary;
  std::string settings;  // the run's configuration as text
  ModelTexts texts{};    // the model's outputs; empty texts are omitted
};

/// Writes report.html: one self-contained file for any browser. Averages curves to about 1,500
/// points. Replaces the file atomically. Throws MissingInput, IoError.
void write_report(const std::filesystem::path& path, const ReportInput& input);

}  // namespace hybrid_trainer
