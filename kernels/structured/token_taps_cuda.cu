#include "hybrid_trainer/kernels/structured.h"
#include "kernels/backend/elements.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

template <class T>
struct TapColumns {
  T* first;
  std::int64_t stride;
  __device__ T* row(std::int64_t at) const { return first + at * stride; }
};
template <class T>
TapColumns<T> tap_columns(const Columns& columns) {
  return {columns.rows.data<T>() + columns.first, columns.rows.size(1)};
}

/// Sizes and inputs of token taps. Element i is channel i % width of row i / width.
template <class T>
struct Taps {
  std::int64_t rows, time, width, channels, count;
  TapColumns<T> x, taps;
  const std::int32_t* positions;

  /// Returns whether rows `at` and at − 1 belong to the same document.
  __device__ bool joined(std::int64_t at) const {
    return at > 0 && at < rows && at % time != 0 && (positions == nullptr || positions[at] != 0);
  }
  /// Returns 1/n of row `at`; see TokenTapsInput.
  __device__ float share(std::int64_t at) const {
    const std::int64_t before = positions == nullptr ? at % time : positions[at];
    std::int64_t behind = 0;
    if (count == 3 && positions == nullptr) behind = time - 1 - before;
    if (count == 3 && positions != nullptr)
      while (joined(at + behind + 1)) ++behind;
    return 1.0f / static_cast<float>(before + behind + 1);
  }
  __device__ float tap(std::int64_t at, std::int64_t head, std::int64_t which) const {
    return load(taps.row(at) + head * count + which);
  }
};

template <class T>
Taps<T> taps_of(const Tensor& y, const TokenTapsInput& input, const TokenTapsSpec& spec) {
  return {y.size(0) * y.size(1),
          y.size(1),
          y.size(2),
          y.size(2) / spec.heads,
          spec.taps(),
          tap_columns<T>(input.x),
          tap_columns<T>(input.taps),
          optional_data<std::int32_t>(input.positions)};
}

template <class T>
struct TapsForward {
  Taps<T> of;
  T* y;
  const T *low, *more, *before;  // the last two may be null
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / of.width, column = i % of.width, head = column / of.channels;
    const float sum = load(low + i) + (more != nullptr ? load(more + i) : 0.0f);
    float value = of.share(row) * sum + of.tap(row, head, 1) * load(of.x.row(row) + column);
    if (of.joined(row)) value += of.tap(row, head, 0) * load(of.x.row(row - 1) + column);
    if (before != nullptr && row % of.time == 0 &&
        (of.positions == nullptr || of.positions[row] != 0))
      value += of.tap(row, head, 0) * load(before + row / of.time * of.width + column);
    if (of.count == 3 && of.joined(row + 1))
      value += of.tap(row, head, 2) * load(of.x.row(row + 1) + column);
    store(y + i, value);
  }
};

template <class T>
struct DivideRows {
  Taps<T> of;
  T* dlow;
  const T* dy;
  template <int N>
  __device__ void at(std::int64_t i) const {
    store(dlow + i, of.share(i / of.width) * load(dy + i));
  }
};

template <class T>
struct TapsBackward {
  Taps<T> of;
  TapColumns<T> dx;
  const T* dy;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / of.width, column = i % of.width, head = column / of.channels;
    const float own = load(dy + i);
    T* const to = dx.row(row) + column;
    float value = load(to);
    if (of.joined(row + 1)) value += of.tap(row + 1, head, 0) * load(dy + i + of.width);
    value += of.tap(row, head, 1) * own;
    if (of.count == 3 && of.joined(row))
      value += of.tap(row - 1, head, 2) * load(dy + i - of.width);
    store(to, value);
  }
};

/// Computes element i, which is tap i % count of head i / count % heads of a row.
template <class T>
struct TapGradients {
  Taps<T> of;
  TapColumns<T> dtaps;
  const T* dy;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t of_row = of.width / of.channels * of.count, row = i / of_row,
                       column = i % of_row, head = column / of.count, tap = column % of.count;
    const std::int64_t read = row + tap - 1;
    float sum = 0;
    if (tap == 1 || of.joined(read > row ? read : row)) {
      const std::int64_t first = head * of.channels;
      for (std::int64_t c = first; c < first + of.channels; ++c)
        sum += load(dy + row * of.width + c) * load(of.x.row(read) + c);
    }
    store(dtaps.row(row) + column, sum);
  }
};

template <class T>
struct TapsStep {
  Taps<T> of;
  T *y, *state;
  const T* low;
  const std::int32_t* texts;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / of.width, column = i % of.width, head = column / of.channels;
    T* const last = state + texts[row] * of.width + column;
    const float value = load(of.x.row(row) + column),
                share = 1.0f / static_cast<float>(of.positions[row] + 1);
    float sum = share * load(low + i) + of.tap(row, head, 1) * value;
    if (of.positions[row] != 0) sum += of.tap(row, head, 0) * load(last);
    store(y + i, sum);
    *last = of.x.row(row)[column];
  }
};

}  // namespace

void token_taps_forward(const Tensor& y, const TokenTapsInput& input, const TokenTapsSpec& spec,
                        const Stream& stream) {
  visit_real(y.dtype(), [&]<class T>(T) {
    for_packs<1>(stream, "token_taps_forward", y.elements(),
                 TapsForward<T>{taps_of<T>(y, input, spec), y.data<T>(), input.low.data<T>(),
                                optional_data<T>(input.more), optional_data<T>(input.before)});
  });
}

void token_taps_backward(const Tensor& dlow, const Columns& dx, const Columns& dtaps,
                         const Tensor& dy, const TokenTapsInput& input, const TokenTapsSpec& spec,
                         const Stream& stream) {
  visit_real(dy.dtype(), [&]<class T>(T) {
    const Taps<T> of = taps_of<T>(dy, input, spec);
    if (dlow)
      for_packs<1>(stream, "token_taps_divide", dy.elements(),
                   DivideRows<T>{of, dlow.data<T>(), dy.data<T>()});
    if (!dx.rows) return;
    for_packs<1>(stream, "token_taps_backward", dy.elements(),
                 TapsBackward<T>{of, tap_columns<T>(dx), dy.data<T>()});
    for_packs<1>(stream, "token_tap_gradients", of.rows * spec.heads * spec.taps(),
                 TapGradients<T>{of, tap_columns<T>(dtaps), dy.data<T>()});
  });
}

void token_taps_step(const Tensor& y, const Tensor& low, const Tensor& state, const Columns& x,
                     const Columns& taps, const Tensor& positions, const Tensor& texts,
                     const TokenTapsSpec& spec, const Stream& stream) {
  visit_real(y.dtype(), [&]<class T>(T) {
    const Taps<T> of{y.size(0),
                     1,
                     y.size(1),
                     y.size(1) / spec.heads,
                     spec.taps(),
                     tap_columns<T>(x),
                     tap_columns<T>(taps),
                     positions.data<std::int32_t>()};
    for_packs<1>(
        stream, "token_taps_step", y.elements(),
        TapsStep<T>{of, y.data<T>(), state.data<T>(), low.data<T>(), texts.data<std::int32_t>()});
  });
}

}  // namespace hybrid_trainer::kernels::cuda
