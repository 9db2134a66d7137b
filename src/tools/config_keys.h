#pragma once

#include <string>
#include <vector>

namespace hybrid_trainer {

/// A key of the configuration, as --set takes it.
struct ConfigKey {
  std::string path;                  // "phases.method"
  std::vector<std::string> choices;  // of its value; empty: others
};

/// All keys in their order; lists of groups have none.
std::vector<ConfigKey> config_keys();

}  // namespace hybrid_trainer
