#pragma once

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// An unsupported combination of keys. If `when` holds, a key that fails the test is refused with
/// "KEY: got VALUE, but WHY; want WANTED".
struct Refusal {
  std::vector<std::string> keys;
  std::vector<std::string> values;
  std::string why;
  KeyTest::Kind kind = KeyTest::Kind::kIsOneOf;
  std::vector<KeyTest> when{};  // all must hold; empty: always
  std::string wanted{};         // "": derived from the test's kind and values
};

/// Returns a method's unsupported combinations. Throws ConfigError for an unknown method.
const std::vector<Refusal>& refusals_of(const std::string& method);

}  // namespace hybrid_trainer
