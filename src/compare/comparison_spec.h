#pragma once

#include <filesystem>

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// One of the ways to train that are compared: changes of the common configuration, or a program.
struct ComparisonArm {
  std::string name;  // also its folder's
  /// The base with the arm's settings; a run's steps, seed and swept value are not in it.
  HybridTrainerConfig config;
  std::vector<std::string> command;   // of a program; empty for an arm of this one
  std::vector<double> sweep;          // ascending; empty: nothing is swept
  std::vector<std::int64_t> budgets;  // steps of a run, ascending; the spec's or its own
  bool is_program() const { return !command.empty(); }
};

/// Which run of an arm.
struct RunPoint {
  std::int64_t steps = 0, seed = 0;
  std::optional<double> value;  // of what is swept
  std::int64_t round = 0;       // of the pace, from 1; 0: a run that counts by its loss
  /// Its folder's name: "600-steps-seed-0-at-0.002", "20-steps-seed-3-at-0.002-pace-1".
  std::string name() const;
};

/// Short runs of each arm after all others, in turns, which alone say how long a step takes.
struct ComparisonPace {
  std::int64_t steps = 0, rounds = 0;
};

/// The variants to compare, the seeds and budgets, and the data.
struct ComparisonSpec {
  std::filesystem::path folder;  // the spec's, in which programs run
  std::filesystem::path data;    // absolute; empty: the networks draw their examples
  std::filesystem::path model;   // absolute: a folder that each run begins with; or empty
  std::vector<ComparisonArm> arms;
  std::vector<std::int64_t> budgets;  // of arms that have none of their own
  std::vector<std::int64_t> seeds;
  std::string sweep_key;  // "optimizer.learning_rate"; "" where nothing is swept
  std::optional<double> target_loss;
  std::optional<ComparisonPace> pace;
  int ranks = 1;     // threads of this process that train each run of this program
  std::string text;  // the spec as JSON, paths in it absolute

  /// What a step learns from: "tokens", "examples".
  std::string unit() const;
  /// Whether losses are of masked tokens.
  bool masks() const {
    return std::ranges::any_of(arms, [](const ComparisonArm& arm) { return arm.config.masks(); });
  }
  /// The smallest seed that is in no measured run: values of the sweep are chosen on it alone.
  std::int64_t sweep_seed() const;
  HybridTrainerConfig config_of(const ComparisonArm& arm, const RunPoint& point) const;
  /// A program's arguments for a run that leaves its files in `output`.
  std::vector<std::string> command_of(const ComparisonArm& arm, const RunPoint& point,
                                      const std::filesystem::path& output) const;
};

/// Reads a spec of unknown origin, of at most 1 MiB (docs/COMPARE.md lists its keys); relative paths
/// in it are against its folder. Every run's configuration is validated. Throws MissingInput for
/// the spec or its data, or one ConfigError with all problems.
ComparisonSpec read_comparison_spec(const std::filesystem::path& file);

/// Throws ConfigError that names each part of spec `now` that differs from `before` (texts of
/// ComparisonSpec) other than by arms, seeds and budgets that are new.
void check_same_comparison(const std::string& before, const std::string& now);

}  // namespace hybrid_trainer
