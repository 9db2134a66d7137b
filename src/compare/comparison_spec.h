#pragma once

#include <filesystem>

#include "hybrid_trainer/config/hybrid_trainer_config.h"

namespace hybrid_trainer {

/// A variant of the comparison: changes of the common configuration, or a program.
struct ComparisonVariant {
  std::string name;  // also the name of its folder
  /// Base configuration with the variant's settings, without a run's steps, seed and swept value.
  HybridTrainerConfig config;
  std::vector<std::string> command;   // command of a program; empty for this program
  std::vector<double> sweep;          // ascending; empty without a sweep
  std::vector<std::int64_t> budgets;  // steps, ascending; by default the spec's
  bool is_program() const { return !command.empty(); }
};

struct RunPoint {
  std::int64_t steps = 0, seed = 0;
  std::optional<double> value;  // swept value
  std::int64_t round = 0;       // timing round, from 1; 0: a measured run
  /// Returns the folder's name: "600-steps-seed-0-at-0.002", "20-steps-seed-3-at-0.002-pace-1".
  std::string name() const;
};

/// Timing runs, one of each variant in each round, after all other runs. The time per step is
/// measured only in these runs.
struct ComparisonTiming {
  std::int64_t steps = 0, rounds = 0;
};

struct ComparisonSpec {
  std::filesystem::path folder;  // folder of the spec, in which programs run
  std::filesystem::path data;    // absolute; empty: the networks generate their examples
  std::filesystem::path model;   // absolute: initial model of each run; or empty
  std::vector<ComparisonVariant> variants;
  std::vector<std::int64_t> budgets;  // budgets of variants that set none
  std::vector<std::int64_t> seeds;
  std::string sweep_key;  // "optimizer.learning_rate"; "" without a sweep
  std::optional<double> target_loss;
  std::optional<ComparisonTiming> pace;
  int ranks = 1;     // threads of this process that train one run together; programs ignore it
  std::string text;  // the spec as JSON with absolute paths

  /// Returns the training unit: "tokens", "examples".
  std::string unit() const;
  /// Returns whether the losses are for masked tokens.
  bool masks() const {
    return std::ranges::any_of(
        variants, [](const ComparisonVariant& variant) { return variant.config.masks(); });
  }
  /// Returns the smallest seed without a measured run. Only sweep trials and timing runs use it.
  std::int64_t sweep_seed() const;
  HybridTrainerConfig config_of(const ComparisonVariant& variant, const RunPoint& point) const;
  /// Returns a program's arguments for a run with its files in `output`.
  std::vector<std::string> command_of(const ComparisonVariant& variant, const RunPoint& point,
                                      const std::filesystem::path& output) const;
};

/// Reads an untrusted spec of at most 1 MiB (docs/COMPARE.md). Paths are relative to its folder.
/// Throws MissingInput for the spec or its data, or one ConfigError with all problems.
ComparisonSpec read_comparison_spec(const std::filesystem::path& file);

/// Throws ConfigError naming each part of the spec `now` that differs from `before` (texts of
/// ComparisonSpec), except new variants, seeds and budgets.
void check_same_comparison(const std::string& before, const std::string& now);

}  // namespace hybrid_trainer
