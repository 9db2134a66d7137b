#include "src/observability/curves.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "src/files/json.h"

namespace hybrid_trainer {

namespace {

/// Rounds to the number of digits that a screen can show.
json::value rounded(double value) {
  constexpr int kDigits = 6;
  if (!std::isfinite(value)) return nullptr;
  char text[40];
  const auto end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::general, kDigits).ptr;
  std::from_chars(text, end, value);
  return value;
}

json::array marks_json(const CurveMarks& marks) {
  json::array all;
  for (const CurveMark& mark : marks.kept)
    all.push_back(json::array{mark.step, rounded(mark.value)});
  return all;
}

json::array column(const std::vector<CurvePoint>& points, const auto& value_of) {
  json::array all;
  for (const CurvePoint& point : points) {
    const auto value = value_of(point);
    if constexpr (std::is_floating_point_v<decltype(value)>) {
      all.push_back(rounded(value));
    } else {
      all.emplace_back(value);
    }
  }
  return all;
}

/// Returns the memory kinds that are in use at any time, with two columns for each.
json::array kinds_json(const std::vector<CurvePoint>& points) {
  json::array all;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    const auto used = [&](const CurvePoint& point) {
      return point.live[kind] + point.peak[kind] > 0;
    };
    if (std::none_of(points.begin(), points.end(), used)) continue;
    all.push_back({{"name", name_of(static_cast<MemoryKind>(kind))},
                   {"live", column(points, [&](const auto& point) { return point.live[kind]; })},
                   {"peak", column(points, [&](const auto& point) { return point.peak[kind]; })}});
  }
  return all;
}

json::array bands_json(const std::vector<PhaseRun>& bands) {
  json::array all;
  for (const PhaseRun& band : bands)
    all.push_back(json::array{name_of(band.phase), band.first_step, band.last_step});
  return all;
}

json::array events_json(const std::deque<CurveEvent>& events) {
  json::array all;
  for (const CurveEvent& event : events) {
    json::array one{event.step, name_of(event.phase), event.text, event.warns};
    if (event.decision != Decision::kNone) {
      one.push_back(name_of(event.decision));
      one.push_back(json_or_null(event.kept_fraction));
    }
    all.push_back(one);
  }
  return all;
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

void CurvePoint::merge(const CurvePoint& next) {
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
  if (kept.size() < Curves::kMaxPoints) return;
  for (std::size_t i = 0; 2 * i < kept.size(); ++i) kept[i] = kept[2 * i];
  kept.resize((kept.size() + 1) / 2);
  stride *= 2;
}

void Curves::add(const StepRecord& record) {
  unit_ = record.unit();
  if (!points_.empty() && points_.back().step_count() < steps_per_point_) {
    points_.back().merge(CurvePoint(record));
  } else {
    if (points_.size() == kMaxPoints) merge_pairs();
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
  if (events_.size() > kMaxEvents) events_.pop_front();
}

void Curves::add_to_runs(const StepRecord& record) {
  if (!has_few_runs_) return;
  if (!runs_.empty() && runs_.back().phase == record.phase) {
    runs_.back().last_step = record.step;
    return;
  }
  runs_.push_back({record.phase, record.step, record.step});
  has_few_runs_ = runs_.size() <= kMaxPoints;
}

std::vector<PhaseRun> Curves::bands() const {
  if (has_few_runs_) return runs_;
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

void Curves::merge_pairs() {
  std::vector<CurvePoint> pairs;
  pairs.reserve(points_.size());
  for (std::size_t i = 0; i < points_.size(); i += 2) {
    pairs.push_back(points_[i]);
    if (i + 1 < points_.size()) pairs.back().merge(points_[i + 1]);
  }
  points_ = std::move(pairs);
  steps_per_point_ *= 2;
}

std::string Curves::to_json() const {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::array<std::int64_t, kPhases> steps{};
  for (const CurvePoint& point : points_)
    for (std::size_t i = 0; i < kPhases; ++i) steps[i] += point.steps[i];
  json::array phases;  // phases that occur
  for (const Phase phase : kAllPhases)
    if (steps[static_cast<std::size_t>(phase)] > 0) phases.push_back(name_of(phase));
  const auto point_column = [&](const auto& value_of) { return column(points_, value_of); };
  json::object curves{
      {"unit", unit_},
      {"stepsPerPoint", steps_per_point_},
      {"stepsInLast", points_.empty() ? 0 : points_.back().step_count()},
      {"step", point_column([](const CurvePoint& point) { return point.last_step; })},
      {"seconds", point_column([](const CurvePoint& point) { return point.seconds; })},
      {"tokens", point_column([](const CurvePoint& point) { return point.tokens; })},
      {"loss", point_column([](const CurvePoint& point) { return point.mean_loss(); })},
      {"host", point_column([](const CurvePoint& point) { return point.host; })},
      {"kinds", kinds_json(points_)},
      {"phase", point_column([](const CurvePoint& point) { return name_of(point.phase()); })},
      {"phases", phases},
      {"bands", bands_json(bands())},
      {"validation", marks_json(validation_)},
      {"predicted", marks_json(predicted_)},
      {"errors", marks_json(errors_)},
      {"events", events_json(events_)},
      {"allEvents", all_events_}};
  if (steps_per_point_ > 1) {
    curves["low"] =
        point_column([](const CurvePoint& p) { return p.finite_losses > 0 ? p.loss_low : kNone; });
    curves["high"] =
        point_column([](const CurvePoint& p) { return p.finite_losses > 0 ? p.loss_high : kNone; });
  }
  return json_line(curves);
}

}  // namespace hybrid_trainer
