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
  std::size_t footprint_bytes = 0;  // of its tensors
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
  double rate = 0;        // amount / seconds
  double limit_rate = 0;  // in this run
  double share() const { return problem.empty() ? rate / limit_rate : 0; }
};

struct Rates {
  double bf16_product = 0, f32_product = 0;  // operations a second
  double copy = 0, read = 0;                 // bytes a second
  double memcpy = 0;                         // of cudaMemcpyAsync, read and written
};

/// Times kernels one after the other by the device's own clock. Launches follow each other without
/// a gap, over so many sets of tensors that the L2 cache holds none of the next one.
class KernelTimer {
 public:
  /// Measures the rates of the device first. Throws DeviceError.
  KernelTimer(const std::string& scale, std::string only, const Stream& stream);

  const Stream& stream() const { return stream_; }
  const Sizes& sizes() const { return sizes_; }
  const Rates& rates() const { return rates_; }
  const std::vector<Timing>& timings() const { return timings_; }

  /// Random numbers in (-1, 1).
  Tensor random(const Shape& shape, DType dtype) const;
  Tensor tokens(const Shape& shape) const;

  /// Calls `listener` with each timing as it comes.
  void report_to(std::function<void(const Timing&)> listener) { listener_ = std::move(listener); }

  /// Calls `make` for each set of tensors, then frees them. An Error becomes the timing's problem.
  void time(const Kernel& kernel, const std::function<Work()>& make);

 private:
  void measure_rates();
  double measure_memcpy_rate() const;
  Timing timed(const Kernel& kernel, const std::function<Work()>& make) const;
  double seconds_of_launch(const std::vector<Work>& sets, std::size_t launches) const;
  double limit_of(const Kernel& kernel) const;

  bool small_;
  Sizes sizes_;
  std::string only_;
  const Stream& stream_;
  std::size_t cache_bytes_;
  Tensor noise_;  // f32, what random tensors are made of
  Rates rates_;
  std::vector<Timing> timings_;
  std::function<void(const Timing&)> listener_;
};

/// Total bytes.
double bytes_of(std::initializer_list<Tensor> tensors);

// The kernels, by what they work on. All of one dtype, except time_updates, which has its own.
void time_products(KernelTimer& timer, DType dtype);
void time_head(KernelTimer& timer, DType dtype);
void time_rows(KernelTimer& timer, DType dtype);
void time_embedding(KernelTimer& timer, DType dtype);
void time_attention(KernelTimer& timer, DType dtype);
void time_updates(KernelTimer& timer);

}  // namespace hybrid_trainer::benchmarks
