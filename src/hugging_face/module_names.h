#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// The number that a text begins with, such as a layer's, within 32 bits; 0 if it has none.
std::int64_t leading_number(std::string_view text);

/// Patterns that one key may give at most.
inline constexpr std::size_t kMostPatterns = 100;

/// Names of modules, each for itself and for what ends in it after a dot, or a pattern in their place.
struct ModuleNames {
  std::set<std::string> names{};
  std::optional<ModulePattern> pattern{};
  bool are_none() const { return names.empty() && !pattern; }
  bool include(const std::string& module) const;
  /// The shortest of the names that includes a module; empty where none does.
  std::string name_of(const std::string& module) const;
};

/// Numbers for some modules, by patterns, which may be the end of a name after a dot.
class ModuleNumbers {
 public:
  /// Of several that match, the one that was added first counts. Throws DataError.
  void add(const std::string& pattern, double number);
  double of(const std::string& module, double otherwise) const;

 private:
  struct Numbered {
    std::size_t place;
    double number;
  };
  std::map<std::string, Numbered> plain_;  // without any sign of a pattern but the dot
  std::vector<std::pair<ModulePattern, Numbered>> patterns_;
};

}  // namespace hybrid_trainer
