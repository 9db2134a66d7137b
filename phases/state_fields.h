#pragma once

#include <type_traits>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

/// Saves the members of an object. For StateWriter and StateReader, a class lists its members once,
/// in a function that takes an object and `visit` and calls visit("name", member) for each member.
/// Members are bool, enum, std::int64_t, double or std::vector<double>.
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

class StateReader {
 public:
  explicit StateReader(const State& from) : state_(from) {}
  template <class T>
  void operator()(const std::string& name, T& value) const {
    if constexpr (std::is_same_v<T, double>) {
      value = state_.real(name);
    } else if constexpr (std::is_same_v<T, std::vector<double>>) {
      value = state_.reals_of(name);
    } else {
      value = static_cast<T>(state_.integer(name));
    }
  }

 private:
  const State& state_;
};

/// Saves views of the tensors as "<name>.0", "<name>.1", … and their count as "<name>.count".
void save_tensors(State& state, const std::string& name, const std::vector<Tensor>& tensors);
/// Loads copies of saved tensors into the stream's pool. Throws DataError if one is missing.
std::vector<Tensor> load_tensors(const State& state, const std::string& name, MemoryKind kind,
                                 const Stream& stream);

/// Returns tensors for directions with the saved values, if any.
std::vector<Tensor> load_directions(const State& state, const std::string& name, Trainable& model);

void save_batches(State& state, const std::string& name, const std::vector<Batch>& batches);
/// Loads saved batches, kept with Rollback::keep_batch. Throws DataError if one is missing.
std::vector<Batch> load_batches(const State& state, const std::string& name, Trainable& model);

}  // namespace hybrid_trainer
