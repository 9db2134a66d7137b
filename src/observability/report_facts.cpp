#include "src/observability/report_facts.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/files/html_text.h"

namespace hybrid_trainer {
namespace {

/// "master weights 12 MB, snapshot 6 MB": what lay in another place than the device.
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

/// "4 by mpi, zero 2; sent 1.2 GB, waited 3s; simulated link: 125MB a second".
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
      ranks->imitated_link.empty() ? "" : "; simulated link: " + ranks->imitated_link);
}

std::string late_facts(const RunSummary::Speculation& late) {
  return concat("<dl>", fact("Steps with a pending update", units::grouped(late.steps)),
                fact("That waited for one",
                     concat(units::grouped(late.waits), ", ", units::duration(late.wait_seconds))),
                fact("Worker", units::duration(late.worker_seconds)),
                fact("Device memory for state and predictions", units::bytes(late.device_bytes)),
                "</dl>");
}

}  // namespace

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
         fact("Dreamt horizons", s.sum.planning_cost
                                     ? concat("cost ", brief(*s.sum.planning_cost), " Full steps")
                                     : "") +
         fact("Ranks", ranks_text(s.distributed)) +
         fact("In host memory", kinds_text(s.host_peak_by_kind)) +
         fact("In the scratch file", kinds_text(s.file_peak_by_kind)) +
         fact("Begun with", s.first_command) + fact("Command", s.command) +
         fact("Version", s.version);
}

std::string loss_scale_facts(const RunSummary& summary) {
  if (!summary.sum.loss_scale) return "";
  return fact("Loss scale at the end", brief(*summary.sum.loss_scale)) +
         fact("Gradients that overflowed in fp16", units::grouped(summary.sum.overflows));
}

std::string prediction_facts(const RunSummary& summary) {
  if (summary.speculation) return late_facts(*summary.speculation);
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
    facts += fact("Steps given up by going back", units::grouped(summary.rolled_back_steps));
    facts +=
        fact("Learning rate", concat(brief(summary.learning_rate_factor), " of the schedule's"));
  }
  return concat("<h3>What was done about divergence</h3><dl>", facts, "</dl>");
}

}  // namespace hybrid_trainer
