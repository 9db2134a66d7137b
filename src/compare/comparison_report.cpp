#include <algorithm>
#include <cmath>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/compare/comparison.h"
#include "src/compare/run_outcome.h"
#include "src/compare/svg_plot.h"
#include "src/core/machine.h"
#include "src/core/messages.h"
#include "src/files/escaped_text.h"
#include "src/files/output_file.h"
#include "src/observability/report.h"
#include "src/run/run_files.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

namespace {

constexpr char kComparisonStyle[] = R"css(
:root { --warn: #a85b00;
  --c0: #2667d9; --c1: #d9480f; --c2: #2b8a3e; --c3: #9a3fd1; --c4: #c4264e; --c5: #0c8599; --c6: #946200; --c7: #5d6679; }
@media (prefers-color-scheme: dark) {
  :root { --warn: #f2a93b;
    --c0: #6ea0ff; --c1: #ff8f5c; --c2: #6cc67d; --c3: #c98bf5; --c4: #ff6d8f; --c5: #4cc3d9; --c6: #e0b04a; --c7: #97a1b5; }
}
.card { overflow-x: auto; } th, td { vertical-align: top; } th:first-child { white-space: nowrap; }
td small { display: block; color: var(--soft); white-space: nowrap; }
ul { margin: 0; padding-left: 18px; } li { overflow-wrap: anywhere; }
.flag { color: var(--warn); } .claim { color: var(--good); font-weight: 600; }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 7px; background: currentColor; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); } .c7 { color: var(--c7); }
.legend b { color: var(--ink); font-weight: 400; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
svg .grid { stroke: var(--rule); } svg .axis { stroke: var(--soft); }
svg .line { stroke: currentColor; fill: none; stroke-width: 1.6; stroke-linejoin: round; }
svg circle { fill: currentColor; stroke: var(--card); }
a { color: var(--c0); } p { margin: 4px 0; }
@media (max-width: 760px) {
  table { display: table; } thead { display: table-header-group; } tbody { display: table-row-group; }
  tr { display: table-row; } td { display: table-cell; }
}
)css";

using Format = std::function<std::string(double)>;

constexpr const char* kNone = "–";

/// Returns "1.8293 (1.8201 to 1.8385)", or only the mean for a single seed.
std::string with_interval(const std::optional<Interval>& interval, const Format& text) {
  if (!interval) return kNone;
  const bool is_one = std::isnan(interval->low);
  return is_one ? text(interval->mean)
                : concat(text(interval->mean), " (", text(interval->low), " to ",
                         text(interval->high), ")");
}

std::string in_two(double value) { return units::fixed(value, 2); }
std::string in_four(double value) { return units::fixed(value, 4); }
std::string in_seconds(double value) { return units::fixed(value, 1) + " s"; }

/// Returns "0.551 s (0.548 to 0.560)".
std::string step_time_text(const std::optional<StepTime>& pace) {
  if (!pace) return kNone;
  const auto text = [](double seconds) { return units::fixed(seconds, 3); };
  return concat(text(pace->median), " s (", text(pace->low), " to ", text(pace->high), ")");
}

/// Returns the largest budget that all variants have in common, if there is one.
std::optional<std::int64_t> common_steps(const ComparisonResult& result) {
  const std::int64_t steps = result.variants.front().budgets.back().steps;
  for (const VariantResult& variant : result.variants)
    if (variant.budgets.back().steps != steps) return {};
  return steps;
}

std::string markdown_head(const ComparisonSpec& spec, const ComparisonResult& result) {
  const auto steps = common_steps(result);
  std::string text = concat(
      "| variant | learning rate | ", spec.masks() ? "masked " : "",
      steps ? concat("validation loss after ", *steps, " steps | ") : "validation loss | steps | ",
      "difference from the first | ", spec.pace ? "time per step |" : "training seconds |");
  if (spec.target_loss)
    text += concat(" seconds to ", brief(*spec.target_loss), " | ", spec.unit(),
                   " to target | time relative to the first |");
  const auto columns = std::count(text.begin(), text.end(), '|') - 1;
  text += "\n|";
  for (auto i = columns; i > 0; --i) text += " --- |";
  return text + "\n";
}

std::string markdown_row(const ComparisonSpec& spec, const ComparisonResult& result,
                         const VariantResult& variant) {
  const BudgetResult& last = variant.budgets.back();
  std::string text = concat(
      "| ", variant.name, " | ", variant.learning_rate ? brief(*variant.learning_rate) : kNone,
      variant.edge_of_sweep ? " (edge)" : "", " | ", with_interval(last.loss.interval, in_four),
      common_steps(result) ? " | " : concat(" | ", last.steps, " | "),
      variant.difference ? with_interval(variant.difference->interval, in_four) : kNone, " | ",
      spec.pace ? step_time_text(variant.pace) : with_interval(last.seconds.interval, in_seconds),
      " |");
  if (!spec.target_loss) return text + "\n";
  const auto to_target = [&](const Measured BudgetResult::*what, const Format& in) {
    return variant.to_target ? with_interval(((*variant.to_target).*what).interval, in) : kNone;
  };
  return concat(text, " ", to_target(&BudgetResult::seconds, in_seconds), " | ",
                to_target(&BudgetResult::tokens, units::count), " | ",
                variant.time_ratio ? with_interval(variant.time_ratio->interval, in_two) : kNone,
                " |\n");
}

constexpr std::size_t kCurvePoints = 120;

std::string signed_in_four(double value) {
  return (value < 0 ? "−" : "+") + units::fixed(std::abs(value), 4);
}

std::string scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string cell_of(const Measured* measured, const Format& format) {
  if (measured == nullptr || !measured->interval) return concat("<td>", kNone, "</td>");
  const Interval& interval = *measured->interval;
  std::string range;
  if (!std::isnan(interval.low) && interval.low != interval.high)
    range = concat("<small>", format(interval.low), " to ", format(interval.high), "</small>");
  return concat("<td>", format(interval.mean), range, "</td>");
}

std::string text_cell(const std::string& text) {
  return concat("<td>", html_escaped(text), "</td>");
}

std::string number_cell(const std::optional<double>& value, const Format& format) {
  return text_cell(value ? format(*value) : kNone);
}

std::string key_of(std::size_t variant, const std::string& name) {
  return concat("<span class=\"c", variant % 8, "\"><i class=\"key\"></i></span>",
                html_escaped(name));
}

/// Returns the first cell of a variant's row. `name` is the variant's or a run's name.
std::string row_head(std::size_t variant, const std::string& name) {
  return concat("<tr><th scope=\"row\">", key_of(variant, name), "</th>");
}

std::string card(const std::string& title, const std::string& remark, const std::string& body) {
  if (body.empty()) return "";
  return concat("<section class=\"card\">\n<h2>", html_escaped(title), " <small>",
                html_escaped(remark), "</small></h2>\n", body, "</section>\n");
}

std::string units_of(const ComparisonSpec& spec) {
  return spec.unit() == "tokens" ? "Tokens" : "Examples";
}

std::string legend(const ComparisonResult& result) {
  std::string out = "<div class=\"legend\">";
  for (std::size_t i = 0; i < result.variants.size(); ++i)
    out += concat("<b>", key_of(i, result.variants[i].name), "</b>");
  return out + "</div>\n";
}

std::string verdict(const ComparisonResult& result) {
  std::string out = "<ul>\n";
  for (std::size_t i = 1; i < result.variants.size(); ++i) {
    const VariantResult& variant = result.variants[i];
    out += variant.claim.empty()
               ? concat("<li>No claim about ", html_escaped(variant.name), ": ",
                        html_escaped(variant.why_no_claim), ".</li>\n")
               : concat("<li class=\"claim\">", html_escaped(variant.claim), ".</li>\n");
  }
  if (result.variants.size() == 1)
    out += "<li>There is only one variant, so nothing is compared.</li>\n";
  for (const std::string& warning : result.warnings)
    out += concat("<li class=\"flag\">", html_escaped(warning), "</li>\n");
  return out + "</ul>\n";
}

/// Returns the variants' results at the target or, without a target, at the largest budget.
std::string variants_table(const ComparisonSpec& spec, const ComparisonResult& result) {
  const std::string what = spec.target_loss ? " to target" : "";
  std::string out = table_head({"Variant", "Learning rate", "Final validation loss",
                                "Difference from " + html_escaped(result.variants.front().name),
                                "Training time" + what,
                                "Time relative to " + html_escaped(result.variants.front().name),
                                units_of(spec) + what, "FLOPs" + what, "Failed runs"});
  for (std::size_t i = 0; i < result.variants.size(); ++i) {
    const VariantResult& variant = result.variants[i];
    const BudgetResult* use = &variant.budgets.back();
    if (spec.target_loss) use = variant.to_target ? &*variant.to_target : nullptr;
    out += concat(row_head(i, variant.name), "<td>",
                  variant.learning_rate ? brief(*variant.learning_rate) : kNone,
                  variant.edge_of_sweep ? "<small class=\"flag\">edge of its sweep</small>" : "",
                  "</td>");
    out += cell_of(&variant.loss(), in_four);
    out += cell_of(variant.difference ? &*variant.difference : nullptr, signed_in_four);
    out += cell_of(use == nullptr ? nullptr : &use->seconds, in_seconds);
    out += cell_of(variant.time_ratio ? &*variant.time_ratio : nullptr, in_two);
    out += cell_of(use == nullptr ? nullptr : &use->tokens, units::count);
    out += cell_of(use == nullptr ? nullptr : &use->flops, scientific);
    out += text_cell(std::to_string(variant.failed().size())) + "</tr>\n";
  }
  return out + "</tbody></table>\n";
}

std::string step_time_table(const ComparisonResult& result) {
  const auto of_a_step = [](double seconds) { return units::fixed(seconds, 3) + " s"; };
  std::string out =
      table_head({"Variant", "Time per step, median", "Fastest round", "Slowest round"});
  bool any = false;
  for (std::size_t i = 0; i < result.variants.size(); ++i) {
    const std::optional<StepTime>& pace = result.variants[i].pace;
    any = any || pace;
    out += row_head(i, result.variants[i].name);
    for (double StepTime::*part : {&StepTime::median, &StepTime::low, &StepTime::high})
      out += number_cell(pace ? std::optional((*pace).*part) : std::nullopt, of_a_step);
    out += "</tr>\n";
  }
  return any ? out + "</tbody></table>\n" : "";
}

std::string budgets_table(const ComparisonSpec& spec, const ComparisonResult& result) {
  const auto has_one = [](const VariantResult& variant) { return variant.budgets.size() < 2; };
  if (std::all_of(result.variants.begin(), result.variants.end(), has_one)) return "";
  std::string out = table_head(
      {"Variant", "Steps", "Final validation loss", "Training time", units_of(spec), "FLOPs"});
  for (std::size_t i = 0; i < result.variants.size(); ++i) {
    for (const BudgetResult& budget : result.variants[i].budgets)
      out += concat(row_head(i, result.variants[i].name), text_cell(units::grouped(budget.steps)),
                    cell_of(&budget.loss, in_four), cell_of(&budget.seconds, in_seconds),
                    cell_of(&budget.tokens, units::count), cell_of(&budget.flops, scientific),
                    "</tr>\n");
  }
  return out + "</tbody></table>\n";
}

std::string predictions_table(const ComparisonResult& result) {
  std::string out =
      table_head({"Variant", "Made", "Accepted in full", "Shrunk", "Reverted",
                  "Predicted share of steps", "Cost per step in Full steps, minus 1"});
  const auto in_percent = [](double share) { return units::fixed(100 * share, 1) + " %"; };
  bool any = false;
  for (std::size_t i = 0; i < result.variants.size(); ++i) {
    if (!result.variants[i].predictions) continue;
    const PredictionUse& use = *result.variants[i].predictions;
    any = any || use.counts.made > 0;
    out += row_head(i, result.variants[i].name);
    for (const std::int64_t count :
         {use.counts.made, use.counts.accepted, use.counts.shrunk, use.counts.reverted})
      out += text_cell(units::grouped(count));
    out += text_cell(in_percent(use.predicted_share)) + text_cell(in_percent(use.cost_overhead)) +
           "</tr>\n";
  }
  return any ? out + "</tbody></table>\n" : "";
}

std::string sweep_plot(const ComparisonSpec& spec, const ComparisonResult& result) {
  Plot plot{.x_label = spec.sweep_key, .y_label = "validation loss", .x_ticks = {}, .series = {}};
  std::set<double> values;
  for (std::size_t i = 0; i < result.variants.size(); ++i) {
    PlotSeries& series = plot.series.emplace_back(PlotSeries{i, {}, {}, {}});
    for (const RunOutcome& trial : result.variants[i].runs.trials) {
      values.insert(*trial.point.value);
      if (trial.loss) {
        series.line.emplace_back(*trial.point.value, *trial.loss);
      } else {
        series.crosses.push_back(*trial.point.value);
      }
    }
    series.dots = series.line;
  }
  plot.logarithmic = !values.empty() && *values.begin() > 0;
  plot.x_ticks.assign(values.begin(), values.end());
  return svg_plot(plot);
}

std::string sweep_table(const ComparisonResult& result) {
  std::string out = table_head({"Variant", "Values: validation loss"});
  for (std::size_t i = 0; i < result.variants.size(); ++i) {
    const VariantResult& variant = result.variants[i];
    out += row_head(i, variant.name) + "<td>";
    for (const RunOutcome& trial : variant.runs.trials) {
      const bool best = variant.chosen == trial.point.value;
      out += concat(best ? "<strong>" : "", brief(*trial.point.value), ": ",
                    trial.loss ? in_four(*trial.loss) : "failed", best ? "</strong>" : "", "<br>");
    }
    out += concat(variant.edge_of_sweep ? "<small class=\"flag\">edge of its sweep</small>" : "",
                  "</td></tr>\n");
  }
  return out + "</tbody></table>\n";
}

std::string sweep_cards(const ComparisonSpec& spec, const ComparisonResult& result) {
  if (spec.sweep_key.empty()) return "";
  const std::string on =
      concat("final validation loss, seed ", spec.sweep_seed(), ", the largest budget; × failed");
  const std::string plot = sweep_plot(spec, result);
  return concat("<div class=\"columns\">\n",
                card("Sweep of " + spec.sweep_key, on,
                     plot.empty() ? "<p>No trial finished.</p>" : legend(result) + plot),
                card("Trials", "the chosen one in bold", sweep_table(result)), "</div>\n");
}

/// Returns the curves of the largest budget, and the final validation losses of all budgets.
std::string curve_card(const fs::path& output, const ComparisonSpec& spec,
                       const ComparisonResult& result, double LossPoint::*x,
                       double (*x_of)(const RunOutcome&), const std::string& label) {
  Plot plot{.x_label = label, .y_label = "loss", .x_ticks = {}, .series = {}};
  for (std::size_t i = 0; i < result.variants.size(); ++i) {
    for (const RunOutcome& run : result.variants[i].runs.runs) {
      PlotSeries& series = plot.series.emplace_back(PlotSeries{i, {}, {}, {}});
      if (!std::isfinite(x_of(run))) continue;
      if (run.loss) series.dots.emplace_back(x_of(run), *run.loss);
      if (run.point.steps != result.variants[i].budgets.back().steps) continue;
      const auto curve = loss_curve(output / run.folder, kCurvePoints);
      const double scale = spec.pace && !curve.empty() ? x_of(run) / curve.back().*x : 1;
      for (const LossPoint& point : curve) series.line.emplace_back(scale * point.*x, point.loss);
    }
  }
  const std::string drawn = svg_plot(plot);
  return card("Loss over " + label,
              "every seed; lines: training loss, for external programs the printed loss; dots: "
              "final validation loss",
              drawn.empty() ? "" : legend(result) + drawn);
}

std::string runs_table(const fs::path& output, const ComparisonSpec& spec,
                       const ComparisonResult& result) {
  std::string out =
      table_head({"Run", "Validation loss", "Training time", units_of(spec), "FLOPs", ""});
  for (std::size_t i = 0; i < result.variants.size(); ++i) {
    for (const auto* runs : {&result.variants[i].runs.trials, &result.variants[i].runs.runs}) {
      for (const RunOutcome& run : *runs) {
        const bool counts = run.failure.empty();
        out += row_head(i, run.folder.substr(5));
        out += number_cell(run.loss, in_four);
        out += text_cell(counts && std::isfinite(run.seconds) ? in_seconds(run.seconds) : kNone);
        out += text_cell(counts ? units::grouped(run.tokens) : kNone);
        out += number_cell(run.flops, scientific);
        out += fs::exists(output / run.folder / "report.html")
                   ? concat("<td><a href=\"", html_escaped(run.folder), "/report.html\">report</a>")
                   : "<td>";
        out += (counts ? "" : "failed: " + html_escaped(run.failure)) + "</td></tr>\n";
      }
    }
  }
  return out + "</tbody></table>\n";
}

std::string folded(const std::string& title, const std::string& body) {
  return concat("<details class=\"card\"><summary>", title, "</summary>\n", body, "</details>\n");
}

}  // namespace

std::string markdown_table(const ComparisonSpec& spec, const ComparisonResult& result) {
  std::string text = markdown_head(spec, result);
  for (const VariantResult& variant : result.variants) text += markdown_row(spec, result, variant);
  text += "\n";
  for (const VariantResult& variant : result.variants) {
    if (!variant.claim.empty()) text += concat("- ", variant.claim, ".\n");
    if (!variant.why_no_claim.empty())
      text += concat("- no claim about ", variant.name, ": ", variant.why_no_claim, ".\n");
  }
  for (const std::string& warning : result.warnings) text += concat("- ", warning, ".\n");
  return text;
}

void write_comparison_report(const fs::path& output, const ComparisonSpec& spec,
                             const ComparisonResult& result) {
  const std::string title =
      html_escaped(fs::absolute(output).lexically_normal().filename().string());
  const ProcessorInfo processor = processor_info();
  std::string seeds;
  for (const std::int64_t seed : spec.seeds) seeds += concat(seeds.empty() ? "" : ", ", seed);
  const std::string of = concat(
      "mean and 95 % interval over the seeds ", seeds, ", the largest budget",
      spec.target_loss ? concat("; target: validation loss ", brief(*spec.target_loss)) : "");
  const auto tokens = [](const RunOutcome& run) { return static_cast<double>(run.tokens); };
  const auto seconds = [](const RunOutcome& run) { return run.seconds; };
  std::string page = concat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "http-equiv=\"Content-Security-Policy\" content=\"",
      html_escaped(content_policy("")),
      "\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" "
      "content=\"light "
      "dark\">\n<title>",
      title, " · comparison</title>\n<style>", report_style(), kComparisonStyle,
      "</style>\n</head>\n<body>\n<main>\n", "<h1>", title,
      " <small>comparison of training variants</small></h1>\n");
  page += card("Result", "", verdict(result));
  page += card("Variants", of, variants_table(spec, result));
  page += card(
      "Time per step",
      "median of short runs in which the variants took turns; all other times are computed from it",
      step_time_table(result));
  page += card("Budgets", "each budget is a separate, complete run", budgets_table(spec, result));
  page += sweep_cards(spec, result);
  page +=
      concat("<div class=\"columns\">\n",
             curve_card(output, spec, result, &LossPoint::tokens, tokens, spec.unit()),
             curve_card(output, spec, result, &LossPoint::seconds, seconds, "seconds of training"),
             "</div>\n");
  page += card("Predictions", "in the runs of the largest budget", predictions_table(result));
  page += card("Method", "",
               concat("<p>", html_escaped(statistics_text(spec)), "</p>\n<p class=\"quiet\">",
                      html_escaped(concat(processor.name, ", ", processor.cores, " cores; hybrid ",
                                          project_version())),
                      "</p>\n"));
  page += folded("Every run", runs_table(output, spec, result));
  page += folded("The spec", concat("<pre>", html_escaped(spec.text), "</pre>\n"));
  replace_file(output / "report.html", page + "</main>\n</body>\n</html>\n");
}

}  // namespace hybrid_trainer
