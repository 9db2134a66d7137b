#include "hybrid_trainer/kernels/block_linear.h"

#include <algorithm>
#include <list>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cpu/block_rows_avx2.h"
#include "kernels/cpu/block_rows_plain.h"
#include "kernels/cpu/block_rows_vnni.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rounded_inputs.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

constexpr int kRowsAtOnce = 4;  // of x, for which a row of w is read once

using MultiplyRow = void (*)(float* sums, const std::uint8_t* w, const RoundedRow* x,
                             std::int64_t inputs);

/// Of one row of x, and of kRowsAtOnce.
struct RowProducts {
  MultiplyRow one, several;
};

template <std::size_t... kFormats>
RowProducts products_of(BlockFormat format, std::index_sequence<kFormats...>) {
  static const bool has_byte_products = __builtin_cpu_supports("avx512vnni") != 0;
  const InstructionSet set = instruction_set();
  RowProducts products{};
  const auto choose = [&](auto number) {
    constexpr auto kFormat = static_cast<BlockFormat>(decltype(number)::value);
    if (set == InstructionSet::kAvx512 && has_byte_products) {
      products = {vnni::multiply_row<kFormat, 1>, vnni::multiply_row<kFormat, kRowsAtOnce>};
    } else if (set != InstructionSet::kBaseline) {
      products = {avx2::multiply_row<kFormat, 1>, avx2::multiply_row<kFormat, kRowsAtOnce>};
    } else {
      products = {plain::multiply_row<kFormat, 1>, plain::multiply_row<kFormat, kRowsAtOnce>};
    }
  };
  const auto number = static_cast<std::size_t>(format);
  ((number == kFormats ? choose(std::integral_constant<std::size_t, kFormats>()) : void()), ...);
  return products;
}

/// Rows of w with what multiplies them.
struct PartProduct {
  std::int64_t first, end, bytes_of_row;  // among all outputs
  const std::uint8_t* w;
  RowProducts products;
  const RoundedRow* x;
};

/// write(row of x, output, sum) for outputs [begin, end) of a part.
template <class Write>
void multiply_part(const PartProduct& part, std::int64_t begin, std::int64_t end, std::int64_t rows,
                   std::int64_t inputs, const Write& write) {
  for (std::int64_t o = begin; o < end; ++o) {
    const std::uint8_t* const w = part.w + (o - part.first) * part.bytes_of_row;
    std::int64_t n = 0;
    for (; n + kRowsAtOnce <= rows; n += kRowsAtOnce) {
      float sums[kRowsAtOnce];
      part.products.several(sums, w, part.x + n, inputs);
      for (int i = 0; i < kRowsAtOnce; ++i) write(n + i, o, sums[i]);
    }
    for (; n < rows; ++n) {
      float sum;
      part.products.one(&sum, w, part.x + n, inputs);
      write(n, o, sum);
    }
  }
}

}  // namespace

void block_linear(const Tensor& y, const Tensor& x, std::span<const BlockRows> w,
                  const Tensor& bias, const Tensor& residual, const Stream& stream) {
  const std::int64_t rows = x.size(0), inputs = x.size(1), outputs = y.size(1);
  std::list<RoundedInputs> rounded;  // for each format
  std::vector<PartProduct> parts;
  std::int64_t first = 0;
  for (const BlockRows& part : w) {
    const BlockFormat format = part.tensors.format;
    auto found = std::ranges::find(rounded, format, &RoundedInputs::format);
    if (found == rounded.end()) found = rounded.emplace(rounded.end(), format, x, stream);
    if (simulated(stream)) continue;
    const BlockSize size = block_size(format);
    parts.push_back({first, first + part.count, inputs / size.numbers * size.bytes,
                     part.tensors.bytes.data<std::uint8_t>(),
                     products_of(format, std::make_index_sequence<kBlockFormats>()),
                     found->rows().data()});
    first += part.count;
  }
  if (simulated(stream)) return;
  const float* const added = bias ? bias.data<float>() : nullptr;
  visit_real(x.dtype(), [&](auto real) {
    using T = decltype(real);
    const T* const more = residual ? residual.data<T>() : nullptr;
    T* const to = y.data<T>();
    const auto write = [=](std::int64_t n, std::int64_t o, float sum) {
      const std::int64_t at = n * outputs + o;
      if (added != nullptr) sum += added[o];
      store(to + at, more != nullptr ? sum + load(more + at) : sum);
    };
    const PartProduct *const begin_of_parts = parts.data(), *const end_of_parts =
                                                                begin_of_parts + parts.size();
    parallel_rows(outputs, inputs, [=](std::int64_t begin, std::int64_t end) {
      for (const PartProduct* part = begin_of_parts; part != end_of_parts; ++part)
        multiply_part(*part, std::max(begin, part->first), std::min(end, part->end), rows, inputs,
                      write);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
