#pragma once

#include <filesystem>
#include <map>
#include <string_view>

#include "hybrid_trainer/observability/model_texts.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "hybrid_trainer/observability/step_record.h"
#include "src/observability/curves.h"

namespace hybrid_trainer {

/// Whether predictions came true as often as their confidence said: those that were accepted in full,
/// by tenths of the confidence with which they were made.
class Reliability {
 public:
  void add(const StepRecord& record);
  /// A plot, share accepted over mean confidence, and the same as text for who cannot see it; "" where
  /// nothing was decided on.
  std::string html() const;

 private:
  struct Bin {
    std::int64_t made = 0, accepted = 0;
    double confidence = 0;  // sum
  };
  std::array<Bin, 10> bins_;
};

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

struct ReportInput {
  std::string title;              // the run's name
  std::filesystem::path metrics;  // metrics.jsonl
  RunSummary summary;
  std::string settings;  // the run's configuration as text
  ModelTexts texts{};    // what the model writes; what is empty is left out
};

/// Writes report.html: one self-contained file (styles, script, data) for any browser, without a
/// network. Curves longer than about 1,500 points are downsampled by averaging. Replaces the file
/// in one rename. Throws MissingInput, IoError.
void write_report(const std::filesystem::path& path, const ReportInput& input);

}  // namespace hybrid_trainer
