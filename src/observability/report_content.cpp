#include "hybrid_trainer/observability/report_content.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/files/html_text.h"
#include "src/observability/answers_html.h"
#include "src/observability/report_assets.h"
#include "src/observability/report_facts.h"

namespace hybrid_trainer {
namespace {

double rate(std::int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

/// What the run's steps count.
const char* unit_of(const RunSummary& s) { return s.counts_examples ? "examples" : "tokens"; }

/// What a loss is of.
const char* target_of(const RunSummary& s) {
  if (s.counts_examples) return "mean over examples";
  return s.masked ? "nats per masked token" : "nats per token";
}

/// Of a validation loss.
std::string perplexity_text(const RunSummary& s) {
  if (s.counts_examples) return target_of(s);
  return concat("perplexity ", units::fixed(std::exp(*s.final_validation_loss), 2),
                s.masked ? " of masked tokens" : "");
}

std::size_t peak_bytes(const RunSummary& summary) {
  std::size_t peak = 0;
  for (const PhaseUse& use : summary.phases) peak = std::max(peak, use.peak_bytes);
  return peak;
}

std::string tile(const std::string& name, const std::string& value, const std::string& remark) {
  return concat("<div class=\"tile\"><span>", name, "</span><strong>", html_escaped(value),
                "</strong><small>", html_escaped(remark), "</small></div>\n");
}

std::string tiles(const RunSummary& s) {
  std::string out;
  if (s.final_validation_loss && s.sum.validation_preference_accuracy) {
    out +=
        tile("Validation loss", units::fixed(*s.final_validation_loss, 4), "of pairs of answers");
    out += tile("Preference accuracy",
                concat(units::fixed(100 * *s.sum.validation_preference_accuracy, 1), " %"),
                concat("mean margin ", brief(s.sum.validation_reward_margin.value_or(0))));
  } else if (s.final_validation_loss) {
    const auto& before = s.sum.initial_validation_loss;
    out += tile("Validation loss", units::fixed(*s.final_validation_loss, 4),
                before ? concat(units::fixed(*before, 4), " before training") : perplexity_text(s));
  }
  if (s.final_average_validation_loss)
    out += tile("Of the mean weights", units::fixed(*s.final_average_validation_loss, 4),
                "validation loss");
  if (s.best)
    out += tile("Best validation loss", units::fixed(s.best->validation_loss, 4),
                concat("at step ", s.best->step, ", which is kept"));
  if (s.final_train_loss) {
    out += tile("Training loss", units::fixed(*s.final_train_loss, 4), "at the last step");
  }
  out += tile("Time", units::duration(s.total_seconds()),
              concat(units::grouped(s.steps), " steps in ", units::duration(s.sum.seconds)));
  out += tile(s.counts_examples ? "Examples per second" : "Tokens per second",
              units::count(rate(s.sum.tokens, s.sum.seconds)),
              concat(units::count(static_cast<double>(s.sum.tokens)), " ", unit_of(s), " in all"));
  out += tile("Peak memory", units::bytes(peak_bytes(s)),
              s.parameters == 0
                  ? std::string("of a step")  // while it runs, its parameters are not known
                  : concat(units::count(static_cast<double>(s.parameters)), " parameters"));
  const PredictionCounts& p = s.predictions;
  if (s.speculation && s.speculation->errors > 0) {
    out += tile("Late updates", units::fixed(*s.speculation->mean_error(), 3),
                concat("mean error of their prediction, as a share; ",
                       units::grouped(s.speculation->steps), " steps"));
  }
  if (s.learning_rate_finder) {
    out += tile("Learning rate found", brief(s.learning_rate_finder->learning_rate),
                concat(brief(s.learning_rate_finder->factor), " times the one given; a finder, no ",
                       "speed-up"));
  }
  if (p.made > 0) {
    out += tile("Predictions", concat(p.accepted, " of ", p.made), "accepted in full");
  }
  return out;
}

std::string cell(const char* label, const std::string& text) {
  return concat("<td data-label=\"", label, "\">", html_escaped(text), "</td>");
}

std::string phase_rows(const RunSummary& s) {
  std::string out;
  for (Phase phase : kAllPhases) {
    const PhaseUse& use = s.phase(phase);
    if (use.steps == 0) continue;
    out += concat("<tr><th scope=\"row\"><i class=\"phase ", name_of(phase), "\"></i>",
                  name_of(phase), "</th>");
    out += cell("Steps", units::grouped(use.steps));
    out += cell("Time", units::duration(use.sum.seconds));
    out += cell("Share", percent(use.sum.seconds, s.sum.seconds));
    out += cell(s.counts_examples ? "Examples" : "Tokens",
                units::count(static_cast<double>(use.sum.tokens)));
    out += cell(s.counts_examples ? "Examples/s" : "Tokens/s",
                units::count(rate(use.sum.tokens, use.sum.seconds)));
    out += cell("Cost", units::fixed(use.cost, 1));
    out += cell("Peak", units::bytes(use.peak_bytes));
    out += cell("Precision", use.precision.empty() ? "–" : use.precision) + "</tr>\n";
  }
  return out;
}

/// One bar whose parts are as wide as their shares.
std::string share_bar(const std::array<std::pair<const char*, double>, kPhases>& parts) {
  std::string out = "<div class=\"share\" aria-hidden=\"true\">";
  for (const auto& [name, share] : parts) {
    if (share > 0)
      out += concat("<i class=\"phase ", name, "\" style=\"flex-grow:", share, "\"></i>");
  }
  return out + "</div>\n";
}

std::string time_bar(const RunSummary& s) {
  std::array<std::pair<const char*, double>, kPhases> parts;
  for (std::size_t i = 0; i < kPhases; ++i)
    parts[i] = {name_of(kAllPhases[i]), s.phases[i].sum.seconds};
  return share_bar(parts);
}

/// "412 MB", "−1.2 kB".
std::string signed_bytes(std::int64_t bytes) {
  return (bytes < 0 ? "−" : "") + units::bytes(static_cast<std::size_t>(std::abs(bytes)));
}

/// What the options that are on keep out of the device's memory; "" where none is.
std::string savings_card(const RunSummary& s) {
  if (s.savings.empty()) return "";
  std::string out =
      "<section class=\"card\">\n<h2>Memory saved <small>peak without the option less the peak "
      "with it, by simulation</small></h2>\n<table>\n<thead><tr><th scope=\"col\">Option</th><th "
      "scope=\"col\">Value</th><th scope=\"col\">Device</th>";
  for (Phase phase : kAllPhases) out += concat("<th scope=\"col\">", name_of(phase), "</th>");
  out += "</tr></thead>\n<tbody>\n";
  for (const MemorySaving& saving : s.savings) {
    out += concat("<tr><th scope=\"row\">", html_escaped(saving.option), "</th>");
    out += cell("Value", saving.value) + cell("Device", signed_bytes(saving.device_bytes));
    for (Phase phase : kAllPhases)
      out += cell(name_of(phase), signed_bytes(saving.by_phase[static_cast<std::size_t>(phase)]));
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table>\n</section>\n";
}

/// What the last steps' routers did, layer by layer; "" where there is none.
std::string experts_card(const ExpertLoads& loads, const RoutingFlips& flips) {
  if (loads.empty()) return "";
  std::string out = concat(
      "<section class=\"card\">\n<h2>Experts <small>of the last step; even loads are 1; balance "
      "loss ",
      brief(loads.balance_loss), ", z-loss ", brief(loads.z_loss),
      "</small></h2>\n<table>\n<thead><tr><th scope=\"col\">Layer with experts</th><th "
      "scope=\"col\">Busiest</th><th scope=\"col\">Idlest</th><th scope=\"col\">Router's entropy"
      "</th><th scope=\"col\">Dead</th></tr></thead>\n<tbody>\n");
  for (std::size_t i = 0; i < loads.most.size(); ++i) {
    out += concat("<tr><th scope=\"row\">", i, "</th>");
    out += cell("Busiest", units::fixed(loads.most[i], 2)) +
           cell("Idlest", units::fixed(loads.least[i], 2)) +
           cell("Router's entropy", units::fixed(loads.entropy[i], 3)) +
           cell("Dead", concat(loads.dead[i])) + "</tr>\n";
  }
  out += "</tbody>\n</table>\n";
  if (flips.steps > 0)
    out += concat("<p class=\"quiet\">Changed by the routers' change since Predict began: ",
                  flips.text(), "</p>\n");
  return out + "</section>\n";
}

/// The whole content of the page's script element.
std::string script_of(std::string_view script) { return concat("\n", k_report_js, script); }

std::string folded(const char* name, const std::string& text, const char* state) {
  if (text.empty()) return "";
  return concat("<details class=\"card\"", state, "><summary>", name, "</summary><pre>",
                html_escaped(text), "</pre></details>\n");
}

}  // namespace

void ReportContent::add(const StepRecord& record) {
  curves_.add(record);
  reliability_.add(record);
  if (!record.experts.empty()) experts_ = record.experts;
  if (record.routing_flips) flips_.add(*record.routing_flips);
}

std::map<std::string, std::string> ReportContent::parts(const RunSummary& summary) const {
  return {
      {"tiles", tiles(summary)},
      {"time-bar", time_bar(summary)},
      {"phases", phase_rows(summary)},
      {"savings", savings_card(summary) + experts_card(experts_, flips_)},
      {"predictions", prediction_facts(summary) + reliability_.html() + recovery_facts(summary)},
      {"facts", run_facts(summary) + loss_scale_facts(summary)}};
}

std::string ReportContent::page(const RunSummary& summary, const PageTexts& texts) const {
  std::map<std::string, std::string> all = parts(summary);
  all.insert({{"title", html_escaped(texts.title)},
              {"kind", html_escaped(texts.kind)},
              {"top", texts.top_html},
              {"target", target_of(summary)},
              {"unit", unit_of(summary)},
              {"style", concat(k_report_css, texts.style)},
              {"policy", html_escaped(report_policy(texts.script))},
              {"script", script_of(texts.script)},
              {"data", curves_.to_json()},
              {"sample", answers_html(texts.of_model.answers) +
                             folded("Sample of generated text", texts.of_model.sample, " open")},
              {"settings", folded("Settings", texts.settings, "")}});
  return filled_page(k_report_html, all);
}

std::string_view report_style() { return k_report_css; }

std::string report_policy(std::string_view script) { return content_policy(script_of(script)); }

}  // namespace hybrid_trainer
