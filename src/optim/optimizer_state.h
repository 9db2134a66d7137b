#pragma once

#include <cstddef>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "src/core/prefetcher.h"

namespace hybrid_trainer {

/// Copies on the device of state that lies elsewhere. As many stay there between updates as a budget
/// leaves room for beside the most that a step took; what changed is written back when they leave.
/// An update comes to all state in turn, so that those that came first stay: each other choice would
/// bring every page anew in every step. It is no Prefetcher, which lets go of copies after their use.
class StatePages {
 public:
  /// `budget_bytes`: of the device.
  explicit StatePages(std::size_t budget_bytes) : budget_bytes_(budget_bytes) {}
  /// To be called before and after each update. Pages stay from the second one on after each leave:
  /// by then a whole step and its update have shown what they take. Where what else is live has
  /// grown, they leave first.
  void begin_update(const Stream& stream);
  void end_update(const MemoryPool& device);
  /// The copy of `state` that stays, brought now if there is room; undefined if there is none, or the
  /// state is undefined. `use`: what will be done with it.
  Tensor page_of(const Tensor& state, Use use, const Stream& stream);
  /// Writes back and frees all; true if there was any.
  bool leave(const Stream& stream);

 private:
  struct Page {
    Tensor home, here;
    bool changed;
  };
  std::size_t budget_bytes_;
  int updates_ = 0;              // since pages left last, up to 2
  std::size_t room_bytes_ = 0;   // for further pages
  std::size_t live_before_ = 0;  // the first of those updates
  std::size_t peak_bytes_ = 0;   // of the step that it ended
  std::vector<Page> pages_;
};

/// Zeroed state in the parameter's shape, in the pool of `home`.
Tensor make_state(const Parameter& parameter, const Stream& home, DType dtype = DType::kF32);

/// The copies of state that stay on the device, or come before their update and go after it, if any
/// do.
struct StateCopies {
  std::shared_ptr<StatePages> pages{};
  std::shared_ptr<Prefetcher> prefetcher{};
};

/// What an optimizer is made with: where its state lies between updates, and the copies of it.
struct StateHome {
  StateHome(const Stream& where) : stream(where) {}
  const Stream& stream;
  StateCopies copies{};
};

/// A state tensor on the stream's pool for the time of one update, wherever its home is.
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

/// One moment of a parameter, of its shape: in f32; in bf16, rounded stochastically; or in 8-bit
/// codes with scales ("h.0.mlp.c_fc.weight.m" is then "….m.codes" and "….m.scales").
struct Moment {
  Tensor values;  // undefined while offloaded
  Tensor scales;  // of codes
  bool eight_bit = false;
};
/// Whether it is one of these in f32 or bf16, an element for each of the parameter's.
inline bool is_moment(StateRole role) {
  return role == StateRole::kMomentum || role == StateRole::kSecondMoment;
}
/// Zeros. Parameters below 4,096 elements keep 32 bits. Throws Error for other widths than 8, 16
/// and 32.
Moment make_moment(const Parameter& parameter, std::int64_t state_bits, const Stream& home);
void visit_moment(const StateLabel& label, Moment& moment, const Optimizer::StateVisitor& visit);

/// A moment on the stream's pool for the time of one update.
struct StagedMoment {
  StagedMoment(const Moment& moment, const StateCopies& copies, const Stream& stream,
               Use use = Use::kChange)
      : values(moment.values, copies, stream, use), scales(moment.scales, copies, stream, use) {}
  StagedState values, scales;
};

/// What bf16 moments are rounded up or down by: another one for each parameter and step.
std::uint32_t rounding_key(const Parameter& parameter, std::int64_t step);

/// Throws Error, which names the parameter, if its state is offloaded.
void require_state(const Parameter& parameter, const Tensor& state);
void require_state(const Parameter& parameter, const Moment& moment);

/// Throws ShapeMismatch unless there is one f32 tensor of the right shape per parameter.
void require_directions(const std::vector<Tensor>& directions,
                        const std::vector<Parameter*>& parameters);

/// The decay of a parameter: 0 for vectors.
inline float decay_of(const Parameter& parameter, double weight_decay) {
  return parameter.role() == Role::kVector ? 0.0f : static_cast<float>(weight_decay);
}

/// What an update writes, and the name of what it allocates meanwhile. The compute copy holds no
/// values where there is none.
struct UpdatedWeight {
  UpdatedWeight(const Parameter& parameter, const Stream& stream);
  MemoryLabel label;
  Weight master;
  Weight compute_copy;
};

}  // namespace hybrid_trainer
