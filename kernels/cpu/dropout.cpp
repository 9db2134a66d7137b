#include "hybrid_trainer/kernels/elementwise.h"
#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

constexpr std::int64_t kBlocks = 64;          // of the generator, drawn together
constexpr std::int64_t kDrawn = 4 * kBlocks;  // random numbers in them

/// Random numbers [4·first, 4·first + kDrawn) of the key: core's philox, one round at a time for
/// all blocks.
inline void draw(std::uint32_t* words, const RandomKey& key, std::uint64_t first) {
  std::uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (std::int64_t i = 0; i < kBlocks; ++i) {
    const std::uint64_t block = first + static_cast<std::uint64_t>(i);
    c0[i] = static_cast<std::uint32_t>(block);
    c1[i] = static_cast<std::uint32_t>(block >> 32);
    c2[i] = static_cast<std::uint32_t>(key.step);
    c3[i] = static_cast<std::uint32_t>(key.tensor);
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(key.seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(key.seed >> 32) ^
                     static_cast<std::uint32_t>(key.step >> 32) ^
                     static_cast<std::uint32_t>(key.tensor >> 32) * 0x9E3779B9u;
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0[i];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2[i];
      c0[i] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<std::uint32_t>(p1);
      c2[i] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
#pragma omp simd
  for (std::int64_t i = 0; i < kBlocks; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

RandomKey at_step_of(const Tensor& step_words, RandomKey key) {
  const std::int32_t* const words = step_words.data<std::int32_t>();
  key.step = static_cast<std::uint32_t>(words[0]) |
             static_cast<std::uint64_t>(static_cast<std::uint32_t>(words[1])) << 32;
  return key;
}

/// Consecutive elements that draw consecutive numbers, in chunks of kDrawn numbers.
template <class T>
struct DroppedRun {
  T* out;
  const T* in;
  std::int64_t elements;
  RandomKey key;
  std::uint64_t first;  // number of element 0
  float p;

  std::int64_t skipped() const { return static_cast<std::int64_t>(first % 4); }  // of its block
  std::int64_t chunks() const { return (elements + skipped() + kDrawn - 1) / kDrawn; }
  void drop(std::int64_t begin_chunk, std::int64_t end_chunk) const {
    const float kept_scale = 1.0f / (1.0f - p), share = p;
    for (std::int64_t chunk = begin_chunk; chunk < end_chunk; ++chunk) {
      std::uint32_t words[kDrawn];
      draw(words, key, first / 4 + static_cast<std::uint64_t>(chunk * kBlocks));
      const std::int64_t element = chunk * kDrawn - skipped();  // of words[0]
      const std::int64_t count = std::min(kDrawn, elements - element);
#pragma omp simd
      for (std::int64_t i = chunk == 0 ? skipped() : 0; i < count; ++i) {
        const float value = load(in + element + i) * kept_scale;
        store(out + element + i, to_unit_float(words[i]) >= share ? value : 0.0f);
      }
    }
  }
};

}  // namespace

void dropout(const Tensor& y, const Tensor& x, float p, const DropoutNumbers& numbers,
             const Stream&) {
  const RandomKey key =
      numbers.step_words ? at_step_of(numbers.step_words, numbers.key) : numbers.key;
  visit_real(y.dtype(), [&](auto real) {
    using T = decltype(real);
    const DroppedRun<T> all{y.data<T>(), x.data<T>(), y.elements(), key, numbers.first, p};
    if (!numbers.rows && numbers.run == 0)
      return parallel_rows(all.chunks(), kDrawn,
                           [=](std::int64_t begin, std::int64_t end) { all.drop(begin, end); });
    const std::int64_t columns = x.size(1), run = numbers.run, stride = numbers.stride;
    const std::int32_t* const rows = numbers.rows ? numbers.rows.data<std::int32_t>() : nullptr;
    parallel_rows(x.size(0), columns, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        std::int64_t from = rows != nullptr ? rows[row] : row;
        if (run > 0) from = from / run * stride + from % run;
        const DroppedRun<T> one{all.out + row * columns,
                                all.in + row * columns,
                                columns,
                                key,
                                all.first + static_cast<std::uint64_t>(from * columns),
                                p};
        one.drop(0, one.chunks());
      }
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
