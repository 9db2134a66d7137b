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
  /// Returns a parameter's gradient tensor, whose address does not change during a step, or an
  /// undefined tensor if there is none. f32 in the parameter's shape, unless the sink documents
  /// another form.
  virtual Tensor gradient(const Parameter& parameter) const = 0;
  /// Returns the memory for the next contribution, in f32 or in `writes`, the dtype that the module
  /// writes. If `adds` is set, the module adds its contribution to the contents.
  virtual Tensor memory_for(const Parameter& parameter, bool /*adds*/, DType /*writes*/,
                            const Stream&) {
    return gradient(parameter);
  }
  /// Called after a contribution was enqueued on `stream`.
  virtual void contributed(const Parameter&, const Stream&) {}
  /// Called once per step for each gradient, after its last contribution was enqueued on `stream`,
  /// also while a step is recorded. The rest of backward does not read the weight, so it may
  /// change.
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

/// Contribution of a module to the gradient of a parameter in one micro-batch. The destructor marks
/// it as complete. Frozen parameters have no gradient memory.
class GradientContribution {
 public:
  /// `backward`: whether a gradient is wanted. `writes`: dtype that the module writes; gradient()
  /// has this dtype if the sink supports it, else f32. Throws Error if there is no gradient sink.
  GradientContribution(Parameter& parameter, const Stream& stream, bool backward = true,
                       DType writes = DType::kF32);
  ~GradientContribution() noexcept(false);
  GradientContribution(const GradientContribution&) = delete;
  GradientContribution& operator=(const GradientContribution&) = delete;

  bool wanted() const { return gradient_.defined(); }
  const Tensor& gradient() const { return gradient_; }
  /// Returns the gradient's memory or, for kernels that always write, scratch memory.
  Tensor gradient_or_scratch() const;
  /// Returns kOverwrite for the first write of a step, else kAccumulate.
  kernels::GradientMode next_mode();

 private:
  Parameter& parameter_;
  const Stream& stream_;
  Tensor gradient_;
  bool first_;
  int exceptions_;
};

/// Begins a step whose contributions go to `sink`. The first contribution overwrites each gradient.
void begin_gradients(const std::vector<Parameter*>& parameters, GradientSink& sink,
                     std::int64_t micro_batches);
/// Ends the step. Reports parameters as ready even if only some of their modules contributed.
void end_gradients(const std::vector<Parameter*>& parameters, const Stream& stream);

/// Gradients stored in bf16 on the device (f32 for vectors). Sums in f32, rounded to nearest even.
class RoundedGradients final : public GradientSink {
 public:
  /// `wait_until_read` returns when gradients may be overwritten.
  explicit RoundedGradients(std::function<void()> wait_until_read)
      : wait_until_read_(std::move(wait_until_read)) {}
  /// Allocates gradients for the parameters that have none yet. Throws OutOfMemory.
  void allocate(const std::vector<Parameter*>& parameters, const Stream& stream);
  void free() {
    wait_until_read_();
    gradients_.clear();
  }
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
    Tensor wide{};  // f32 memory of a contribution while it is written
  };
  std::function<void()> wait_until_read_;
  std::unordered_map<const Parameter*, Gradient> gradients_;
};

}  // namespace hybrid_trainer
