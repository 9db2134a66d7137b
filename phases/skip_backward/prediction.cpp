#include "phases/skip_backward/prediction.h"

namespace hybrid_trainer {

bool PredictionLine::compute_direction(Trainable& model, Predictor& predictor) {
  switch (predictor.readiness()) {
    case Readiness::kNotReady: return false;
    case Readiness::kChangesNothing: directions_.clear(); return true;
    case Readiness::kReady: break;
  }
  if (directions_.empty()) directions_ = model.weights().empty_directions();
  predictor.write_directions(model, directions_);
  return true;
}

bool PredictionLine::wait_for_valid_direction(Trainable& model) const {
  double squares = 0;
  for (const Tensor& direction : directions_)
    squares += model.weights().wait_for_dot(direction, direction);
  return !moves() || (squares > 0 && std::isfinite(squares));
}

void PredictionLine::start(Trainable& model) {
  model.rollback().save_snapshot();
  position_ = 0;
  started_ = true;
}

void PredictionLine::advance(Trainable& model, double length) {
  position_ += length;
  if (moves()) model.weights().move_along(directions_, length);
}

void PredictionLine::return_to(Trainable& model, double position) {
  position_ = position;
  if (!moves()) return;
  model.rollback().restore_snapshot();
  if (position != 0) model.weights().move_along(directions_, position);
}

double PredictionLine::wait_for_slope(Trainable& model) const {
  return moves() ? model.weights().wait_for_slope(directions_) : 0;
}

void PredictionLine::release(Trainable& model) {
  if (started_) model.rollback().drop_snapshot();
  *this = PredictionLine();
}

void PredictionLine::save(State& state) const {
  state.integers["phases.line.started"] = started_;
  state.reals["phases.line.position"] = position_;
  save_tensors(state, "phases.line.direction", started_ ? directions_ : std::vector<Tensor>());
}

void PredictionLine::load(const State& state, Trainable& model) {
  started_ = state.integer("phases.line.started") != 0;
  position_ = state.real("phases.line.position");
  directions_.clear();
  const std::string name = "phases.line.direction";
  if (state.integer(name + ".count") > 0) directions_ = load_directions(state, name, model);
}

namespace {

template <class Held, class Visit>
void visit_prediction(Held& held, const Visit& visit) {
  visit("phases.told_no_direction", held.has_reported_no_direction);
  visit("phases.aim_cost", held.direction_cost);
  visit("phases.verdict", held.verdict);
  visit("phases.jump.open", held.extrapolation.open);
  visit("phases.jump.planned_steps", held.extrapolation.planned_steps);
  visit("phases.jump.steps", held.extrapolation.steps);
  visit("phases.jump.step_length", held.extrapolation.step_length);
  visit("phases.jump.limit", held.extrapolation.limit);
  visit("phases.jump.start_loss", held.extrapolation.start_loss);
  visit("phases.jump.mean_loss", held.extrapolation.mean_loss);
  visit("phases.jump.slope", held.extrapolation.slope);
  visit("phases.jump.curvature", held.extrapolation.curvature);
  visit("phases.jump.confidence", held.extrapolation.confidence);
  visit("phases.jump.cost", held.extrapolation.cost);
  visit("phases.jump.trial", held.extrapolation.trial);
  visit("phases.jump.stop", held.extrapolation.stop);
  visit("phases.jump.failed", held.extrapolation.failed);
  visit("phases.jump.lacks_room", held.extrapolation.is_out_of_memory);
}

}  // namespace

PredictorSet::PredictorSet(const SkipBackwardConfig& config, const MakePredictor& make) {
  SkipBackwardConfig one = config;
  const auto add = [&](const std::string& name) {
    const bool known = std::any_of(members_.begin(), members_.end(),
                                   [&](const Member& member) { return member.name == name; });
    one.predictor = name;
    if (!known) members_.push_back({name, make(one)});
  };
  for (const PredictionVariant& arm : config.variants) add(arm.predictor);
  if (config.variants.empty()) add(config.predictor);
}

void PredictorSet::choose(const std::string& name) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].name == name) chosen_ = i;
  }
}

void PredictorSet::observe(Trainable& model) {
  for (const Member& member : members_) member.predictor->observe(model);
}

void PredictorSet::follow(Trainable& model, const std::vector<Tensor>& directions, double length) {
  for (const Member& member : members_) member.predictor->follow(model, directions, length);
}

void PredictorSet::save(State& state) const {
  for (const Member& member : members_) member.predictor->save(state);
}

void PredictorSet::load(const State& state, Trainable& model) {
  for (const Member& member : members_) member.predictor->load(state, model);
}

PredictState::PredictState(PhaseParts& shared)
    : parts(shared),
      predictors(config(), shared.setup.make_predictor),
      advisors(make_extrapolation_advisors(shared.config())),
      trust(config().confidence_window),
      gate(shared.config()) {
  apply_choice();
}

void PredictState::apply_choice() {
  for (const auto& advisor : advisors) {
    const auto choice = advisor->choice();
    if (!choice) continue;
    predictors.choose(choice->arm.predictor);
    gate.plan(choice->arm.steps, choice->step_length);
  }
}

PredictorSet PredictState::make_predictors() const {
  PredictorSet made(config(), parts.setup.make_predictor);
  made.choose(predictors.name());
  return made;
}

void PredictState::report_no_direction(PhaseOutcome& outcome) {
  if (std::exchange(has_reported_no_direction, true)) return;
  outcome.warns = true;
  add_event(
      outcome,
      concat(
          "no prediction: the direction of phases.skip_backward.predictor \"", predictors.name(),
          "\" is zero or not finite. The predictors \"momentum\" and \"random\" need an optimizer "
          "with momentum (not adafactor, or sgd with momentum 0). Use the predictor \"linear\" or "
          "\"merged\", or train without predictions (phases.max_predict_steps=0)"));
}

bool PredictState::compute_direction(PhaseOutcome& outcome) {
  try {
    if (!line.compute_direction(parts.model, predictors.chosen())) return false;
    if (!has_held_snapshot) {
      parts.model.rollback().save_snapshot();
      parts.model.rollback().drop_snapshot();
      has_held_snapshot = true;
    }
  } catch (const OutOfMemory& error) {
    parts.disable_prediction(error, outcome);
    return false;
  }
  if (!line.moves()) return true;
  outcome.cost += config().direction_cost;
  direction_cost += config().direction_cost;
  return true;
}

void PredictState::observe_update(const GradientMeasurement& measurement, PhaseOutcome& outcome) {
  if (!predicts()) return;
  for (const auto& advisor : advisors) {
    const auto steps = static_cast<double>(parts.statistics.steps() + 1);
    const double extra = parts.statistics.cost() + outcome.cost - steps;
    const bool pays = gate.verdict() == PredictGate::Verdict::kAhead;
    advisor->observe_update(measurement,
                            {parts.full_flops, steps, extra, parts.statistics.planning_cost, pays});
    count_cost(*advisor, outcome);
  }
  try {
    predictors.observe(parts.model);
  } catch (const OutOfMemory& error) {
    parts.disable_prediction(error, outcome);
  }
}

void PredictState::count_cost(ExtrapolationAdvisor& advisor, PhaseOutcome& outcome) {
  const auto cost = advisor.take_cost(parts.full_flops);
  if (!cost) return;
  outcome.planning_cost = outcome.planning_cost.value_or(0) + *cost;
  outcome.cost += *cost;
  direction_cost += *cost;
  parts.statistics.planning_cost += *cost;
}

void PredictState::forget_direction() {
  line.release(parts.model);
  trust.clear();
}

void PredictState::reset_predictors() {
  predictors = make_predictors();
  if (!extrapolation.open) forget_direction();
}

PredictGate::Allowance PredictState::allowance() const {
  PredictGate::Allowance allowance = gate.allowance();
  const bool is_first = parts.statistics.predictions.made == 0 && !has_reported_no_direction;
  const bool is_free = is_first && (parts.setup.steps == 0 || config().trial_share == 0);
  if (!allowance.trial || is_free) return allowance;
  // The first probe determines whether the run predicts at all. Therefore its limit is a share of
  // the whole run.
  const std::int64_t steps = is_first ? parts.setup.steps : parts.statistics.steps();
  const double extra_cost = parts.statistics.cost() - static_cast<double>(parts.statistics.steps());
  const double room = 2 * config().trial_share * static_cast<double>(steps);
  if (extra_cost + estimated_cost(allowance) > room) allowance.open = allowance.overdue = false;
  return allowance;
}

double PredictState::estimated_cost(const PredictGate::Allowance& allowance) const {
  const std::int64_t probes = std::min(config().probe_batches, allowance.steps);
  const std::int64_t forwards = allowance.steps + (2 + config().max_shrinks) * probes;
  const std::int64_t slopes = std::max<std::int64_t>(0, slopes_needed() - trust.count());
  const std::int64_t direction_count = slopes + 1;  // and one when Predict begins
  const std::int64_t interval = config().correction_interval;
  const std::int64_t gradients = 1 + (interval > 0 ? allowance.steps / interval : 0);
  double advice = 0;
  for (const auto& advisor : advisors)
    advice += advisor->estimated_cost(allowance.steps, parts.full_flops);
  return advice + static_cast<double>(direction_count) * config().direction_cost +
         static_cast<double>(forwards) * parts.config().forward_cost +
         static_cast<double>(gradients);
}

std::int64_t PredictState::slopes_needed() const {
  return std::max<std::int64_t>(2, std::min(config().confidence_window, parts.config().full_steps));
}

/// Resets predictors if memory is too short to move all records.
void PredictState::follow_extrapolation() {
  if (line.position() != 0) parts.model.weights().follow(line.directions(), line.position());
  try {
    predictors.follow(parts.model, line.directions(), line.position());
  } catch (const OutOfMemory&) {
    if (parts.model.is_distributed()) throw;
    predictors = make_predictors();
  }
}

void PredictState::close_extrapolation() {
  extrapolation.batches.clear();
  gate.finish_extrapolation(extrapolation);
  extrapolation.final_position = line.position();
  extrapolation.next_step_length = gate.step_length();
  for (const auto& advisor : advisors) advisor->observe_result(extrapolation);
  auto& counts = parts.statistics.predictions;
  counts.accepted += extrapolation.decision == Decision::kAccepted;
  counts.shrunk += extrapolation.decision == Decision::kShrunk;
  counts.reverted += extrapolation.decision == Decision::kReverted;
  parts.statistics.predicted_gain += extrapolation.paired_drop;
  extrapolation = {};
  if (line.moves()) follow_extrapolation();
  forget_direction();
  if (parts.is_out_of_memory) predictors = make_predictors();
  apply_choice();
}

void PredictState::save(State& state) const {
  visit_prediction(*this, StateWriter{state});
  predictors.save(state);
  for (const auto& advisor : advisors) advisor->save(state);
  trust.save(state);
  gate.save(state);
  line.save(state);
  save_batches(state, kSavedBatches, extrapolation.batches);
}

void PredictState::load(const State& state) {
  extrapolation = {};
  visit_prediction(*this, StateReader{state});
  predictors = make_predictors();
  const bool predicts = parts.config().max_predict_steps > 0 || extrapolation.open;
  if (predicts) predictors.load(state, parts.model);  // otherwise they would only use memory
  for (const auto& advisor : advisors) advisor->load(state);
  trust.load(state);
  gate.load(state);
  apply_choice();
  if (predicts) line.load(state, parts.model);
  extrapolation.batches = load_batches(state, kSavedBatches, parts.model);
}

}  // namespace hybrid_trainer
