#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer {

class Parameter;

/// Receives the gradients that modules compute.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  /// Returns the parameter's gradient memory, which stays the same throughout a step; undefined if
  /// there is none. It is f32 in the parameter's shape unless the sink documents otherwise.
  virtual Tensor gradient(const Parameter& parameter) const = 0;
  /// Returns the memory to write the next contribution to, in f32 or in the dtype that its module
  /// `writes`. If `adds`, the module adds the contribution to the earlier ones.
  virtual Tensor memory_for(const Parameter& parameter, bool /*adds*/, DType /*writes*/,
                            const Stream&) {
    return gradient(parameter);
  }
  /// Called when the contribution is enqueued on `stream`.
  virtual void contributed(const Parameter&, const Stream&) {}
  /// Called once per step for each parameter with a gradient, when the last contribution of the
  /// last micro-batch is enqueued on `stream`; for a recorded step (src/core/recording.h), during
  /// recording. The rest of the backward pass does not read the weight, so the weight may change.
  virtual void ready(const Parameter&, const Stream&) {}
};

/// Gradients in device memory, from allocate to free.
class ResidentGradients final : public GradientSink {
 public:
  /// Allocates gradients for the parameters that have none yet.
  void allocate(const std::vector<Parameter*>& parameters, const Stream& stream);
  void free() { gradients_.clear(); }
  Tensor gradient(const Parameter& parameter) const override {
    const auto found = gradients_.find(&parameter);
    return found == gradients_.end() ? Tensor{} : found->second;
  }

 private:
  std::unordered_map<const Parameter*, Tensor> gradients_;
};

/// One module's contribution to one parameter's gradient in one micro-batch. The destructor marks
/// it as complete. Frozen parameters need no gradient and get no memory.
class GradientContribution {
 public:
  /// Throws Error if there is no gradient sink. If `backward` is false, no gradient is wanted.
  /// gradient() is f32, or the dtype that the module `writes` if the sink supports it.
  GradientContribution(Parameter& parameter, const Stream& stream, bool backward = true,
                       DType writes = DType::kF32);
  ~GradientContribution() noexcept(false);
  GradientContribution(const GradientContribution&) = delete;
  GradientContribution& operator=(const GradientContribution&) = delete;

  bool wanted() const { return gradient_.defined(); }
  const Tensor& gradient() const { return gradient_; }
  /// Returns the gradient's memory, or scratch memory if no gradient is wanted, for a kernel that
  /// always writes several gradients.
  Tensor gradient_or_scratch() const;
  /// Returns the mode of the next write: kOverwrite for a step's first write, else kAccumulate.
  kernels::GradientMode next_mode();

 private:
  Parameter& parameter_;
  const Stream& stream_;
  Tensor gradient_;
  bool first_;
  int exceptions_;
};

/// Begins a step: contributions go to `sink`, and the first one to each gradient overwrites it.
void begin_gradients(const std::vector<Parameter*>& parameters, GradientSink& sink,
                     std::int64_t micro_batches);
/// Ends the step. Parameters to which only some of their modules contributed are reported as ready.
void end_gradients(const std::vector<Parameter*>& parameters, const Stream& stream);

/// Gradients stored in bf16 on the device (f32 for vectors), from allocate to free. Each
/// contribution is added in f32 and rounded to nearest even.
class RoundedGradients final : public GradientSink {
 public:
  /// `wait_until_read` is called before the bf16 gradients are overwritten.
  explicit RoundedGradients(std::function<void()> wait_until_read)
      : wait_until_read_(std::move(wait_until_read)) {}
  /// Allocates gradients for the parameters that have none yet. Throws OutOfMemory.
  void allocate(const std::vector<Parameter*>& parameters, const Stream& stream);
  void free() {
    wait_until_read_();
    gradients_.clear();
  }
  /// Returns the gradient in bf16, or in f32 for a vector.
  Tensor gradient(const Parameter& parameter) const override {
    const auto found = gradients_.find(&parameter);
    return found == gradients_.end() ? Tensor{} : found->second.kept;
  }
  Tensor memory_for(const Parameter& parameter, bool adds, DType writes,
                    const Stream& stream) override;
  void contributed(const Parameter& parameter, const Stream& stream) override;

 private:
  struct Gradient {
    Tensor kept;
    Tensor wide{};  // f32, while a contribution is written
  };
  std::function<void()> wait_until_read_;
  std::unordered_map<const Parameter*, Gradient> gradients_;
};

}  // namespace hybrid_trainer
