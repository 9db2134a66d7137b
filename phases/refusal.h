#pragma once

#include <string>
#include <vector>

namespace hybrid_trainer {

/// What must be true of the value of a key of the whole configuration, as text.
struct KeyTest {
  enum class Kind { kIsOneOf, kIsNoneOf, kIsMoreThan, kIsLessThan, kIsAtMost };

  /// "memory.weights"; "optimizer.groups[].name" is that of each group that gives one. "ranks" is how
  /// many ranks there are, where that is known; a test of a key that is not there holds nowhere.
  std::string key;
  Kind kind = Kind::kIsOneOf;
  std::vector<std::string> values;  // of a number, the one that it is compared with, or its key
};

/// Something that does not go together: where `when` holds, each of the keys must pass, or the
/// configuration is refused with "KEY: got VALUE, but WHY; want WANTED".
struct Refusal {
  std::vector<std::string> keys;
  KeyTest::Kind kind = KeyTest::Kind::kIsOneOf;
  std::vector<std::string> values;
  std::string why;
  std::vector<KeyTest> when{};  // all of them; none: always
  std::string wanted{};         // ""; by kind and values
};

/// All that a method of phases.method refuses. Throws ConfigError with the nearest names.
const std::vector<Refusal>& refusals_of(const std::string& method);

}  // namespace hybrid_trainer
