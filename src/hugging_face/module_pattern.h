#pragma once

#include <memory>
#include <optional>
#include <string>

namespace hybrid_trainer {

/// A pattern of Python's re over the names of modules, as PEFT's configurations have them.
class ModulePattern {
 public:
  /// Throws DataError where it is none.
  explicit ModulePattern(const std::string& pattern);
  /// Whether it matches the whole name (re.fullmatch). Throws DataError where it would take too long.
  bool matches(const std::string& name) const { return first_group(name).has_value(); }
  /// What the first group matched in a name that the pattern matches; empty where there is none.
  std::optional<std::string> first_group(const std::string& name) const;

 private:
  struct Compiled;
  std::string text_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace hybrid_trainer
