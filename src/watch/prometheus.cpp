#include "src/watch/prometheus.h"

#include <cmath>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/files/utf8.h"

namespace hybrid_trainer {
namespace {

std::string label_text(const std::string& value) {
  std::string out;
  for (const char c : well_formed_utf8(value))
    out += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : std::string(1, c);
  return out;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return shortest(value);
}

/// One metric of all runs: its help, its type, and a line for each value.
class Metric {
 public:
  Metric(std::string name, const char* type, const char* help)
      : name_(std::move(name)),
        head_(concat("# HELP ", name_, " ", help, "\n# TYPE ", name_, " ", type, "\n")) {}
  void add(const WatchedRun& run, double value, const std::string& label = "") {
    lines_ += concat(name_, "{run=\"", label_text(run.name()), "\"", label.empty() ? "" : ",",
                     label, "} ", number_text(value), "\n");
  }
  void add(const WatchedRun& run, const std::optional<double>& value) {
    if (value) add(run, *value);
  }
  std::string text() const { return lines_.empty() ? "" : head_ + lines_; }

 private:
  std::string name_, head_, lines_;
};

std::string label(const char* name, const char* value) { return concat(name, "=\"", value, "\""); }

}  // namespace

std::string prometheus_text(const WatchedFolder& folder) {
  std::string out;
  const auto metric = [&](const char* name, const char* type, const char* help, const auto& fill) {
    Metric one(concat("hybrid_", name), type, help);
    for (const auto& run : folder.runs())
      if (run->has_steps()) fill(one, *run, run->last());
    out += one.text();
  };
  using Run = const WatchedRun&;
  using Step = const StepRecord&;
  metric("running", "gauge", "1 while the run trains, else 0.",
         [](Metric& m, Run run, Step) { m.add(run, run.is_active() ? 1 : 0); });
  metric("step", "gauge", "Last step done.",
         [](Metric& m, Run run, Step last) { m.add(run, static_cast<double>(last.step)); });
  metric("planned_steps", "gauge", "Steps of the whole run.",
         [](Metric& m, Run run, Step) { m.add(run, static_cast<double>(run.planned_steps())); });
  metric("seconds_left", "gauge", "Time left by the mean of the last steps.",
         [](Metric& m, Run run, Step) { m.add(run, run.seconds_left()); });
  metric("loss", "gauge", "Training loss of the last step, in nats per token.",
         [](Metric& m, Run run, Step last) { m.add(run, last.loss); });
  metric("validation_loss", "gauge", "Last validation loss.",
         [](Metric& m, Run run, Step) { m.add(run, run.summary().final_validation_loss); });
  metric("learning_rate", "gauge", "Learning rate of the last step.",
         [](Metric& m, Run run, Step last) { m.add(run, last.learning_rate); });
  metric("gradient_norm", "gauge", "Gradient norm of the last step.",
         [](Metric& m, Run run, Step last) { m.add(run, last.gradient_norm); });
  metric("tokens_per_second", "gauge", "Mean over the last steps.",
         [](Metric& m, Run run, Step) { m.add(run, run.tokens_per_second()); });
  metric("tokens_total", "counter", "Tokens trained on.", [](Metric& m, Run run, Step) {
    m.add(run, static_cast<double>(run.summary().sum.tokens));
  });
  metric("seconds_total", "counter", "Time spent in steps.",
         [](Metric& m, Run run, Step) { m.add(run, run.summary().sum.seconds); });
  metric("phase", "gauge", "1 for the phase of the last step, else 0.",
         [](Metric& m, Run run, Step last) {
           for (const Phase phase : kAllPhases)
             m.add(run, phase == last.phase ? 1 : 0, label("phase", name_of(phase)));
         });
  metric("confidence", "gauge", "Confidence of the predictor.",
         [](Metric& m, Run run, Step last) { m.add(run, last.confidence); });
  metric("decisions_total", "counter", "Predictions that were decided on.",
         [](Metric& m, Run run, Step) {
           const PredictionCounts& counts = run.summary().predictions;
           m.add(run, static_cast<double>(counts.accepted), label("decision", "accepted"));
           m.add(run, static_cast<double>(counts.shrunk), label("decision", "shrunk"));
           m.add(run, static_cast<double>(counts.reverted), label("decision", "reverted"));
         });
  metric("memory_peak_bytes", "gauge", "Peak of device memory in the last step, by kind.",
         [](Metric& m, Run run, Step last) {
           for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
             m.add(run, static_cast<double>(last.device_memory.peak[kind]),
                   label("kind", name_of(static_cast<MemoryKind>(kind))));
         });
  metric("memory_peak_total_bytes", "gauge", "Peak of device memory in the last step.",
         [](Metric& m, Run run, Step last) {
           m.add(run, static_cast<double>(last.device_memory.peak_total));
         });
  metric("memory_budget_bytes", "gauge", "Budget of device memory.", [](Metric& m, Run run, Step) {
    if (run.device_budget() > 0) m.add(run, static_cast<double>(run.device_budget()));
  });
  metric("host_memory_bytes", "gauge", "Host memory for what left the device.",
         [](Metric& m, Run run, Step last) {
           m.add(run, static_cast<double>(last.host_memory.live_total));
         });
  return out;
}

}  // namespace hybrid_trainer
