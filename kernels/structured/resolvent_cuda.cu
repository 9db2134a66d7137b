#include "hybrid_trainer/kernels/structured.h"
#include "kernels/backend/elements.cuh"
#include "kernels/backend/reduce.cuh"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr int kScanThreads = 128;

template <class Real>
struct Complex {
  Real re, im;
};
template <class Real>
__device__ Complex<Real> operator+(Complex<Real> x, Complex<Real> y) {
  return {x.re + y.re, x.im + y.im};
}
template <class Real>
__device__ Complex<Real> operator*(Complex<Real> x, Complex<Real> y) {
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}
template <class Real>
__device__ Complex<Real> operator*(Real x, Complex<Real> y) {
  return {x * y.re, x * y.im};
}
template <class Real>
__device__ Complex<Real> inverse(Complex<Real> x) {
  const Real square = x.re * x.re + x.im * x.im;
  return {x.re / square, -x.im / square};
}

template <class Real, class T>
__device__ Real real_at(const T* from) {
  if constexpr (std::is_same_v<T, double>) {
    return *from;
  } else {
    return load(from);
  }
}
template <class T, class Real>
__device__ void put_real(T* to, Real value) {
  if constexpr (std::is_same_v<T, double>) {
    *to = value;
  } else {
    store(to, value);
  }
}

/// A batch of chains; element (b, i, m) has index (b·tokens + i)·matrices + m.
template <class Real, class T>
struct Chains {
  std::int64_t batch, tokens, matrices, columns, first;  // `first`: first column of v
  const T *values, *dg;                                  // dg: in a backward pass
  const Real *above, *below;
  const std::int32_t* positions;
  Real z_re, z_im, shift, limit;
  Complex<Real>* pivots;  // pivots from the left, then from the right
  Complex<Real>* sums;    // Σ over earlier tokens, then over later ones

  __device__ std::int64_t elements() const { return batch * tokens * matrices; }
  __device__ std::int64_t place(std::int64_t element) const {
    return element / matrices * columns + first + element % matrices;
  }
  __device__ Real value(std::int64_t element) const {
    return real_at<Real>(values + place(element));
  }
  __device__ Complex<Real> diagonal(std::int64_t element) const {
    const Real v = value(element);
    return {(v > limit ? limit : v < -limit ? -limit : v) + shift - z_re, -z_im};
  }
  /// Returns b·c between token − 1 and token; 0 at a document's start and at the sequence's ends.
  __device__ Real joined(std::int64_t sequence, std::int64_t token, std::int64_t m) const {
    if (token == 0 || token == tokens) return 0;
    if (positions != nullptr && positions[sequence * tokens + token] == 0) return 0;
    const std::int64_t edge = (token - 1) * matrices + m;
    return above == nullptr ? Real{1} : above[edge] * below[edge];
  }
  __device__ Complex<Real> seed(std::int64_t element) const {
    const std::int64_t row = element / matrices, m = element % matrices;
    const T* const from = dg + row * 2 * matrices + m;
    return {real_at<Real>(from), -real_at<Real>(from + matrices)};
  }
  __device__ Complex<Real> resolvent(std::int64_t element) const {
    const Complex<Real> s = diagonal(element), left = pivots[element],
                        right = pivots[elements() + element];
    return inverse(Complex<Real>{left.re + right.re - s.re, left.im + right.im - s.im});
  }
  /// Returns G²·(Σ over all tokens), the negative gradient of the diagonal.
  __device__ Complex<Real> slope(std::int64_t element) const {
    const Complex<Real> g = resolvent(element);
    return g * g * (sums[element] + seed(element) + sums[elements() + element]);
  }
};

/// One chain, viewed from one end. Place 0 is the first token in this direction.
template <class Real, class T>
struct ChainView {
  Chains<Real, T> chains;
  std::int64_t sequence, m;
  bool reversed;
  __device__ std::int64_t token(std::int64_t place) const {
    return reversed ? chains.tokens - 1 - place : place;
  }
  __device__ std::int64_t element(std::int64_t place) const {
    return (sequence * chains.tokens + token(place)) * chains.matrices + m;
  }
  /// Returns b·c between a place and the previous one.
  __device__ Real joined(std::int64_t place) const {
    return chains.joined(sequence, reversed ? token(place) + 1 : token(place), m);
  }
  __device__ Complex<Real>* pivots() const {
    return chains.pivots + (reversed ? chains.elements() : 0);
  }
  __device__ Complex<Real>* sums() const {
    return chains.sums + (reversed ? chains.elements() : 0);
  }
};

template <class Real, class T>
__device__ ChainView<Real, T> chain_of(const Chains<Real, T>& chains) {
  return {chains, static_cast<std::int64_t>(blockIdx.x) / chains.matrices,
          static_cast<std::int64_t>(blockIdx.x) % chains.matrices, blockIdx.y == 1};
}

/// The map from pivot to (x00·pivot + x01)/(x10·pivot + x11), up to a common factor.
template <class Real>
struct Moebius {
  Complex<Real> x00, x01, x10, x11;
};
template <class Real>
__device__ Moebius<Real> normed(const Moebius<Real>& x) {
  Real most = 0;
  for (const Complex<Real>* one : {&x.x00, &x.x01, &x.x10, &x.x11}) {
    most = fmax(most, fabs(one->re));
    most = fmax(most, fabs(one->im));
  }
  const Real scale = 1 / most;
  return {scale * x.x00, scale * x.x01, scale * x.x10, scale * x.x11};
}
template <class Real>
__device__ Moebius<Real> after(const Moebius<Real>& later, const Moebius<Real>& earlier) {
  return normed(Moebius<Real>{later.x00 * earlier.x00 + later.x01 * earlier.x10,
                              later.x00 * earlier.x01 + later.x01 * earlier.x11,
                              later.x10 * earlier.x00 + later.x11 * earlier.x10,
                              later.x10 * earlier.x01 + later.x11 * earlier.x11});
}

/// The map from x to factor·x + term.
template <class Real>
struct Affine {
  Complex<Real> factor, term;
};
template <class Real>
__device__ Affine<Real> after(const Affine<Real>& later, const Affine<Real>& earlier) {
  return {later.factor * earlier.factor, later.factor * earlier.term + later.term};
}

/// Composes each thread's map with the maps of all previous threads.
template <class Map>
__device__ Map scan_block(Map map, Map* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int distance = 1; distance < kScanThreads; distance *= 2) {
    shared[thread] = map;
    __syncthreads();
    if (thread >= distance) map = after(map, shared[thread - distance]);
    __syncthreads();
  }
  shared[thread] = map;
  __syncthreads();
  return map;
}

struct Places {
  std::int64_t begin, end;
};
__device__ inline Places places_of_thread(std::int64_t tokens) {
  const std::int64_t each = (tokens + kScanThreads - 1) / kScanThreads,
                     begin = static_cast<std::int64_t>(threadIdx.x) * each;
  return {begin < tokens ? begin : tokens, begin + each < tokens ? begin + each : tokens};
}

/// Computes a chain's pivots from both ends. Each thread composes the maps of its places, the block
/// scans these maps, and each thread iterates over its places from the pivot before them.
template <class Real, class T>
__global__ void pivots_kernel(Chains<Real, T> chains) {
  __shared__ Moebius<Real> shared[kScanThreads];
  const ChainView<Real, T> chain = chain_of(chains);
  const Places places = places_of_thread(chains.tokens);
  Moebius<Real> map{{1, 0}, {0, 0}, {0, 0}, {1, 0}};
  for (std::int64_t i = places.begin; i < places.end; ++i) {
    const Real k = chain.joined(i);
    map = after(Moebius<Real>{chains.diagonal(chain.element(i)), {-k, 0}, {1, 0}, {0, 0}}, map);
  }
  scan_block(map, shared);
  Complex<Real> pivot{1, 0};
  if (threadIdx.x > 0) {
    const Moebius<Real> before = shared[threadIdx.x - 1];
    pivot = before.x00 * inverse(before.x10);
  }
  Complex<Real>* const to = chain.pivots();
  for (std::int64_t i = places.begin; i < places.end; ++i) {
    const Complex<Real> s = chains.diagonal(chain.element(i));
    const Real k = chain.joined(i);
    const Complex<Real> part = k * inverse(pivot);
    pivot = k == Real{0} ? s : Complex<Real>{s.re - part.re, s.im - part.im};
    to[chain.element(i)] = pivot;
  }
}

/// Computes sum[i] = (sum[i−1] + q[i−1])·k[i]/pivot[i−1]² by the scan that computes the pivots.
template <class Real, class T>
__global__ void sums_kernel(Chains<Real, T> chains) {
  __shared__ Affine<Real> shared[kScanThreads];
  const ChainView<Real, T> chain = chain_of(chains);
  const Places places = places_of_thread(chains.tokens);
  const Complex<Real>* const pivots = chain.pivots();
  const auto step = [&](std::int64_t i) -> Affine<Real> {
    const Real k = chain.joined(i);
    if (k == Real{0}) return {{0, 0}, {0, 0}};
    const Complex<Real> turned = inverse(pivots[chain.element(i - 1)]);
    const Complex<Real> factor = k * (turned * turned);
    return {factor, factor * chains.seed(chain.element(i - 1))};
  };
  Affine<Real> map{{1, 0}, {0, 0}};
  for (std::int64_t i = places.begin; i < places.end; ++i) map = after(step(i), map);
  scan_block(map, shared);
  Complex<Real> sum{0, 0};
  if (threadIdx.x > 0) sum = shared[threadIdx.x - 1].term;
  for (std::int64_t i = places.begin; i < places.end; ++i) {
    const Affine<Real> one = step(i);
    sum = one.factor * sum + one.term;
    chain.sums()[chain.element(i)] = sum;
  }
}

template <class Real, class T>
struct WriteResolvent {
  Chains<Real, T> chains;
  T* g;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / chains.matrices, m = i % chains.matrices;
    const Complex<Real> one = chains.resolvent(i);
    put_real(g + row * 2 * chains.matrices + m, one.re);
    put_real(g + row * 2 * chains.matrices + chains.matrices + m, one.im);
  }
};

template <class Real, class T>
struct WriteSlopes {
  Chains<Real, T> chains;
  T* dvalues;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const Real v = chains.value(i);
    const bool cut = v > chains.limit || v < -chains.limit;
    put_real(dvalues + chains.place(i), cut ? Real{0} : -chains.slope(i).re);
  }
};

/// Computes element i of (N − 1, M), which both gradients use, summed over the sequences in order.
template <class Real, class T>
struct WriteOffDiagonals {
  Chains<Real, T> chains;
  Real *dabove, *dbelow;
  bool accumulates;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t token = i / chains.matrices, m = i % chains.matrices;
    Real total = 0;
    for (std::int64_t b = 0; b < chains.batch; ++b) {
      const std::int64_t first = (b * chains.tokens + token) * chains.matrices + m,
                         second = first + chains.matrices;
      if (chains.positions != nullptr && chains.positions[b * chains.tokens + token + 1] == 0)
        continue;
      const std::int64_t right = chains.elements() + second;
      const Complex<Real> both = chains.resolvent(first) * chains.resolvent(second);
      const Complex<Real> ends =
          (chains.sums[first] + chains.seed(first)) * inverse(chains.pivots[first]) +
          (chains.sums[right] + chains.seed(second)) * inverse(chains.pivots[right]);
      total += (both * ends).re;
    }
    const Real of_above = chains.below == nullptr ? total : chains.below[i] * total,
               of_below = chains.above == nullptr ? total : chains.above[i] * total;
    dabove[i] = accumulates ? dabove[i] + of_above : of_above;
    dbelow[i] = accumulates ? dbelow[i] + of_below : of_below;
  }
};

template <class Real, class T>
__global__ void point_kernel(Chains<Real, T> chains, Real* dz, bool accumulates) {
  double re = 0, im = 0;
  for (std::int64_t i = threadIdx.x; i < chains.elements(); i += blockDim.x) {
    const Complex<Real> slope = chains.slope(i);
    re += static_cast<double>(slope.re);
    im -= static_cast<double>(slope.im);
  }
  re = reduce_block(re, Sum{}, 0.0);
  im = reduce_block(im, Sum{}, 0.0);
  if (threadIdx.x != 0) return;
  dz[0] = (accumulates ? dz[0] : Real{0}) + static_cast<Real>(re);
  dz[1] = (accumulates ? dz[1] : Real{0}) + static_cast<Real>(im);
}

/// Enqueues the computation of the pivots, then calls run(chains) with the types of the input.
template <class Run>
void with_chains(std::int64_t matrices, const Tensor& dg, const ResolventInput& input,
                 const ResolventSpec& spec, const Stream& stream, const Run& run) {
  const auto of_types = [&]<class Real, class T>(Real, T) {
    const std::int64_t batch = input.values.size(0), tokens = input.values.size(1),
                       elements = batch * tokens * matrices, passes = dg ? 2 : 1;
    const Tensor room = empty_workspace(passes * 4 * elements, DTypeOf<Real>::value, stream);
    auto* const numbers = static_cast<Complex<Real>*>(room.raw());
    const Chains<Real, T> chains{batch,
                                 tokens,
                                 matrices,
                                 input.values.size(2),
                                 input.first,
                                 optional_data<T>(input.values),
                                 optional_data<T>(dg),
                                 optional_data<Real>(input.above),
                                 optional_data<Real>(input.below),
                                 optional_data<std::int32_t>(input.positions),
                                 static_cast<Real>(spec.z.real()),
                                 static_cast<Real>(spec.z.imag()),
                                 static_cast<Real>(spec.shift),
                                 static_cast<Real>(spec.limit),
                                 numbers,
                                 dg ? numbers + 2 * elements : nullptr};
    const Grid grid{.x = chains.batch * chains.matrices, .y = 2, .threads = kScanThreads};
    if (elements == 0) return;
    launch(stream, "resolvent_pivots", pivots_kernel<Real, T>, grid, chains);
    if (dg) launch(stream, "resolvent_sums", sums_kernel<Real, T>, grid, chains);
    run(chains);
  };
  if (input.values.dtype() == DType::kF64) return of_types(double{}, double{});
  visit_real(input.values.dtype(), [&](auto element) { of_types(float{}, element); });
}

}  // namespace

void resolvent_forward(const Tensor& g, const ResolventInput& input, const ResolventSpec& spec,
                       const Stream& stream) {
  with_chains(g.size(2) / 2, Tensor{}, input, spec, stream,
              [&]<class Real, class T>(const Chains<Real, T>& chains) {
                for_packs<1>(stream, "resolvent_forward",
                             chains.batch * chains.tokens * chains.matrices,
                             WriteResolvent<Real, T>{chains, g.data<T>()});
              });
}

void resolvent_backward(const ResolventGradients& gradients, const Tensor& dg,
                        const ResolventInput& input, const ResolventSpec& spec,
                        const Stream& stream) {
  const bool accumulates = gradients.mode == GradientMode::kAccumulate;
  with_chains(
      dg.size(2) / 2, dg, input, spec, stream,
      [&]<class Real, class T>(const Chains<Real, T>& chains) {
        if (gradients.values)
          for_packs<1>(stream, "resolvent_backward", chains.batch * chains.tokens * chains.matrices,
                       WriteSlopes<Real, T>{chains, gradients.values.data<T>()});
        if (gradients.above)
          for_packs<1>(stream, "resolvent_off_diagonals", gradients.above.elements(),
                       WriteOffDiagonals<Real, T>{chains, gradients.above.data<Real>(),
                                                  gradients.below.data<Real>(), accumulates});
        if (gradients.z)
          launch(stream, "resolvent_point", point_kernel<Real, T>, Grid{}, chains,
                 gradients.z.data<Real>(), accumulates);
      });
}

}  // namespace hybrid_trainer::kernels::cuda
