#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::benchmarks {

/// Sizes of the timed training step.
struct Sizes {
  std::int64_t batch, length, layers, channels, vocabulary, padded_vocabulary, parameters;
  /// Rows of a chunk of logits: in a bf16 step, in an f32 step, and a smaller size.
  std::vector<std::int64_t> head_rows;
  std::int64_t rows() const { return batch * length; }
};

/// "full": GPT-2 124M with B = 64, T = 1024; "small": tiny sizes for an emulated device.
Sizes sizes_of(const std::string& scale);

/// One kernel launch and its tensors, which it keeps alive.
struct Work {
  double amount = 0;                // bytes read and written at least, or operations
  std::size_t footprint_bytes = 0;  // of its tensors, each of which a product reads or writes once
  std::function<void()> run;
};

/// The rate that limits a kernel.
enum class Limit { kProduct, kCopy, kRead };
const char* name_of(Limit limit);

struct Kernel {
  std::string name;
  DType dtype;
  Limit limit;
  double calls_per_step;  // calls in a 124M step; 0 if it is not part of the step
};

/// Whether its calls belong to a bf16 step. Updates do, although their tensors are f32.
bool in_bf16_step(const Kernel& kernel);

struct Timing {
  Kernel kernel;
  std::string problem;    // reason why it could not be timed; the other fields are 0 then
  double seconds = 0;     // for one launch, the median of several series
  double spread = 0;      // (longest - shortest) / median of the series
  double amount = 0;      // Work::amount of the kernel
  double bytes = 0;       // size of the tensors that it reads and writes
  double limit_rate = 0;  // the device's rate
  double rate() const { return problem.empty() ? amount / seconds : 0; }
  double share() const { return rate() / limit_rate; }
};

struct Rates {
  double bf16_product = 0, f32_product = 0;  // operations per second
  double copy = 0, read = 0;                 // bytes per second
  double memcpy = 0;                         // cudaMemcpyAsync, bytes read plus bytes written
  double of(const Kernel& kernel) const;
};

/// Makes the tensors of kernels and times them.
class KernelTimer {
 public:
  KernelTimer(Sizes sizes, std::string only, const Stream& stream);
  virtual ~KernelTimer() = default;

  const Stream& stream() const { return stream_; }
  const Sizes& sizes() const { return sizes_; }
  const std::vector<Timing>& timings() const { return timings_; }

  /// Random numbers in (-1, 1).
  Tensor random(const Shape& shape, DType dtype) const;
  Tensor tokens(const Shape& shape) const;
  /// An i32 tensor on the device with `value(i)` as element i.
  Tensor integers(const Shape& shape, const std::function<std::int64_t(std::int64_t)>& value) const;
  /// A (batch, length) i32 tensor of each token's position in its document of `document` tokens.
  Tensor places(std::int64_t document) const;

  /// Calls `listener` with each timing as soon as it is known.
  void report_to(std::function<void(const Timing&)> listener) { listener_ = std::move(listener); }

  /// Calls `make` for each set of tensors, times the launches and frees the tensors. An Error
  /// becomes the timing's problem. Skips kernels whose name does not contain the requested text.
  void time(const Kernel& kernel, const std::function<Work()>& make);

 protected:
  virtual Timing timed(const Kernel& kernel, const std::function<Work()>& make) const = 0;

 private:
  Sizes sizes_;
  std::string only_;
  const Stream& stream_;
  Tensor noise_;  // f32 noise from which random tensors are made
  std::vector<Timing> timings_;
  std::function<void(const Timing&)> listener_;
};

/// Bytes that a launch reads and writes.
double bytes_of(const Kernel& kernel, const Work& work);

double bytes_of(std::initializer_list<Tensor> tensors);
/// A launch that reads or writes each of `tensors` once.
Work moving(std::initializer_list<Tensor> tensors, std::function<void()> run);

// The kernels by area. Each function times one dtype, except time_updates, which times both.
void time_products(KernelTimer& timer, DType dtype);
void time_head(KernelTimer& timer, DType dtype);
void time_rows(KernelTimer& timer, DType dtype);
void time_decoder_rows(KernelTimer& timer, DType dtype);
void time_embedding(KernelTimer& timer, DType dtype);
void time_attention(KernelTimer& timer, DType dtype);
void time_scans(KernelTimer& timer, DType dtype);
void time_four_bit(KernelTimer& timer, DType dtype);
void time_mixture(KernelTimer& timer, DType dtype);
void time_updates(KernelTimer& timer);

}  // namespace hybrid_trainer::benchmarks
