#pragma once

namespace hybrid_trainer {

/// Files of report/ as strings, made by the build. report.cpp replaces {{name}} in report.html.
extern const char k_report_html[];
extern const char k_report_css[];
extern const char k_report_js[];

/// Files of page/, converted to strings by the build.
extern const char k_live_css[];
extern const char k_live_js[];
extern const char k_runs_html[];
extern const char k_runs_js[];

}  // namespace hybrid_trainer
