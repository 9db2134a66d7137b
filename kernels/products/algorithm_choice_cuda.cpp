#include "kernels/products/algorithm_choice_cuda.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/core/tensor.h"
#include "kernels/generated/elementwise.h"
#include "kernels/generated/matmul.h"
#include "src/core/cuda_runtime.h"

namespace hybrid_trainer::kernels::cuda {

/// Times algorithms on a product of the same shapes, with random numbers in separate device memory.
/// The operands of the original product are not touched.
class ProductTrial {
 public:
  ProductTrial(const Product& like, const Stream& stream);

  /// Returns the device seconds of the work that `run` enqueues for the trial's product, with none
  /// of its data in the L2 cache; infinity if `run` throws DeviceError. Waits for the device.
  double seconds_of(const std::function<void(const Product&, const Stream&)>& run) const;

 private:
  Tensor random_like(const Tensor& tensor) const;

  Stream stream_;  // the same queue, with the trial's pool
  Tensor noise_;   // f32
  Tensor flush_;   // larger than the cache
  Product product_;
};

namespace {

constexpr std::int64_t kNoiseElements = 1 << 18;

/// Returns random numbers in (-1, 1). Zeros would draw less power and change the clock rate.
Tensor make_noise(const Stream& stream) {
  const Stream host(MemoryPool::create("noise"));
  const Tensor numbers = Tensor::empty({kNoiseElements}, DType::kF32, MemoryKind::kWorkspace, host);
  for (std::int64_t i = 0; i < kNoiseElements; ++i)
    numbers.data<float>()[i] = 2 * to_unit_float(static_cast<std::uint32_t>(i) * 2654435761u) - 1;
  return wait_for_device(numbers, stream);
}

Tensor make_flush(const Stream& stream) {
  const std::size_t cache = cuda_runtime().properties(stream.device().index).cache_bytes;
  return Tensor::empty({static_cast<std::int64_t>(2 * cache)}, DType::kU8, MemoryKind::kWorkspace,
                       stream);
}

constexpr int kRounds = 5;
constexpr double kMinGain = 0.01;  // smaller differences are ignored
constexpr double kHopeless = 2;    // a candidate this many times slower is dropped after two rounds

void print_note(const std::string& text) { std::fprintf(stderr, "note: %s\n", text.c_str()); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Returns the cache key for a product's algorithm that was not timed.
std::string untimed(const std::string& kind) { return kind + " untimed"; }

/// Returns the index of the fastest candidate on random numbers. Returns nullopt if the device does
/// not have enough memory, if waiting is not allowed, or if no candidate runs.
std::optional<std::size_t> timed(const Product& product, const AlgorithmOffer& offer,
                                 const std::vector<AlgorithmBits>& candidates,
                                 const Stream& stream) {
  if (cuda_runtime().captures(stream.native())) return {};
  try {
    const ProductTrial trial(product, stream);
    return fastest_of(candidates.size(), [&](std::size_t i) {
      return offer.take(candidates[i]) ? trial.seconds_of(offer.run)
                                       : std::numeric_limits<double>::infinity();
    });
  } catch (const OutOfMemory&) {
    return {};
  }
}

/// Stands for separate row sums in the file of measured algorithms. Never equals cuBLASLt's bits.
constexpr AlgorithmBits kSeparator{~std::uint64_t{0}, ~std::uint64_t{0}};

}  // namespace

ProductTrial::ProductTrial(const Product& like, const Stream& stream)
    : stream_(stream, MemoryPool::create("trial", {}, cuda_memory(stream.device()))),
      noise_(make_noise(stream_)),
      flush_(make_flush(stream_)),
      product_(like) {
  product_.a = random_like(like.a);
  product_.b = random_like(like.b);
  product_.c = random_like(like.c);
  product_.addend = like.addend.raw() == like.c.raw() ? product_.c : random_like(like.addend);
  product_.bias = random_like(like.bias);
  product_.aux = random_like(like.aux);
}

Tensor ProductTrial::random_like(const Tensor& tensor) const {
  if (!tensor) return tensor;
  const Tensor made = Tensor::empty_like(tensor, MemoryKind::kWorkspace, stream_);
  const Tensor flat = made.view({made.elements()});
  for (std::int64_t begin = 0; begin < flat.elements(); begin += kNoiseElements) {
    const std::int64_t end = std::min(flat.elements(), begin + kNoiseElements);
    cuda::cast(flat.rows(begin, end), noise_.rows(0, end - begin), stream_);
  }
  return made;
}

double ProductTrial::seconds_of(
    const std::function<void(const Product&, const Stream&)>& run) const {
  Event begin, end;
  try {
    fill_zero(flush_, stream_);
    begin.record(stream_);
    run(product_, stream_);
    end.record(stream_);
    end.synchronize();
    return Event::seconds_between(begin, end);
  } catch (const DeviceError&) {
    return std::numeric_limits<double>::infinity();
  }
}

std::optional<std::size_t> fastest_of(std::size_t count,
                                      const std::function<double(std::size_t)>& seconds) {
  std::vector<std::vector<double>> times(count);
  std::vector<std::size_t> work;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isfinite(seconds(i))) work.push_back(i);  // the first call loads its kernel
  }
  if (work.empty()) return {};
  double least = std::numeric_limits<double>::infinity();
  const auto is_too_slow = [&](std::size_t i) {
    return *std::min_element(times[i].begin(), times[i].end()) > kHopeless * least;
  };
  for (int round = 0; round < kRounds; ++round) {
    for (const std::size_t i : work) least = std::min(least, times[i].emplace_back(seconds(i)));
    if (round > 0) std::erase_if(work, is_too_slow);
  }
  const auto time_of = [&](std::size_t i) {
    return times[i].empty() ? std::numeric_limits<double>::infinity() : median(times[i]);
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < count; ++i)
    if (time_of(i) < time_of(best)) best = i;
  return time_of(best) < (1 - kMinGain) * time_of(0) ? best : 0;
}

AlgorithmChooser::Settings AlgorithmChooser::environment(const ProductRun& run) {
  const char* const wish = std::getenv("HYBRID_TIME_ALGORITHMS");
  return {.folder = cache_folder(),
          .times = wish == nullptr || std::string_view(wish) != "0",
          .run = run};
}

AlgorithmChooser::AlgorithmChooser(Settings settings, AlgorithmOwner owner)
    : settings_(std::move(settings)), owner_(std::move(owner)) {
  if (!settings_.times) return;
  known_ = read(settings_.folder);
  if (settings_.run.resumes) of_run_ = read(settings_.run.folder);
}

Algorithms AlgorithmChooser::read(const std::string& folder) const {
  StoredAlgorithms stored = read_algorithms(folder, owner_);
  if (!stored.problem.empty()) print_note(stored.problem);
  return std::move(stored.algorithms);
}

bool AlgorithmChooser::choose(const Product& product, const AlgorithmOffer& offer,
                              const Stream& stream) {
  const ProductKind kind(product);
  const bool is_timed = settings_.times && kind.operations() >= settings_.min_operations;
  const std::string name = is_timed ? kind.text() : "";
  std::optional<AlgorithmBits> chosen = is_timed ? take_stored(name, offer) : std::nullopt;
  if (!chosen) {
    const std::vector<AlgorithmBits> candidates = offer.candidates();
    if (candidates.empty()) return false;
    chosen =
        is_timed ? measure_and_store(product, name, offer, candidates, stream) : candidates.front();
    if (!offer.take(*chosen) && !offer.take(*(chosen = candidates.front()))) return false;
  }
  if (!is_timed) return true;
  const AlgorithmBits kept = store_in_run(name, *chosen);
  return kept == *chosen || offer.take(kept) || offer.take(*chosen);
}

/// Returns the run's stored algorithm, else one timed by any run or, if resumed, an untimed one.
std::optional<AlgorithmBits> AlgorithmChooser::take_stored(const std::string& kind,
                                                           const AlgorithmOffer& offer) {
  const auto taken = [&](const Algorithms& of, const std::string& name) {
    const auto found = of.find(name);
    return found != of.end() && offer.take(found->second) ? std::optional(found->second)
                                                          : std::nullopt;
  };
  std::optional<AlgorithmBits> bits = taken(of_run_, kind);
  if (!bits) bits = taken(known_, kind);
  if (!bits && settings_.run.resumes) bits = taken(known_, untimed(kind));
  return bits;
}

/// Selects and stores an algorithm; if it cannot be stored, returns the library's own choice.
AlgorithmBits AlgorithmChooser::measure_and_store(const Product& product, const std::string& kind,
                                                  const AlgorithmOffer& offer,
                                                  const std::vector<AlgorithmBits>& candidates,
                                                  const Stream& stream) {
  if (!stores_) return candidates.front();
  const std::optional<std::size_t> fastest = timed(product, offer, candidates, stream);
  const std::string name = fastest ? kind : untimed(kind);
  if (!fastest && !std::exchange(warned_untimed_, true)) {
    print_note(
        concat("an algorithm could not be timed: not enough device memory, a graph was being "
               "recorded, or no algorithm ran (",
               kind, "); uses cuBLASLt's own choice, and a later run tries again"));
  }
  const auto old = known_.find(name);
  const AlgorithmBits* const useless = old == known_.end() ? nullptr : &old->second;
  const auto stored_choice =
      store_algorithm(settings_.folder, owner_, name, candidates[fastest.value_or(0)], useless);
  if (stored_choice) return known_[name] = *stored_choice;
  print_note(concat("cannot store algorithms for matrix products in \"", settings_.folder,
                    "\"; uses cuBLASLt's own choices; set HYBRID_CACHE_DIR to a writable folder"));
  stores_ = false;
  return candidates.front();
}

/// Stores an algorithm in the run's folder. Returns it, or another rank's if that was stored first.
AlgorithmBits AlgorithmChooser::store_in_run(const std::string& kind, const AlgorithmBits& bits) {
  const auto old = of_run_.find(kind);
  if (old != of_run_.end() && old->second == bits) return bits;
  const AlgorithmBits* const useless = old == of_run_.end() ? nullptr : &old->second;
  const auto kept = store_algorithm(settings_.run.folder, owner_, kind, bits, useless);
  return of_run_[kind] = kept.value_or(bits);
}

Product without_sums(const Product& product) {
  Product plain = product;
  plain.bias = {};
  plain.epilogue = Epilogue::kNone;
  return plain;
}

AlgorithmOffer with_separate_sums(
    const Product& product, AlgorithmOffer offer, bool& separate,
    const std::function<void(const Product&, const Stream&)>& multiply) {
  separate = false;
  if (product.epilogue != Epilogue::kRowSums) return offer;
  const auto candidates = [all = std::move(offer.candidates)] {
    std::vector<AlgorithmBits> found = all();
    if (!found.empty()) found.push_back(kSeparator);
    return found;
  };
  const auto take = [&separate, inner = std::move(offer.take)](const AlgorithmBits& bits) {
    separate = bits == kSeparator;
    return separate || inner(bits);
  };
  const auto run = [&separate, multiply, inner = std::move(offer.run)](const Product& trial,
                                                                       const Stream& stream) {
    if (!separate) return inner(trial, stream);
    multiply(without_sums(trial), stream);
    cuda::bias_backward(trial.bias, trial.a, GradientMode::kOverwrite, stream);
  };
  return {candidates, take, run};
}

void prepare_products(const ProductRun& run, const Stream& stream) {
  if (simulated(stream)) return;
  begin_products(run, stream.device().index);
  // Does not use the stream's pool, whose first slab is allocated later.
  const Stream separate(stream, MemoryPool::create("trial", {}, cuda_memory(stream.device())));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor x = Tensor::zeros({64, 64}, dtype, MemoryKind::kWorkspace, separate);
    const Tensor y = Tensor::empty_like(x, MemoryKind::kWorkspace, separate);
    cuda::matmul(y, x, Transpose::kNo, x, Transpose::kYes, GradientMode::kOverwrite, separate);
  }
  separate.synchronize();
}

}  // namespace hybrid_trainer::kernels::cuda
