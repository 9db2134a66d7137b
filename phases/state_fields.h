#pragma once

#include <type_traits>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

/// A class that lists its members once, in a function of itself and `visit`, with visit("name",
/// member), is saved with a StateWriter and loaded with a StateReader. Members are bool, enum,
/// std::int64_t, double or std::vector<double>.
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

/// Writes views of the tensors as "<name>.0", "<name>.1", … and their count as "<name>.count".
void save_tensors(State& state, const std::string& name, const std::vector<Tensor>& tensors);
/// Copies of what save_tensors wrote, in the stream's pool. Throws DataError where one is missing.
std::vector<Tensor> load_tensors(const State& state, const std::string& name, MemoryKind kind,
                                 const Stream& stream);

/// The same as directions, all of them; not initialized where none was saved.
std::vector<Tensor> load_directions(const State& state, const std::string& name, Trainable& model);

/// Batches under `name`, as views.
void save_batches(State& state, const std::string& name, const std::vector<Batch>& batches);
/// What save_batches wrote, as the model keeps batches. Throws DataError where one is missing.
std::vector<Batch> load_batches(const State& state, const std::string& name, Trainable& model);

}  // namespace hybrid_trainer
