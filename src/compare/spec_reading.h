#pragma once

#include <boost/json/object.hpp>
#include <map>
#include <string>
#include <vector>

#include "hybrid_trainer/compare/comparison_spec.h"

namespace hybrid_trainer {

/// One spec being read: its problems are gathered, and thrown together by the caller.
class SpecReading {
 public:
  /// `lines` tells where keys outside lists stand.
  SpecReading(std::string file, std::map<std::string, std::size_t> lines)
      : file_(std::move(file)), lines_(std::move(lines)) {}
  ComparisonSpec read(const boost::json::object& root);
  void note(const std::string& path, const std::string& problem);
  std::vector<std::string>& problems() { return problems_; }

 private:
  using Object = boost::json::object;
  using Value = boost::json::value;
  void check_keys(const Object& object, const std::string& path,
                  const std::vector<std::string>& known);
  std::string text(const Object& object, const char* key, const std::string& path);
  std::vector<std::int64_t> whole_numbers(const Object& object, const char* key,
                                          const std::string& path, std::int64_t lowest);
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
  void check_arms();
  std::vector<std::string> problems_over_ranks(const ComparisonArm& arm,
                                               const HybridTrainerConfig& config) const;
  void check_configs(const ComparisonArm& arm, const std::string& at);

  std::string file_;
  std::map<std::string, std::size_t> lines_;
  std::vector<std::string> problems_;
  HybridTrainerConfig base_;
  ComparisonSpec spec_;
  std::vector<double> sweep_;
};

}  // namespace hybrid_trainer
