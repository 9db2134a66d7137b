#include <cstring>

#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"
#include "kernels/products/product_cpu.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

/// Returns x in f32, in the order that products need: unchanged for f32 weights; for bf16, each
/// row's even elements, then the odd ones, because a shift and a mask convert two adjacent bf16.
const float* arrange(const float* x, std::int64_t, std::int64_t, float*) { return x; }
const float* arrange(const BFloat16* x, std::int64_t rows, std::int64_t columns, float* arranged) {
  const std::int64_t pairs = columns / 2;
  for (std::int64_t at = 0; at < rows * columns; at += columns) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      arranged[at + i] = load(x + at + 2 * i);
      arranged[at + pairs + i] = load(x + at + 2 * i + 1);
    }
    if (columns % 2 == 1) arranged[at + columns - 1] = load(x + at + columns - 1);
  }
  return arranged;
}

/// Returns the product of elements i of a row of w and a row of x. For bf16, returns the sum of the
/// products of the even and odd elements of pair i.
inline float product_at(const float* x, std::int64_t, const float* w, std::int64_t i) {
  return x[i] * w[i];
}
inline float product_at(const float* x, std::int64_t pairs, const BFloat16* w, std::int64_t i) {
  std::uint32_t pair;
  std::memcpy(&pair, w + 2 * i, sizeof pair);
  return x[i] * std::bit_cast<float>(pair << 16) +
         x[pairs + i] * std::bit_cast<float>(pair & 0xFFFF0000u);
}

template <class T>
constexpr std::int64_t kElementsAtOnce = 4 / static_cast<std::int64_t>(sizeof(T));

/// sums = the products of kRows rows of arranged x and kOutputs rows of w. A sum has kLanes parts,
/// added in order: part i takes every kLanes-th element (or pair) from i on, and part 0 also takes
/// the rest. Therefore the bits depend only on kLanes.
template <int kLanes, int kRows, int kOutputs, class T>
inline void multiply_block(float (&sums)[kRows][kOutputs], const float* const (&x)[kRows],
                           const T* const (&w)[kOutputs], std::int64_t columns) {
  constexpr bool kPairs = kElementsAtOnce<T> == 2;
  typedef float Floats [[gnu::vector_size(4 * kLanes)]];
  typedef std::uint32_t Words [[gnu::vector_size(4 * kLanes)]];
  const std::int64_t count = columns / kElementsAtOnce<T>, whole = count / kLanes * kLanes;
  Floats parts[kRows][kOutputs] = {};
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    Floats even[kOutputs], odd[kOutputs];
#pragma GCC unroll 4
    for (int o = 0; o < kOutputs; ++o) {
      Words words;
      std::memcpy(&words, w[o] + kElementsAtOnce<T> * i, sizeof words);
      even[o] = reinterpret_cast<Floats>(kPairs ? words << 16 : words);
      odd[o] = reinterpret_cast<Floats>(words & 0xFFFF0000u);
    }
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      Floats first, second;
      std::memcpy(&first, x[row] + i, sizeof first);
      if (kPairs) std::memcpy(&second, x[row] + count + i, sizeof second);
#pragma GCC unroll 4
      for (int o = 0; o < kOutputs; ++o)
        parts[row][o] += kPairs ? first * even[o] + second * odd[o] : first * even[o];
    }
  }
  float lanes[kRows][kOutputs][kLanes];
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (int o = 0; o < kOutputs; ++o) std::memcpy(lanes[row][o], &parts[row][o], 4 * kLanes);
  }
  for (int row = 0; row < kRows; ++row) {
    for (int o = 0; o < kOutputs; ++o) {
      float sum = 0;
      for (std::int64_t i = whole; i < count; ++i)
        lanes[row][o][0] += product_at(x[row], count, w[o], i);
      for (const float part : lanes[row][o]) sum += part;
      for (std::int64_t i = count * kElementsAtOnce<T>; i < columns; ++i)
        sum += x[row][i] * load(w[o] + i);
      sums[row][o] = sum;
    }
  }
}

/// Calls write(row, output, sum) for outputs [begin, end), in blocks of kRows by kOutputs.
template <int kLanes, int kRows, int kOutputs, class T, class Write>
inline void multiply_blocks(const float* x, std::int64_t rows, const T* w, std::int64_t begin,
                            std::int64_t end, std::int64_t columns, const Write& write) {
  for (std::int64_t output = begin; output < end; output += kOutputs) {
    const T* lines[kOutputs];
    for (std::int64_t o = 0; o < kOutputs; ++o)
      lines[o] = w + std::min(output + o, end - 1) * columns;
    for (std::int64_t first = 0; first < rows; first += kRows) {
      const float* block[kRows];
      for (std::int64_t row = 0; row < kRows; ++row)
        block[row] = x + std::min(first + row, rows - 1) * columns;
      float sums[kRows][kOutputs];
      multiply_block<kLanes>(sums, block, lines, columns);
      for (std::int64_t row = 0; row < std::min<std::int64_t>(kRows, rows - first); ++row)
        for (std::int64_t o = 0; o < std::min<std::int64_t>(kOutputs, end - output); ++o)
          write(first + row, output + o, sums[row][o]);
    }
  }
}

template <class In, class Out>
struct FewRows {
  const float* from;  // the arranged rows
  std::int64_t rows, columns, outputs;
  const In* weight;
  Out* to;
  const float* shift;  // or null
  const Out* added;    // or null

  FewRows(const SkinnyRows& of, float* scratch)
      : from(arrange(of.x.data<In>(), of.x.size(0), of.x.size(1), scratch)),
        rows(of.x.size(0)),
        columns(of.x.size(1)),
        outputs(of.w.size(0)),
        weight(of.w.data<In>()),
        to(of.y.data<Out>()),
        shift(optional_data<float>(of.bias)),
        added(of.residual     ? of.residual.data<Out>()
              : of.accumulate ? to
                              : nullptr) {}
};

template <int kLanes, class In, class Out>
inline void multiply_outputs(const FewRows<In, Out>& of, std::int64_t begin, std::int64_t end) {
  constexpr int kBlockOutputs = kLanes == 16 ? 4 : 2;  // limited by registers
  const auto write = [=](std::int64_t row, std::int64_t output, float sum) {
    const std::int64_t at = row * of.outputs + output;
    store(of.to + at,
          sum + (of.shift ? of.shift[output] : 0.0f) + (of.added ? load(of.added + at) : 0.0f));
  };
  // For one row, reading one line of w at a time is fastest: 75 GB/s against 60 for four.
  if (of.rows == 1) {
    multiply_blocks<kLanes, 1, 1>(of.from, of.rows, of.weight, begin, end, of.columns, write);
  } else {
    multiply_blocks<kLanes, 4, kBlockOutputs>(of.from, of.rows, of.weight, begin, end, of.columns,
                                              write);
  }
}

template <class Run>
void with_rows(const SkinnyRows& of, float* scratch, const Run& run) {
  visit_real(of.x.dtype(), [&](auto in) {
    visit_real(of.y.dtype(),
               [&](auto out) { run(FewRows<decltype(in), decltype(out)>(of, scratch)); });
  });
}

}  // namespace

void skinny_rows(const SkinnyRows& of, std::int64_t begin, std::int64_t end, float* scratch) {
  with_rows(of, scratch, [&](auto rows) {
    with_lanes([&](auto lanes) {
      run_on(instruction_set(), [=]() { multiply_outputs<lanes>(rows, begin, end); });
    });
  });
}

void skinny_gemm(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                 const Tensor& residual, bool accumulate, const Stream& stream) {
  const Tensor arranged = empty_workspace(x.elements(), DType::kF32, stream);
  if (simulated(stream)) return;
  const SkinnyRows of{y, x, w, bias, residual, accumulate};
  with_rows(of, arranged.data<float>(), [&](auto rows) {
    with_lanes([&](auto lanes) {
      parallel_rows(rows.outputs, rows.columns, [=](std::int64_t begin, std::int64_t end) {
        multiply_outputs<lanes>(rows, begin, end);
      });
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
