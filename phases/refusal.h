#pragma once

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

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
