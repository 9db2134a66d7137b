#pragma once

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// An unsupported combination: if `when` holds, each of the keys must pass the test, or the
/// configuration is refused with "KEY: got VALUE, but WHY; want WANTED".
struct Refusal {
  std::vector<std::string> keys;
  KeyTest::Kind kind = KeyTest::Kind::kIsOneOf;
  std::vector<std::string> values;
  std::string why;
  std::vector<KeyTest> when{};  // all must hold; empty: always
  std::string wanted{};         // "": derived from kind and values
};

/// Returns the unsupported combinations of a method. Throws ConfigError with the nearest names.
const std::vector<Refusal>& refusals_of(const std::string& method);

}  // namespace hybrid_trainer
