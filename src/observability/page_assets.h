#pragma once

namespace hybrid_trainer {

/// The files of report/, turned into strings by the build. report.html has {{name}} where
/// report.cpp inserts something.
extern const char k_report_html[];
extern const char k_report_css[];
extern const char k_report_js[];

/// The files of page/, turned into strings by the build.
extern const char k_live_css[];
extern const char k_live_js[];
extern const char k_runs_html[];
extern const char k_runs_js[];

}  // namespace hybrid_trainer
