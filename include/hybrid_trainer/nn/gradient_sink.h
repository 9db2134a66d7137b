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
  /// Memory for the parameter's gradient, f32 in its shape unless the sink says otherwise, the same
  /// throughout a step; undefined where there is none now.
  virtual Tensor gradient(const Parameter& parameter) const = 0;
  /// Where the next contribution to it is written, f32 or what else its module `writes`; if it
  /// `adds`, on top of the earlier ones.
  virtual Tensor memory_for(const Parameter& parameter, bool /*adds*/, DType /*writes*/,
                            const Stream&) {
    return gradient(parameter);
  }
  /// That contribution is enqueued on `stream`.
  virtual void contributed(const Parameter&, const Stream&) {}
  /// Told once per step and parameter that got a gradient, when its last contribution of the last
  /// micro-batch is enqueued on `stream`; of a recorded step (src/core/recording.h) while it is
  /// recorded. From then on this backward pass does not read the weight, which may change.
  virtual void ready(const Parameter&, const Stream&) {}
};

/// Gradients in the memory of the device, from allocate to free.
class ResidentGradients final : public GradientSink {
 public:
  /// Keeps the memory of parameters that have it.
  void allocate(const std::vector<Parameter*>& parameters, const Stream& stream);
  void free() { gradients_.clear(); }
  Tensor gradient(const Parameter& parameter) const override {
    const auto found = gradients_.find(&parameter);
    return found == gradients_.end() ? Tensor{} : found->second;
  }

 private:
  std::unordered_map<const Parameter*, Tensor> gradients_;
};

/// Contribution of one module to one parameter's gradient in one micro-batch; complete when this is
/// destroyed. For a frozen parameter nothing is wanted, and there is no memory.
class GradientContribution {
 public:
  /// Throws Error where gradients have nowhere to go. Not `backward`: nothing is wanted. gradient()
  /// is f32, or, where that says so, what else the module `writes`.
  GradientContribution(Parameter& parameter, const Stream& stream, bool backward = true,
                       DType writes = DType::kF32);
  ~GradientContribution() noexcept(false);
  GradientContribution(const GradientContribution&) = delete;
  GradientContribution& operator=(const GradientContribution&) = delete;

  bool wanted() const { return gradient_.defined(); }
  const Tensor& gradient() const { return gradient_; }
  /// Memory in any case, for a kernel that writes several gradients at once.
  Tensor gradient_or_scratch() const;
  /// How to write: the first write of a step overwrites, later ones add.
  kernels::GradientMode next_mode();

 private:
  Parameter& parameter_;
  const Stream& stream_;
  Tensor gradient_;
  bool first_;
  int exceptions_;
};

/// Begins a step: what comes next overwrites, and goes to `sink`.
void begin_gradients(const std::vector<Parameter*>& parameters, GradientSink& sink,
                     std::int64_t micro_batches);
/// Ends it: tells the sink of parameters that not all of their modules contributed to.
void end_gradients(const std::vector<Parameter*>& parameters, const Stream& stream);

/// Gradients that the device keeps in bf16, from allocate to free; those of vectors in f32. What
/// each product or other contribution adds is summed in f32, on top of what is there, and rounded to
/// nearest even.
class RoundedGradients final : public GradientSink {
 public:
  /// `wait_until_read` is called before what was kept in bf16 is overwritten.
  explicit RoundedGradients(std::function<void()> wait_until_read)
      : wait_until_read_(std::move(wait_until_read)) {}
  /// Keeps the memory of parameters that have it. Throws OutOfMemory.
  void allocate(const std::vector<Parameter*>& parameters, const Stream& stream);
  void free() {
    wait_until_read_();
    gradients_.clear();
  }
  /// bf16, or f32 of a vector.
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
    Tensor wide{};  // f32, while a contribution to it is written
  };
  std::function<void()> wait_until_read_;
  std::unordered_map<const Parameter*, Gradient> gradients_;
};

}  // namespace hybrid_trainer
