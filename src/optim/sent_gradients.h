#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// One weight's gradients whose exact updates have not arrived, with a lag of L steps: the last 2L − 1
/// on the host for the worker, and on the device the last L but for the newest.
class SentGradients {
 public:
  /// Does nothing where it has memory.
  void allocate(const Shape& shape, std::int64_t lag, const Stream& host, const Stream& device);
  void free();
  void free_on_device() { here_.clear(); }
  /// Notes an undefined one as none. Its memory may be written when `stream` is done.
  void send(const Tensor& gradient, std::int64_t step, const Stream& stream);
  /// Of a step; undefined where there is none.
  Tensor on_host(std::int64_t step) const;
  Tensor on_device(std::int64_t step) const;
  /// Those of the last L − 1 steps before `step`; `key` of the weight. Blocks.
  void save(State& state, const std::string& key, std::int64_t step) const;
  void wait_and_load(const State& state, const std::string& key, std::int64_t step,
                     const Stream& host, const Stream& device);

 private:
  std::size_t place(std::int64_t step) const {
    return static_cast<std::size_t>(step) % sent_.size();
  }
  Tensor& kept_here(std::int64_t step) {
    return here_[static_cast<std::size_t>(step) % here_.size()];
  }
  std::string key_at(std::int64_t step, const std::string& key) const;
  std::int64_t oldest_before(std::int64_t step) const;

  std::int64_t lag_ = 1;
  std::vector<Tensor> sent_, here_;  // by step
  std::vector<char> has_sent_;       // whether there is one
};

/// Throws DataError where the state's tensor has another shape or dtype. Blocks.
void wait_and_take(const Tensor& to, const State& state, const std::string& name,
                   const Stream& stream);

}  // namespace hybrid_trainer
