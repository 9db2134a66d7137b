#include "hybrid_trainer/kernels/structured.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

template <class T>
struct TapColumns {
  T* first;
  std::int64_t stride;
  T* row(std::int64_t at) const { return first + at * stride; }
};
template <class T>
TapColumns<T> tap_columns(const Columns& columns) {
  return {columns.rows.data<T>() + columns.first, columns.rows.size(1)};
}

/// Document boundaries of rows, and 1/n for each row; see TokenTapsInput.
struct TapRows {
  std::int64_t batch, time;
  const std::int32_t* positions;
  bool ahead;
  float* shares;

  /// Returns whether rows `at` and at − 1 belong to the same document.
  bool joined(std::int64_t at) const {
    return at > 0 && at < batch * time && at % time != 0 &&
           (positions == nullptr || positions[at] != 0);
  }
  /// Returns whether the row is the first of its sequence and continues a document.
  bool continues(std::int64_t at) const {
    return at % time == 0 && (positions == nullptr || positions[at] != 0);
  }
  void fill_shares() const {
    for (std::int64_t begin = 0; begin < batch * time;) {
      std::int64_t end = begin + 1;
      while (joined(end)) ++end;
      const std::int64_t before = positions == nullptr ? 0 : positions[begin];
      for (std::int64_t at = begin; at < end; ++at)
        shares[at] = 1.0f / static_cast<float>(before + (ahead ? end : at + 1) - begin);
      begin = end;
    }
  }
};

struct TapRowsWithRoom {
  Tensor room;
  TapRows rows;
};

TapRowsWithRoom tap_rows(const Tensor& y, const TokenTapsInput& input, const TokenTapsSpec& spec,
                         const Stream& stream) {
  const Tensor room = empty_workspace(y.size(0) * y.size(1), DType::kF32, stream);
  TapRows rows{y.size(0), y.size(1), optional_data<std::int32_t>(input.positions), spec.ahead,
               room.data<float>()};
  if (!simulated(stream)) rows.fill_shares();
  return {room, rows};
}

template <class T>
float dot_of(const T* x, const T* y, std::int64_t channels) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < channels; ++i) sum += load(x + i) * load(y + i);
  return sum;
}

template <class T>
struct TapSums {
  std::int64_t width, heads, count;
  TapRows rows;
  TapColumns<T> x, taps;
  T* y;
  const T *low, *more, *before;  // the last two may be null

  void write(std::int64_t at) const {
    const T* left = rows.joined(at) ? x.row(at - 1) : nullptr;
    if (before != nullptr && rows.continues(at)) left = before + at / rows.time * width;
    const T* const right = count == 3 && rows.joined(at + 1) ? x.row(at + 1) : nullptr;
    for (std::int64_t h = 0; h < heads; ++h) write(at, h, left, right);
  }
  void write(std::int64_t at, std::int64_t head, const T* left, const T* right) const {
    const std::int64_t channels = width / heads, first = head * channels;
    const T* const tap = taps.row(at) + head * count;
    const float earlier = left != nullptr ? load(tap) : 0.0f, own = load(tap + 1),
                later = right != nullptr ? load(tap + count - 1) : 0.0f, share = rows.shares[at];
    const T *const middle = x.row(at) + first, *const before_it = left ? left + first : middle,
                   *const behind_it = right ? right + first : middle;
    const std::int64_t offset = at * width + first;
#pragma omp simd
    for (std::int64_t i = 0; i < channels; ++i) {
      const float sum = load(low + offset + i) + (more != nullptr ? load(more + offset + i) : 0.0f);
      store(y + offset + i, share * sum + own * load(middle + i) + earlier * load(before_it + i) +
                                later * load(behind_it + i));
    }
  }
};

/// Sets to = from · 1/n, row by row.
template <class T>
void divide_rows(T* to, const T* from, std::int64_t width, const TapRows& rows) {
  for_each_row(rows.batch * rows.time, width, [=](std::int64_t at) {
    const float share = rows.shares[at];
#pragma omp simd
    for (std::int64_t i = at * width; i < (at + 1) * width; ++i)
      store(to + i, share * load(from + i));
  });
}

template <class T>
struct TapGradients {
  std::int64_t width, heads, count;
  TapRows rows;
  TapColumns<T> x, taps, dx, dtaps;
  const T* dy;

  void write(std::int64_t at) const {
    for (std::int64_t h = 0; h < heads; ++h) write(at, h);
  }
  /// Writes a row's gradients for a head: taps from rows that it reads, x from rows that read it.
  void write(std::int64_t at, std::int64_t head) const {
    const std::int64_t channels = width / heads, first = head * channels;
    const T* const own = dy + at * width + first;
    float weights[3] = {};
    const T* readers[3] = {own, own, own};
    for (std::int64_t tap = 0; tap < count; ++tap) {
      const std::int64_t read = at + tap - 1, reader = at - tap + 1;  // rows
      const bool reads = tap == 1 || rows.joined(std::max(at, read)),
                 is_read = tap == 1 || rows.joined(std::max(at, reader));
      store(dtaps.row(at) + head * count + tap,
            reads ? dot_of(own, x.row(read) + first, channels) : 0.0f);
      if (!is_read) continue;
      weights[tap] = load(taps.row(reader) + head * count + tap);
      readers[tap] = dy + reader * width + first;
    }
    T* const to = dx.row(at) + first;
#pragma omp simd
    for (std::int64_t i = 0; i < channels; ++i)
      store(to + i, load(to + i) + weights[0] * load(readers[0] + i) +
                        weights[1] * load(readers[1] + i) + weights[2] * load(readers[2] + i));
  }
};

}  // namespace

void token_taps_forward(const Tensor& y, const TokenTapsInput& input, const TokenTapsSpec& spec,
                        const Stream& stream) {
  const auto [room, rows] = tap_rows(y, input, spec, stream);
  if (simulated(stream)) return;
  visit_real(y.dtype(), [&, rows = rows]<class T>(T) {
    const TapSums<T> sums{.width = y.size(2),
                          .heads = spec.heads,
                          .count = spec.taps(),
                          .rows = rows,
                          .x = tap_columns<T>(input.x),
                          .taps = tap_columns<T>(input.taps),
                          .y = y.data<T>(),
                          .low = optional_data<T>(input.low),
                          .more = optional_data<T>(input.more),
                          .before = optional_data<T>(input.before)};
    for_each_row(rows.batch * rows.time, 4 * y.size(2),
                 [sums](std::int64_t at) { sums.write(at); });
  });
}

void token_taps_backward(const Tensor& dlow, const Columns& dx, const Columns& dtaps,
                         const Tensor& dy, const TokenTapsInput& input, const TokenTapsSpec& spec,
                         const Stream& stream) {
  const auto [room, rows] = tap_rows(dy, input, spec, stream);
  if (simulated(stream)) return;
  visit_real(dy.dtype(), [&, rows = rows]<class T>(T) {
    if (dlow) divide_rows(dlow.data<T>(), dy.data<T>(), dy.size(2), rows);
    if (!dx.rows) return;
    const TapGradients<T> gradients{.width = dy.size(2),
                                    .heads = spec.heads,
                                    .count = spec.taps(),
                                    .rows = rows,
                                    .x = tap_columns<T>(input.x),
                                    .taps = tap_columns<T>(input.taps),
                                    .dx = tap_columns<T>(dx),
                                    .dtaps = tap_columns<T>(dtaps),
                                    .dy = dy.data<T>()};
    for_each_row(rows.batch * rows.time, 4 * dy.size(2),
                 [gradients](std::int64_t at) { gradients.write(at); });
  });
}

void token_taps_step(const Tensor& y, const Tensor& low, const Tensor& state, const Columns& x,
                     const Columns& taps, const Tensor& positions, const Tensor& texts,
                     const TokenTapsSpec& spec, const Stream&) {
  const std::int64_t width = y.size(1), channels = width / spec.heads, heads = spec.heads;
  visit_real(y.dtype(), [&]<class T>(T) {
    const auto from = tap_columns<T>(x), tap = tap_columns<T>(taps);
    T *const to = y.data<T>(), *const kept = state.data<T>();
    const T* const sums = low.data<T>();
    const std::int32_t *const position = positions.data<std::int32_t>(),
                              *const text = texts.data<std::int32_t>();
    for_each_row(y.size(0), 4 * width, [=](std::int64_t at) {
      const float share = 1.0f / static_cast<float>(position[at] + 1);
      T* const last = kept + text[at] * width;
      for (std::int64_t h = 0; h < heads; ++h) {
        const float first = position[at] != 0 ? load(tap.row(at) + 2 * h) : 0.0f,
                    own = load(tap.row(at) + 2 * h + 1);
#pragma omp simd
        for (std::int64_t i = h * channels; i < (h + 1) * channels; ++i) {
          const float value = load(from.row(at) + i), before = load(last + i);
          store(to + at * width + i,
                share * load(sums + at * width + i) + own * value + first * before);
        }
      }
      std::copy_n(from.row(at), width, last);
    });
  });
}

}  // namespace hybrid_trainer::kernels::cpu
