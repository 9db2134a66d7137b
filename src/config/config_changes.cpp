#include "src/config/config_changes.h"

#include "hybrid_trainer/core/state.h"
#include "src/files/config_fields.h"

namespace hybrid_trainer {

namespace {

std::string text_of(const FieldNode& field) {
  return field.left_out ? "left out" : field_text(field);
}

void compare_values(const std::string& path, const std::string& was, const std::string& is,
                    OnResume resume, ConfigChanges& changes) {
  if (was == is) return;
  if (resume == OnResume::kStays) {
    changes.accepted.push_back(
        concat(path, ": the run keeps its value \"", was, "\"; got \"", is, "\""));
  } else if (resume == OnResume::kMayChange) {
    changes.accepted.push_back(concat(path, ": ", was, " until now, ", is, " from now on"));
  } else if (resume == OnResume::kMayBecome0 && is == "0") {
    changes.accepted.push_back(
        concat(path, ": ", was, " until now, 0 from now on: plain training"));
  } else {
    changes.refused.push_back(concat(path, ": the run was saved with ", was, ", got ", is));
  }
}

/// Compares lists of equal length by element. Ignores groups of methods other than `method`.
void compare_groups(const std::string& path, const FieldNode& was, const FieldNode& is,
                    OnResume of_group, const std::string& method, ConfigChanges& changes) {
  for (std::size_t i = 0; i < is.fields.size(); ++i) {
    const FieldNode &before = was.fields[i], &after = is.fields[i];
    const std::string at = path.empty() ? after.name : path + "." + after.name;
    if (path == "phases" && after.is_group() && after.name != method) continue;
    const OnResume resume = after.resume == OnResume::kSame ? of_group : after.resume;
    if (after.is_group()) {
      compare_groups(at, before, after, resume, method, changes);
    } else if (after.is_list && !after.is_named &&
               before.elements.size() == after.elements.size()) {
      for (std::size_t k = 0; k < after.elements.size(); ++k)
        compare_groups(concat(at, "[", k, "]"), before.elements[k], after.elements[k], resume,
                       method, changes);
    } else {
      compare_values(at, text_of(before), text_of(after), resume, changes);
    }
  }
}

}  // namespace

ConfigChanges config_changes(const HybridTrainerConfig& saved, const HybridTrainerConfig& now) {
  ConfigChanges changes;
  compare_groups("", field_tree(saved), field_tree(now), OnResume::kSame, now.phases.method,
                 changes);
  if (!saved.stages.empty() && saved.training.steps != now.training.steps) {
    changes.refused.push_back(
        concat("training.steps: the run was saved with ", saved.training.steps,
               ", and its stages end at shares of this number; got ", now.training.steps));
  }
  return changes;
}

std::string learning_rate_jump(const HybridTrainerConfig& saved, const HybridTrainerConfig& now,
                               std::int64_t steps_done, double factor) {
  const double peak = now.optimizer.learning_rate;
  const bool moves_on = steps_done == 0 || steps_done < now.schedule.warmup_steps ||
                        peak != saved.optimizer.learning_rate;
  if (moves_on || now.training.steps <= steps_done) return "";
  const double before = learning_rate(saved.schedule, peak, steps_done - 1, saved.training.steps);
  const double after = learning_rate(now.schedule, peak, steps_done, now.training.steps);
  const double saved_rate = learning_rate(saved.schedule, peak, steps_done, saved.training.steps);
  if (std::abs(after - saved_rate) <= 0.1 * saved_rate) return "";
  const std::string scaled =
      factor == 1 ? ""
                  : concat(" (times ", brief(factor),
                           ", the factor of rollbacks and the learning-rate finder)");
  return concat("the learning rate goes from ", brief(factor * before), " to ",
                brief(factor * after), ": the schedule (", now.schedule.name,
                ") spans training.steps, now ", now.training.steps,
                "; --set schedule.name=constant --set optimizer.learning_rate=", brief(before),
                scaled, " keeps the rate");
}

double rate_factor_of(const State& state) {
  double factor = 1;
  for (const char* name : {"trainer.roll_backs.rate_factor", "phases.learning_rate_finder.factor"})
    if (const auto found = state.reals.find(name); found != state.reals.end())
      factor *= found->second;
  return factor;
}

void check_changes(const ConfigChanges& changes) {
  if (changes.refused.empty()) return;
  std::vector<std::string> problems = changes.refused;
  problems.emplace_back(
      "these keys cannot change when a run resumes: resume without them (--resume --run RUN), or "
      "start a new run");
  throw ConfigError(std::move(problems));
}

}  // namespace hybrid_trainer
