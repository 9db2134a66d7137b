#include "curves.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "hybrid_trainer/files/json_writer.h"

namespace hybrid_trainer {
namespace {

constexpr int kDigits = 6;  // of curve values; a screen shows fewer

void write_marks(JsonWriter& out, std::string_view key, const CurveMarks& marks) {
  out.begin_array(key);
  for (const CurveMark& mark : marks.kept) {
    out.begin_array();
    out.number("", mark.step);
    out.number("", mark.value, kDigits);
    out.end_array();
  }
  out.end_array();
}

template <class Value>
void write_column(JsonWriter& out, std::string_view key, const std::vector<CurvePoint>& points,
                  const Value& value_of) {
  out.begin_array(key);
  for (const CurvePoint& point : points) {
    const auto value = value_of(point);
    if constexpr (std::is_floating_point_v<decltype(value)>) {
      out.number("", value, kDigits);
    } else {
      out.number("", value);
    }
  }
  out.end_array();
}

/// Kinds with any bytes at any time, each with two columns.
void write_kinds(JsonWriter& out, const std::vector<CurvePoint>& points) {
  out.begin_array("kinds");
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    const auto used = [&](const CurvePoint& point) {
      return point.live[kind] + point.peak[kind] > 0;
    };
    if (std::none_of(points.begin(), points.end(), used)) continue;
    out.begin_object();
    out.string("name", name_of(static_cast<MemoryKind>(kind)));
    write_column(out, "live", points, [&](const CurvePoint& point) { return point.live[kind]; });
    write_column(out, "peak", points, [&](const CurvePoint& point) { return point.peak[kind]; });
    out.end_object();
  }
  out.end_array();
}

void write_bands(JsonWriter& out, const std::vector<PhaseRun>& bands) {
  out.begin_array("bands");
  for (const PhaseRun& band : bands) {
    out.begin_array();
    out.string("", name_of(band.phase));
    out.number("", band.first_step);
    out.number("", band.last_step);
    out.end_array();
  }
  out.end_array();
}

void write_events(JsonWriter& out, const std::deque<CurveEvent>& events) {
  out.begin_array("events");
  for (const CurveEvent& event : events) {
    out.begin_array();
    out.number("", event.step);
    out.string("", name_of(event.phase));
    out.string("", event.text);
    out.boolean("", event.warns);
    if (event.decision != Decision::kNone) {
      out.string("", name_of(event.decision));
      out.number("", event.kept_fraction);
    }
    out.end_array();
  }
  out.end_array();
}

}  // namespace

CurvePoint::CurvePoint(const StepRecord& record)
    : last_step(record.step),
      seconds(std::isfinite(record.seconds) ? record.seconds : 0),
      tokens(record.tokens),
      live(record.device_memory.live),
      peak(record.device_memory.peak),
      host(record.host_memory.live_total) {
  steps[static_cast<std::size_t>(record.phase)] = 1;
  if (!std::isfinite(record.loss)) return;
  finite_losses = 1;
  loss_sum = loss_low = loss_high = record.loss;
}

void CurvePoint::absorb(const CurvePoint& next) {
  last_step = next.last_step;
  if (next.finite_losses > 0) {
    loss_low = finite_losses > 0 ? std::min(loss_low, next.loss_low) : next.loss_low;
    loss_high = finite_losses > 0 ? std::max(loss_high, next.loss_high) : next.loss_high;
  }
  finite_losses += next.finite_losses;
  loss_sum += next.loss_sum;
  seconds += next.seconds;
  tokens += next.tokens;
  host = std::max(host, next.host);
  for (std::size_t i = 0; i < kPhases; ++i) steps[i] += next.steps[i];
  for (std::size_t i = 0; i < kMemoryKinds; ++i) {
    live[i] = std::max(live[i], next.live[i]);
    peak[i] = std::max(peak[i], next.peak[i]);
  }
}

Phase CurvePoint::phase() const {
  return static_cast<Phase>(std::max_element(steps.begin(), steps.end()) - steps.begin());
}

std::int64_t CurvePoint::step_count() const {
  return std::accumulate(steps.begin(), steps.end(), std::int64_t{0});
}

void CurveMarks::add(std::int64_t step, const std::optional<double>& value) {
  if (!value || !std::isfinite(*value) || seen++ % stride != 0) return;
  kept.push_back({step, *value});
  if (kept.size() < Curves::kMostPoints) return;
  for (std::size_t i = 0; 2 * i < kept.size(); ++i) kept[i] = kept[2 * i];
  kept.resize((kept.size() + 1) / 2);
  stride *= 2;
}

void Curves::add(const StepRecord& record) {
  if (!points_.empty() && points_.back().step_count() < steps_per_point_) {
    points_.back().absorb(CurvePoint(record));
  } else {
    if (points_.size() == kMostPoints) put_pairs_together();
    points_.emplace_back(record);
  }
  add_to_runs(record);
  validation_.add(record.step, record.validation_loss);
  predicted_.add(record.step, record.predicted_loss);
  errors_.add(record.step, record.prediction_error);
  if (record.event.empty()) return;
  ++all_events_;
  events_.push_back({record.step, record.phase, record.event, record.decision, record.kept_fraction,
                     record.warns});
  if (events_.size() > kMostEvents) events_.pop_front();
}

void Curves::add_to_runs(const StepRecord& record) {
  if (!few_runs_) return;
  if (!runs_.empty() && runs_.back().phase == record.phase) {
    runs_.back().last_step = record.step;
    return;
  }
  runs_.push_back({record.phase, record.step, record.step});
  few_runs_ = runs_.size() <= kMostPoints;
}

/// The exact runs of phases if they are few, otherwise those of points.
std::vector<PhaseRun> Curves::bands() const {
  if (few_runs_) return runs_;
  std::vector<PhaseRun> bands;
  std::int64_t first = 1;
  for (const CurvePoint& point : points_) {
    if (bands.empty() || bands.back().phase != point.phase())
      bands.push_back({point.phase(), first, 0});
    bands.back().last_step = point.last_step;
    first = point.last_step + 1;
  }
  return bands;
}

void Curves::put_pairs_together() {
  std::vector<CurvePoint> pairs;
  pairs.reserve(points_.size());
  for (std::size_t i = 0; i < points_.size(); i += 2) {
    pairs.push_back(points_[i]);
    if (i + 1 < points_.size()) pairs.back().absorb(points_[i + 1]);
  }
  points_ = std::move(pairs);
  steps_per_point_ *= 2;
}

/// The phase of each point, and those that occur at all.
void Curves::write_phases(JsonWriter& out) const {
  std::array<std::int64_t, kPhases> steps{};
  out.begin_array("phase");
  for (const CurvePoint& point : points_) {
    out.string("", name_of(point.phase()));
    for (std::size_t i = 0; i < kPhases; ++i) steps[i] += point.steps[i];
  }
  out.end_array();
  out.begin_array("phases");
  for (Phase phase : kAllPhases) {
    if (steps[static_cast<std::size_t>(phase)] > 0) out.string("", name_of(phase));
  }
  out.end_array();
}

std::string Curves::to_json() const {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto loss = [&](const CurvePoint& point) {
    return point.finite_losses > 0 ? point.loss_sum / static_cast<double>(point.finite_losses)
                                   : kNone;
  };
  JsonWriter out;
  out.begin_object();
  out.number("stepsPerPoint", steps_per_point_);
  write_column(out, "step", points_, [](const CurvePoint& point) { return point.last_step; });
  write_column(out, "seconds", points_, [](const CurvePoint& point) { return point.seconds; });
  write_column(out, "tokens", points_, [](const CurvePoint& point) { return point.tokens; });
  write_column(out, "loss", points_, loss);
  if (steps_per_point_ > 1) {
    write_column(out, "low", points_,
                 [](const CurvePoint& p) { return p.finite_losses > 0 ? p.loss_low : kNone; });
    write_column(out, "high", points_,
                 [](const CurvePoint& p) { return p.finite_losses > 0 ? p.loss_high : kNone; });
  }
  write_column(out, "host", points_, [](const CurvePoint& point) { return point.host; });
  write_kinds(out, points_);
  write_phases(out);
  write_bands(out, bands());
  write_marks(out, "validation", validation_);
  write_marks(out, "predicted", predicted_);
  write_marks(out, "errors", errors_);
  write_events(out, events_);
  out.number("allEvents", all_events_);
  out.end_object();
  return out.text();
}

}  // namespace hybrid_trainer
