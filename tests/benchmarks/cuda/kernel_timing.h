#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::benchmarks {

/// The step whose kernels are timed.
struct Sizes {
  std::int64_t batch, length, layers, channels, vocabulary, padded_vocabulary, parameters;
  /// Rows of one chunk of logits: of a bf16 step, of an f32 step, and fewer.
  std::vector<std::int64_t> head_rows;
  std::int64_t rows() const { return batch * length; }
};

/// "full": GPT-2 124M at B = 64, T = 1024; "small": everything tiny, for an emulated device.
Sizes sizes_of(const std::string& scale);

/// One launch on its own tensors, which it keeps alive.
struct Work {
  double amount = 0;                // bytes that must be read and written, or operations
  std::size_t footprint_bytes = 0;  // of its tensors, each of which a product reads or writes once
  std::function<void()> run;
};

/// The rate that a kernel is compared with.
enum class Limit { kProduct, kCopy, kRead };
const char* name_of(Limit limit);

struct Kernel {
  std::string name;
  DType dtype;
  Limit limit;
  double calls_per_step;  // of the 124M step; 0 where it is not part of it
};

/// Whether its calls belong to a bf16 step, in which the update has f32 tensors too.
bool in_bf16_step(const Kernel& kernel);

struct Timing {
  Kernel kernel;
  std::string problem;    // why it could not be timed; then the rest is 0
  double seconds = 0;     // of one launch, the median over several series of launches
  double spread = 0;      // (longest - shortest) / median of the series
  double amount = 0;      // as the kernel's Work tells
  double bytes = 0;       // of the tensors that it reads and writes
  double limit_rate = 0;  // of the device
  double rate() const { return problem.empty() ? amount / seconds : 0; }
  double share() const { return rate() / limit_rate; }
};

struct Rates {
  double bf16_product = 0, f32_product = 0;  // operations a second
  double copy = 0, read = 0;                 // bytes a second
  double memcpy = 0;                         // of cudaMemcpyAsync, read and written
  double of(const Kernel& kernel) const;
};

/// What times the kernels, and makes their tensors.
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
  /// i32, on the device: `value(i)` of each element i.
  Tensor integers(const Shape& shape, const std::function<std::int64_t(std::int64_t)>& value) const;
  /// (batch, length) i32: each token's place in its document, where each has `document` tokens.
  Tensor places(std::int64_t document) const;

  /// Calls `listener` with each timing as it comes.
  void report_to(std::function<void(const Timing&)> listener) { listener_ = std::move(listener); }

  /// Calls `make` for each set of tensors, then frees them. An Error becomes the timing's problem.
  /// Kernels whose name does not hold the text asked for are left out.
  void time(const Kernel& kernel, const std::function<Work()>& make);

 protected:
  virtual Timing timed(const Kernel& kernel, const std::function<Work()>& make) const = 0;

 private:
  Sizes sizes_;
  std::string only_;
  const Stream& stream_;
  Tensor noise_;  // f32, what random tensors are made of
  std::vector<Timing> timings_;
  std::function<void(const Timing&)> listener_;
};

/// What a launch reads and writes, in bytes.
double bytes_of(const Kernel& kernel, const Work& work);

/// Total bytes.
double bytes_of(std::initializer_list<Tensor> tensors);
/// A launch that reads or writes each of `tensors` once.
Work moving(std::initializer_list<Tensor> tensors, std::function<void()> run);

// The kernels, by what they work on. All of one dtype, except time_updates, which has its own.
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
