#include "src/observability/watch/watch_server.h"

#include <boost/json.hpp>
#include <charconv>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "src/files/json.h"
#include "src/files/text.h"
#include "src/observability/page_assets.h"

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

/// Text of one metric for all runs: help, type, and a line for each value.
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

/// Returns all runs' last values in Prometheus text format 0.0.4, each with a label `run`.
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
  metric("step", "gauge", "Last completed step.",
         [](Metric& m, Run run, Step last) { m.add(run, static_cast<double>(last.step)); });
  metric("planned_steps", "gauge", "Steps of the whole run.",
         [](Metric& m, Run run, Step) { m.add(run, static_cast<double>(run.planned_steps())); });
  metric("seconds_left", "gauge", "Remaining time, estimated from the last steps.",
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
  metric("decisions_total", "counter", "Accepted and reverted predictions.",
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
  metric("host_memory_bytes", "gauge", "Host memory for offloaded data.",
         [](Metric& m, Run run, Step last) {
           m.add(run, static_cast<double>(last.host_memory.live_total));
         });
  return out;
}

std::int64_t whole_number(const std::string& text, std::int64_t otherwise) {
  std::int64_t value = otherwise;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() ? value : otherwise;
}

std::string all_summaries(const WatchedFolder& folder) {
  boost::json::object runs;
  for (const auto& run : folder.runs()) {
    boost::json::error_code damaged;
    runs[run->name()] = boost::json::parse(run->summary_json(), damaged);
  }
  return json_line(boost::json::object{{"runs", std::move(runs)}}) + "\n";
}

HttpAnswer not_found() { return {.status = 404, .type = "text/plain", .body = "no such page\n"}; }

}  // namespace

WatchServer::WatchServer(WatchedFolder& folder, std::uint16_t port)
    : folder_(folder),
      server_(port, [this](const HttpRequest& request) { return answer(request); }) {
  refresh();
}

/// Returns true if a viewer has updates.
bool WatchServer::refresh() {
  folder_.refresh();
  bool has_updates = false;
  for (const auto& run : folder_.runs()) {
    auto& feed = feeds_[run->name()];
    if (!feed) feed = std::make_unique<RunFeed>(*run);
    has_updates = feed->refresh() || has_updates;
  }
  if (has_updates && !folder_.is_run()) {
    rows_ = live_rows(folder_);
    ++rows_version_;
  }
  return has_updates;
}

HttpAnswer WatchServer::answer(const HttpRequest& request) const {
  const std::string& path = request.path;
  if (!path.starts_with('/')) return not_found();
  if (path == "/metrics")
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = prometheus_text(folder_)};
  if (folder_.is_run()) return answer_of_run(folder_.name(), path.substr(1), request);
  if (path == "/") return {.body = runs_page(folder_), .policy = runs_policy()};
  if (path == "/summary.json") return {.type = "application/json", .body = all_summaries(folder_)};
  if (path == "/events")
    return {.events = [this, seen = std::uint64_t{0}]() mutable -> std::string {
      if (std::exchange(seen, rows_version_) == rows_version_) return "";
      return server_event("parts", json_line(boost::json::object{{"rows", rows_}}));
    }};
  constexpr std::string_view kRun = "/run/";
  const std::size_t slash = path.rfind('/');
  if (!path.starts_with(kRun) || slash < kRun.size()) return not_found();
  return answer_of_run(path.substr(kRun.size(), slash - kRun.size()), path.substr(slash + 1),
                       request);
}

HttpAnswer WatchServer::answer_of_run(const std::string& name, const std::string& what,
                                      const HttpRequest& request) const {
  const auto found = feeds_.find(name);
  if (found == feeds_.end()) return not_found();
  const RunFeed& feed = *found->second;
  if (what.empty()) return {.body = feed.page(), .policy = report_policy(k_live_js)};
  if (what == "summary.json")
    return {.type = "application/json", .body = feed.run().summary_json()};
  if (what != "events") return not_found();
  const auto value_of = [&](const char* key) {
    const auto given = request.query.find(key);
    return given == request.query.end() ? std::string() : given->second;
  };
  const std::string last = request.last_event.empty() ? value_of("after") : request.last_event;
  return {.events = [&feed, place = feed.position_after(
                                value_of("generation"),
                                last.empty() ? 0 : whole_number(last, -1))]() mutable {
    return feed.updates(place);
  }};
}

}  // namespace hybrid_trainer
