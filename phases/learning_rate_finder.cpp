#include "phases/learning_rate_finder.h"

#include "phases/phase_parts.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kWindow = "phases.learning_rate_finder.window";

}  // namespace

void LearningRateFinder::begin_step(Trainable& model, const Batch& batch, std::int64_t steps_done,
                                    PhaseOutcome& outcome) {
  if (!is_on() || ended_ || steps_done < setup_.ramp_steps) return;
  try {
    if (window_.empty()) {
      window_ = model.weights().empty_directions();
      start_window(model);
    } else if (updates_ >= setup_.config.interval) {
      probe(model, batch, outcome);
    }
  } catch (const OutOfMemory& error) {
    if (model.is_distributed())
      throw with_hint(error, "learning_rate_finder.mode=off trains without it");
    ended_ = true;
    outcome.warns = true;
    add_event(outcome, concat("the learning-rate finder stops: ", error.what()));
  }
  if (ended_) window_.clear();
}

void LearningRateFinder::start_window(Trainable& model) {
  model.weights().copy_weights(window_);
  updates_ = 0;
}

void LearningRateFinder::probe(Trainable& model, const Batch& batch, PhaseOutcome& outcome) {
  const auto size = static_cast<double>(batch.size());
  const auto examples = static_cast<std::int64_t>(std::ceil(setup_.config.batch_share * size));
  model.weights().add_weights(window_, -1, 1);
  model.rollback().save_snapshot();
  Lowest lowest;
  try {
    lowest = search(model, batch, examples);
  } catch (...) {
    // With several ranks, does not restore the weights, because other ranks would not restore them.
    if (!model.is_distributed()) model.rollback().restore_snapshot();
    model.rollback().drop_snapshot();
    throw;
  }
  model.rollback().restore_snapshot();
  model.rollback().drop_snapshot();
  start_window(model);
  outcome.probe_position = lowest.position;
  outcome.probe_cost = static_cast<double>(lowest.forwards) * setup_.forward_cost *
                       static_cast<double>(examples) / size;
  outcome.cost += *outcome.probe_cost;
  judge(lowest.position, outcome);
  model.scale_learning_rate(factor_);
}

/// Stops when 1 + α/k has reached the largest factor, because a larger α would have no effect.
LearningRateFinder::Lowest LearningRateFinder::search(Trainable& model, const Batch& batch,
                                                      std::int64_t examples) const {
  const auto updates = static_cast<double>(updates_);
  double lowest_loss = model.wait_for_loss(batch, examples), at = 0;
  Lowest lowest{.position = 0, .forwards = 1};
  for (double next = 1; raise_of(lowest.position) < setup_.config.largest_factor; next *= 2) {
    model.weights().move_along(window_, (next - at) / updates);
    at = next;
    const double loss = model.wait_for_loss(batch, examples);
    ++lowest.forwards;
    if (!(loss < lowest_loss)) break;
    lowest_loss = loss;
    lowest.position = next;
  }
  return lowest;
}

double LearningRateFinder::raise_of(double position) const {
  return std::min(setup_.config.largest_factor,
                  1 + position / static_cast<double>(setup_.config.interval));
}

void LearningRateFinder::judge(double position, PhaseOutcome& outcome) {
  ++probes_;
  if (position > 0) {
    refused_in_a_row_ = 0;
    const double raise = raise_of(position);
    factor_ *= raise;
    add_event(outcome,
              concat("learning rate raised ", brief(raise), "-fold, ", brief(factor_),
                     "-fold in total: in the direction of the last ", setup_.config.interval,
                     " updates, the loss has its minimum ", brief(position), " updates ahead"));
    return;
  }
  ended_ = ++refused_in_a_row_ >= setup_.config.refusals;
  add_event(outcome, concat("learning rate unchanged, ", brief(factor_),
                            "-fold in total: in the direction of the last ", setup_.config.interval,
                            " updates, the loss does not decrease further",
                            ended_ ? concat("; found after ", probes_, " probes") : std::string()));
}

void LearningRateFinder::leave_warmup(PhaseOutcome& outcome) {
  if (!is_on() || ended_) return;
  ended_ = true;
  window_.clear();
  outcome.warns = true;
  add_event(outcome, concat("Warmup ended before the learning rate was found: ", brief(factor_),
                            " times the configured rate after ", probes_, " probes; the last ",
                            refused_in_a_row_, " did not raise it, want ", setup_.config.refusals,
                            "; a larger phases.warmup_steps allows more probes"));
}

template <class Self, class Visit>
void LearningRateFinder::visit_state(Self& self, const Visit& visit) {
  visit("phases.learning_rate_finder.factor", self.factor_);
  visit("phases.learning_rate_finder.updates", self.updates_);
  visit("phases.learning_rate_finder.probes", self.probes_);
  visit("phases.learning_rate_finder.refused_in_a_row", self.refused_in_a_row_);
  visit("phases.learning_rate_finder.ended", self.ended_);
}

void LearningRateFinder::save(State& state) const {
  visit_state(*this, StateWriter{state});
  save_tensors(state, kWindow, window_);
}

void LearningRateFinder::load(const State& state, Trainable& model) {
  visit_state(*this, StateReader{state});
  model.scale_learning_rate(factor_);
  window_.clear();
  if (state.integer(concat(kWindow, ".count")) > 0)
    window_ = load_directions(state, kWindow, model);
}

}  // namespace hybrid_trainer
