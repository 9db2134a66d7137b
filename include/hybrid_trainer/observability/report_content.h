#pragma once

#include <map>
#include <string>
#include <string_view>

#include "hybrid_trainer/observability/curves.h"
#include "hybrid_trainer/observability/expert_loads.h"
#include "hybrid_trainer/observability/model_texts.h"
#include "hybrid_trainer/observability/reliability.h"
#include "hybrid_trainer/observability/run_summary.h"

namespace hybrid_trainer {

/// What a page has besides what follows from a run's records. Texts are plain, but those named html.
struct PageTexts {
  std::string title;  // the run's name
  std::string kind;   // "training report"
  std::string settings;
  ModelTexts of_model{};
  std::string top_html{};              // above everything else
  std::string_view style{}, script{};  // after the report's own
};

/// Turns a run's records into the parts of its report: curves for report.js, and HTML. It needs a
/// bounded amount of memory for any number of records.
class ReportContent {
 public:
  void add(const StepRecord& record);
  const Curves& curves() const { return curves_; }
  /// HTML of each part of the page that changes with the records, by its element's id: tiles,
  /// time-bar, phases, savings, predictions, facts.
  std::map<std::string, std::string> parts(const RunSummary& summary) const;
  /// The whole page, which refers to nothing outside itself.
  std::string page(const RunSummary& summary, const PageTexts& texts) const;

 private:
  Curves curves_;
  Reliability reliability_;
  ExpertLoads experts_;  // of the last step that had any
  RoutingFlips flips_;
};

/// The style sheet of the report.
std::string_view report_style();
/// Content-Security-Policy of a page with PageTexts::script.
std::string report_policy(std::string_view script);

}  // namespace hybrid_trainer
