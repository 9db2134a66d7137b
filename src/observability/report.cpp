#include "src/observability/report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/files/escaped_text.h"
#include "src/files/output_file.h"
#include "src/observability/jsonl_sink.h"
#include "src/observability/page_assets.h"

namespace hybrid_trainer {

namespace {

constexpr double kSide = 200, kMargin = 36;

std::string at(double share) { return units::fixed(kMargin + share * kSide, 1); }
std::string above(double share) { return units::fixed(kSide - share * kSide + 8, 1); }

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return concat("<text x=\"", units::fixed(x, 1), "\" y=\"", units::fixed(y, 1),
                "\" text-anchor=\"", anchor, "\">", text, "</text>");
}

std::string answers_html(const std::vector<ComparedAnswer>& answers) {
  if (answers.empty()) return "";
  std::string html = concat("<section class=\"card answers\"><h2>Answers <small>to ",
                            kind_of_prompts(answers), "</small></h2>\n");
  const auto line = [&](const char* name, const std::string& text) {
    html += concat("<dt>", name, "</dt><dd>", text.empty() ? "(nothing)" : html_escaped(text),
                   "</dd>\n");
  };
  for (const ComparedAnswer& answer : answers) {
    html += "<dl>";
    line("prompt", answer.prompt);
    if (!answer.wanted.empty()) line("wanted", answer.wanted);
    if (answer.before) line("before", *answer.before);
    line("after", answer.after);
    html += "</dl>\n";
  }
  return html + "</section>\n";
}

/// Returns "master weights 12 MB, snapshot 6 MB": bytes stored outside the device.
std::string kinds_text(const std::array<std::size_t, kMemoryKinds>& bytes) {
  std::vector<std::string> texts;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    if (bytes[kind] == 0) continue;
    std::string name = name_of(static_cast<MemoryKind>(kind));
    std::replace(name.begin(), name.end(), '_', ' ');
    texts.push_back(name + " " + units::bytes(bytes[kind]));
  }
  return join(texts);
}

std::string fact(const char* name, const std::string& value) {
  return value.empty() ? "" : concat("<dt>", name, "</dt><dd>", html_escaped(value), "</dd>\n");
}

std::string finder_text(const RunSummary& s) {
  if (!s.learning_rate_finder) return "";
  const RunSummary::RateFinder& finder = *s.learning_rate_finder;
  return concat("factor ", brief(finder.factor), " after ", finder.probes, " probes, which cost ",
                brief(finder.cost), " Full steps");
}

/// Returns "4 by mpi, zero 2; sent 1.2 GB, waited 3 s; simulated link: 125MB a second".
std::string ranks_text(const std::optional<RunSummary::Distributed>& ranks) {
  if (!ranks) return "";
  return concat(
      ranks->ranks, " by ", ranks->backend, ", zero ", ranks->zero, "; sent ",
      units::bytes(ranks->bytes_sent),
      ranks->exposed_seconds ? concat(", waited ", brief(*ranks->exposed_seconds), " s") : "",
      ranks->slowest_rank_ratio
          ? concat("; slowest: rank ", ranks->slowest_rank, ", ", brief(*ranks->slowest_rank_ratio),
                   " times as long as the others")
          : "",
      ranks->simulated_link.empty() ? "" : "; simulated link: " + ranks->simulated_link);
}

std::string delayed_facts(const RunSummary::Speculation& late) {
  return concat("<dl>", fact("Steps with a pending update", units::grouped(late.steps)),
                fact("Steps that waited for an update",
                     concat(units::grouped(late.waits), ", ", units::duration(late.wait_seconds))),
                fact("Worker", units::duration(late.worker_seconds)),
                fact("Device memory for state and predictions", units::bytes(late.device_bytes)),
                "</dl>");
}

std::string percent(double part, double whole) {
  return units::fixed(whole > 0 ? 100 * part / whole : 0, 1) + " %";
}

std::string run_facts(const RunSummary& s) {
  const char* const examples = s.counts_examples ? " examples" : " sequences";
  return fact("Parameters", s.parameters == 0 ? "" : units::grouped(s.parameters)) +
         fact("Effective batch", concat(s.effective_batch, examples, " an optimizer step")) +
         fact(s.counts_examples ? "Examples" : "Tokens", units::grouped(s.sum.tokens)) +
         fact("Largest micro-batch that fits", s.sum.recommended_micro_batch > 0
                                                   ? concat(s.sum.recommended_micro_batch, examples)
                                                   : "") +
         fact("Learning-rate finder", finder_text(s)) +
         fact("Model-based horizon",
              s.sum.planning_cost ? concat("cost ", brief(*s.sum.planning_cost), " Full steps")
                                  : "") +
         fact("Ranks", ranks_text(s.distributed)) +
         fact("In host memory", kinds_text(s.host_peak_by_kind)) +
         fact("In the scratch file", kinds_text(s.file_peak_by_kind)) +
         fact("First command", s.first_command) + fact("Command", s.command) +
         fact("Version", s.version);
}

std::string loss_scale_facts(const RunSummary& summary) {
  if (!summary.sum.loss_scale) return "";
  return fact("Loss scale at the end", brief(*summary.sum.loss_scale)) +
         fact("Gradients that overflowed in fp16", units::grouped(summary.sum.overflows));
}

std::string prediction_facts(const RunSummary& summary) {
  if (summary.speculation) return delayed_facts(*summary.speculation);
  const PredictionCounts& p = summary.predictions;
  const auto count = [&](const char* name, std::int64_t value) {
    return fact(
        name,
        concat(value, " (", percent(static_cast<double>(value), static_cast<double>(p.made)), ")"));
  };
  if (p.made == 0) return "<p class=\"quiet\">No prediction was made in this run.</p>";
  return concat("<dl>", fact("Made", std::to_string(p.made)), count("Accepted in full", p.accepted),
                count("Shrunk", p.shrunk), count("Reverted", p.reverted), "</dl>");
}

std::string recovery_facts(const RunSummary& summary) {
  std::string facts;
  for (const Recovery kind : kAllRecoveries) {
    if (kind == Recovery::kContinue || summary.count(kind) == 0) continue;
    const char* const unit = kind == Recovery::kRollBack ? " times" : " steps";
    facts += fact(name_of(kind), concat(summary.count(kind), unit));
  }
  if (facts.empty()) return "";
  if (summary.rolled_back_steps > 0) {
    facts += fact("Steps discarded by rollbacks", units::grouped(summary.rolled_back_steps));
    facts += fact("Learning rate",
                  concat(brief(summary.learning_rate_factor), " of the scheduled rate"));
  }
  return concat("<h3>Actions against divergence</h3><dl>", facts, "</dl>");
}

double rate(std::int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

const char* unit_of(const RunSummary& s) { return s.counts_examples ? "examples" : "tokens"; }

const char* target_of(const RunSummary& s) {
  if (s.counts_examples) return "mean over examples";
  return s.masked ? "nats per masked token" : "nats per token";
}

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
        tile("Validation loss", units::fixed(*s.final_validation_loss, 4), "over pairs of answers");
    out += tile("Preference accuracy",
                concat(units::fixed(100 * *s.sum.validation_preference_accuracy, 1), " %"),
                concat("mean margin ", brief(s.sum.validation_reward_margin.value_or(0))));
  } else if (s.final_validation_loss) {
    const auto& before = s.sum.initial_validation_loss;
    out += tile("Validation loss", units::fixed(*s.final_validation_loss, 4),
                before ? concat(units::fixed(*before, 4), " before training") : perplexity_text(s));
  }
  if (s.final_average_validation_loss)
    out += tile("Averaged weights", units::fixed(*s.final_average_validation_loss, 4),
                "validation loss");
  if (s.best)
    out += tile("Best validation loss", units::fixed(s.best->validation_loss, 4),
                concat("at step ", s.best->step, ", kept as checkpoint"));
  if (s.final_train_loss)
    out += tile("Training loss", units::fixed(*s.final_train_loss, 4), "at the last step");
  out += tile("Time", units::duration(s.total_seconds()),
              concat(units::grouped(s.steps), " steps in ", units::duration(s.sum.seconds)));
  out +=
      tile(s.counts_examples ? "Examples per second" : "Tokens per second",
           units::count(rate(s.sum.tokens, s.sum.seconds)),
           concat(units::count(static_cast<double>(s.sum.tokens)), " ", unit_of(s), " in total"));
  out += tile("Peak memory", units::bytes(peak_bytes(s)),
              s.parameters == 0
                  ? std::string("of a step")  // during the run, the number of parameters is unknown
                  : concat(units::count(static_cast<double>(s.parameters)), " parameters"));
  const PredictionCounts& p = s.predictions;
  if (s.speculation && s.speculation->errors > 0) {
    out += tile("Delayed updates", units::fixed(*s.speculation->mean_error(), 3),
                concat("mean relative error of their prediction; ",
                       units::grouped(s.speculation->steps), " steps"));
  }
  if (s.learning_rate_finder) {
    out += tile("Learning rate found", brief(s.learning_rate_finder->learning_rate),
                concat(brief(s.learning_rate_finder->factor),
                       " times the configured one; this does not make the run faster"));
  }
  if (p.made > 0)
    out += tile("Predictions", concat(p.accepted, " of ", p.made), "accepted in full");
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

/// Returns a bar whose parts are as wide as the phases' shares of the time.
std::string time_bar(const RunSummary& s) {
  std::string out = "<div class=\"share\" aria-hidden=\"true\">";
  for (const Phase phase : kAllPhases)
    if (const double seconds = s.phase(phase).sum.seconds; seconds > 0)
      out +=
          concat("<i class=\"phase ", name_of(phase), "\" style=\"flex-grow:", seconds, "\"></i>");
  return out + "</div>\n";
}

/// Returns a text such as "412 MB" or "−1.2 kB".
std::string signed_bytes(std::int64_t bytes) {
  return (bytes < 0 ? "−" : "") + units::bytes(static_cast<std::size_t>(std::abs(bytes)));
}

std::string savings_card(const RunSummary& s) {
  if (s.savings.empty()) return "";
  std::vector<std::string> columns{"Option", "Value", "Device"};
  for (Phase phase : kAllPhases) columns.emplace_back(name_of(phase));
  std::string out =
      "<section class=\"card\">\n<h2>Memory saved <small>simulated peak without the option minus "
      "the peak with it</small></h2>\n" +
      table_head(columns);
  for (const MemorySaving& saving : s.savings) {
    out += concat("<tr><th scope=\"row\">", html_escaped(saving.option), "</th>");
    out += cell("Value", saving.value) + cell("Device", signed_bytes(saving.device_bytes));
    for (Phase phase : kAllPhases)
      out += cell(name_of(phase), signed_bytes(saving.by_phase[static_cast<std::size_t>(phase)]));
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table>\n</section>\n";
}

std::string experts_card(const ExpertLoads& loads, const RoutingFlips& flips) {
  if (loads.empty()) return "";
  std::string out = concat(
      "<section class=\"card\">\n<h2>Experts <small>of the last step; even loads are 1; balance "
      "loss ",
      brief(loads.balance_loss), ", z-loss ", brief(loads.z_loss), "</small></h2>\n",
      table_head({"Layer with experts", "Busiest", "Idlest", "Router's entropy", "Dead"}));
  for (std::size_t i = 0; i < loads.most.size(); ++i) {
    out += concat("<tr><th scope=\"row\">", i, "</th>");
    out += cell("Busiest", units::fixed(loads.most[i], 2)) +
           cell("Idlest", units::fixed(loads.least[i], 2)) +
           cell("Router's entropy", units::fixed(loads.entropy[i], 3)) +
           cell("Dead", concat(loads.dead[i])) + "</tr>\n";
  }
  out += "</tbody>\n</table>\n";
  if (flips.steps > 0)
    out +=
        concat("<p class=\"quiet\">Choices that the routers' updates changed since Predict began: ",
               flips.text(), "</p>\n");
  return out + "</section>\n";
}

std::string script_of(std::string_view script) { return concat("\n", k_report_js, script); }

std::string folded(const char* name, const std::string& text, const char* state) {
  if (text.empty()) return "";
  return concat("<details class=\"card\"", state, "><summary>", name, "</summary><pre>",
                html_escaped(text), "</pre></details>\n");
}

}  // namespace

void Reliability::add(const StepRecord& record) {
  if (record.decision == Decision::kNone || !record.confidence) return;
  const double confidence = std::clamp(*record.confidence, 0.0, 1.0);
  Bin& bin = bins_[std::min<std::size_t>(9, static_cast<std::size_t>(10 * confidence))];
  ++bin.made;
  bin.accepted += record.decision == Decision::kAccepted ? 1 : 0;
  bin.confidence += confidence;
}

std::string Reliability::html() const {
  std::string dots, description;
  for (const Bin& bin : bins_) {
    if (bin.made == 0) continue;
    const auto made = static_cast<double>(bin.made);
    const double confidence = bin.confidence / made;
    const double share = static_cast<double>(bin.accepted) / made;
    const std::string text = concat("confidence ", units::fixed(confidence, 2), ": ", bin.accepted,
                                    " of ", bin.made, " accepted in full");
    description += concat(description.empty() ? "" : "; ", text);
    dots +=
        concat("<circle cx=\"", at(confidence), "\" cy=\"", above(share), "\" r=\"",
               units::fixed(3 + 1.5 * std::log2(made), 1), "\"><title>", text, "</title></circle>");
  }
  if (dots.empty()) return "";
  std::string svg = concat("<svg class=\"reliability\" viewBox=\"0 0 ", kSide + kMargin + 12, " ",
                           kSide + kMargin + 8, "\" role=\"img\" aria-label=\"", description,
                           "\"><path class=\"grid\" d=\"M", at(0), " ", above(0), "H", at(1), "V",
                           above(1), "H", at(0), "Z\"/><path class=\"exact\" d=\"M", at(0), " ",
                           above(0), "L", at(1), " ", above(1), "\"/>", dots);
  for (const double share : {0.0, 0.5, 1.0}) {
    svg += label(kMargin + share * kSide, kSide + 22, "middle", units::fixed(share, 1));
    svg += label(kMargin - 6, kSide - share * kSide + 12, "end", units::fixed(share, 1));
  }
  svg += label(kMargin + kSide / 2, kSide + kMargin + 2, "middle", "confidence");
  return concat(
      "<h3>Confidence and accepted predictions <small>share accepted in full per tenth of "
      "confidence; larger dots have more predictions</small></h3>",
      svg, "</svg>");
}

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

std::string table_head(const std::vector<std::string>& columns) {
  return concat("<table>\n<thead><tr><th scope=\"col\">", join(columns, "</th><th scope=\"col\">"),
                "</th></tr></thead>\n<tbody>\n");
}

std::string report_policy(std::string_view script) { return content_policy(script_of(script)); }

void write_report(const std::filesystem::path& path, const ReportInput& input) {
  ReportContent content;
  for_each_record(input.metrics, [&](const StepRecord& record) { content.add(record); });
  replace_file(path, content.page(input.summary, {.title = input.title,
                                                  .kind = "training report",
                                                  .settings = input.settings,
                                                  .of_model = input.texts}));
}

}  // namespace hybrid_trainer
