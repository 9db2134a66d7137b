#pragma once

#include "hybrid_trainer/optim/optimizer.h"
#include "src/core/prefetcher.h"

namespace hybrid_trainer {

/// Device copies of offloaded state ("pages"). Keeps as many as the budget allows in addition to
/// the peak memory of a step, and writes changed pages back before it frees them. Never replaces
/// pages: updates visit all state in order, so replacing would reload all state in every step.
class StatePages {
 public:
  explicit StatePages(std::size_t budget_bytes) : budget_bytes_(budget_bytes) {}
  /// Call begin_update before and end_update after each update. The first update after leave()
  /// measures the peak memory of a step with its update; pages are kept from the second update on.
  /// If other memory has grown since, begin_update frees pages.
  void begin_update(const Stream& stream);
  void end_update(const MemoryPool& device);
  /// Returns the page of `state`, loading it if there is room. Returns an undefined tensor if there
  /// is no page and no room, or if `state` is undefined. `use`: planned access.
  Tensor page_of(const Tensor& state, Use use, const Stream& stream);
  /// Writes changed pages back and frees all pages. Returns false if there were no pages.
  bool leave(const Stream& stream);

 private:
  struct Page {
    Tensor home, here;
    bool changed;
  };
  std::size_t budget_bytes_;
  int updates_ = 0;              // updates since the last leave, at most 2
  std::size_t room_bytes_ = 0;   // room for further pages
  std::size_t live_before_ = 0;  // live bytes before the first of these updates
  std::size_t peak_bytes_ = 0;   // peak of the step that the first update ended
  std::vector<Page> pages_;
};

Tensor make_state(const Parameter& parameter, const Stream& home, DType dtype = DType::kF32);

/// Provides device copies of offloaded state: resident pages and a prefetcher; either may be null.
struct StateCopies {
  std::shared_ptr<StatePages> pages{};
  std::shared_ptr<Prefetcher> prefetcher{};
};

/// Location of an optimizer's state between updates, and its device copies.
struct StateHome {
  StateHome(const Stream& where) : stream(where) {}
  const Stream& stream;
  StateCopies copies{};
};

/// A state tensor in the stream's pool, for the duration of one update.
class StagedState {
 public:
  StagedState(const Tensor& state, const StateCopies& copies, const Stream& stream,
              Use use = Use::kChange)
      : page_(copies.pages ? copies.pages->page_of(state, use, stream) : Tensor{}),
        staged_(page_ ? page_ : state, use, stream, !page_ && state.pool() != stream.pool(),
                use == Use::kChange ? copies.prefetcher.get() : nullptr) {}
  StagedState(const StagedState&) = delete;
  StagedState& operator=(const StagedState&) = delete;
  operator const Tensor&() const { return staged_; }

 private:
  Tensor page_;
  StagedTensor staged_;
};

/// One moment of a parameter, in its shape. It is f32, bf16 with stochastic rounding, or 8-bit
/// codes with scales ("h.0.mlp.c_fc.weight.m" is then "….m.codes" and "….m.scales").
struct Moment {
  Tensor values;  // undefined while offloaded
  Tensor scales;  // scales of codes
  bool eight_bit = false;
};
/// Returns whether `role` is an f32 or bf16 moment with one element per element of the parameter.
inline bool is_moment(StateRole role) {
  return role == StateRole::kMomentum || role == StateRole::kSecondMoment;
}
/// Makes a moment of zeros, with 32 bits if the parameter has fewer than 4,096 elements. Throws
/// Error unless state_bits is 8, 16 or 32.
Moment make_moment(const Parameter& parameter, std::int64_t state_bits, const Stream& home);
void visit_moment(const StateLabel& label, Moment& moment, const Optimizer::StateVisitor& visit);

struct StagedMoment {
  StagedMoment(const Moment& moment, const StateCopies& copies, const Stream& stream,
               Use use = Use::kChange)
      : values(moment.values, copies, stream, use), scales(moment.scales, copies, stream, use) {}
  StagedState values, scales;
};

/// Returns the key of stochastic rounding, different for each parameter and step.
std::uint32_t rounding_key(const Parameter& parameter, std::int64_t step);

/// Throws Error, which names the parameter, if its state is offloaded.
void require_state(const Parameter& parameter, const Tensor& state);
void require_state(const Parameter& parameter, const Moment& moment);

/// Throws ShapeMismatch unless there is one f32 tensor of the right shape per parameter.
void require_directions(const std::vector<Tensor>& directions,
                        const std::vector<Parameter*>& parameters);

/// Returns the weight decay of a parameter, which is 0 for vectors.
inline float decay_of(const Parameter& parameter, double weight_decay) {
  return parameter.role() == Role::kVector ? 0.0f : static_cast<float>(weight_decay);
}

/// Tensors that an update writes, and the label of its allocations. The compute copy may be empty.
struct UpdatedWeight {
  UpdatedWeight(const Parameter& parameter, const Stream& stream);
  MemoryLabel label;
  Weight master;
  Weight compute_copy;
};

}  // namespace hybrid_trainer
