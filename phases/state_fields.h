#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "hybrid_trainer/core/state.h"

namespace hybrid_trainer {

/// A class that lists its members once, as visit_state(self, visit) with visit("name", member), is
/// saved with a StateWriter and loaded with a StateReader. Members are bool, enum, std::int64_t,
/// double or std::vector<double>.
struct StateWriter {
  State& state;
  template <class T>
  void operator()(const std::string& name, const T& value) const {
    if constexpr (std::is_same_v<T, double>) {
      state.reals[name] = value;
    } else if constexpr (std::is_same_v<T, std::vector<double>>) {
      state.series[name] = value;
    } else {
      state.integers[name] = static_cast<std::int64_t>(value);
    }
  }
};

struct StateReader {
  const State& state;
  template <class T>
  void operator()(const std::string& name, T& value) const {
    if constexpr (std::is_same_v<T, double>) {
      value = state.real(name);
    } else if constexpr (std::is_same_v<T, std::vector<double>>) {
      value = state.reals_of(name);
    } else {
      value = static_cast<T>(state.integer(name));
    }
  }
};

}  // namespace hybrid_trainer
