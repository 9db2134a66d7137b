#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "hybrid_trainer/compare/comparison_spec.h"
#include "src/compare/spec_problems.h"

namespace hybrid_trainer {

/// One spec being read, whose problems are noted.
class SpecReading {
 public:
  explicit SpecReading(SpecProblems& problems) : problems_(problems) {}
  ComparisonSpec read(const boost::json::object& root);

 private:
  using Object = boost::json::object;
  using Value = boost::json::value;
  std::vector<std::int64_t> budgets(const Object& object, const std::string& path);
  void read_preset(const std::string& name);
  void read_base(const Value& base);
  std::vector<double> read_sweep(const Value& sweep, const std::string& path, std::string& key);
  void read_arms(const Object& root);
  void read_arm(const Object& object, const std::string& path);
  void read_settings(const Value& settings, const std::string& path, ComparisonArm& arm);
  void read_command(const Value& command, const std::string& path, ComparisonArm& arm);
  void read_target(const Value& target);
  void read_pace(const Value& pace);
  void read_ranks(const Value& ranks);

  SpecProblems& problems_;
  HybridTrainerConfig base_;
  ComparisonSpec spec_;
  std::vector<double> sweep_;
};

}  // namespace hybrid_trainer
