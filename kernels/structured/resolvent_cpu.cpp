#include "hybrid_trainer/kernels/structured.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

/// Returns the number of matrices that one task processes side by side.
constexpr std::int64_t lanes_for(std::int64_t matrices) {
  return matrices > 8 ? 16 : matrices > 1 ? 8 : 1;
}
std::int64_t lane_blocks(std::int64_t matrices) {
  return (matrices + lanes_for(matrices) - 1) / lanes_for(matrices);
}

template <class Real, class T>
Real real_of(const T* from) {
  if constexpr (std::is_same_v<T, double>) {
    return *from;
  } else {
    return load(from);
  }
}
template <class T, class Real>
void put_real(T* to, Real value) {
  if constexpr (std::is_same_v<T, double>) {
    *to = value;
  } else {
    store(to, value);
  }
}

/// One complex number per matrix, stored as two arrays so that loops over lanes are vectorized.
template <class Real, std::int64_t kLanes>
struct ComplexLanes {
  Real re[kLanes] = {}, im[kLanes] = {};
};

/// Processes one sequence for up to kLanes of its matrices.
template <class Real, class T, std::int64_t kLanes>
struct ResolventTask {
  using Lanes = ComplexLanes<Real, kLanes>;
  std::int64_t tokens, matrices, first, lanes, columns;
  const T* values;  // of the sequence from the first lane on; rows of `columns`
  const T* dg;      // gradient of g at the sequence, or null
  T* to;            // g of the sequence, or dvalues laid out like values, or null
  const Real *above, *below;
  const std::int32_t* positions;
  Real z_re, z_im, shift, limit;
  Real* scratch;        // tokens·4·kLanes
  Real* off_diagonals;  // (tokens − 1, M), or null: used in both gradients
  double* dz;           // 2, or null

  /// Computes b·c between token − 1 and token.
  void joints(std::int64_t token, Real (&k)[kLanes]) const {
    if (above == nullptr) return;
    const std::int64_t edge = (token - 1) * matrices + first;
    for (std::int64_t m = 0; m < lanes; ++m) k[m] = above[edge + m] * below[edge + m];
  }
  bool begins(std::int64_t token) const {
    return token == 0 || token == tokens || (positions != nullptr && positions[token] == 0);
  }
  void diagonal(std::int64_t token, Lanes& s) const {
    const T* const v = values + token * columns;
    for (std::int64_t m = 0; m < lanes; ++m) s.re[m] = real_of<Real>(v + m);
#pragma omp simd
    for (std::int64_t m = 0; m < kLanes; ++m) {
      const Real value = s.re[m];
      s.re[m] = (value > limit ? limit : value < -limit ? -limit : value) + shift - z_re;
      s.im[m] = -z_im;
    }
  }
  void seed(std::int64_t token, Lanes& q) const {
    const T* const from = dg + token * 2 * matrices + first;
    for (std::int64_t m = 0; m < lanes; ++m) {
      q.re[m] = real_of<Real>(from + m);
      q.im[m] = -real_of<Real>(from + matrices + m);
    }
  }
  Real* kept(std::int64_t token) const { return scratch + token * 4 * kLanes; }

  /// Sets pivot = s − k/pivot and, if not null, sum = (sum + q)·k/pivot² with the previous pivot.
  void advance(Lanes& pivot, const Lanes& s, std::int64_t joint, Lanes* sum, const Lanes& q) const {
    if (begins(joint)) {
      pivot = s;
      if (sum != nullptr) *sum = {};
      return;
    }
    Real k[kLanes];
    std::fill_n(k, kLanes, Real{1});
    joints(joint, k);
    Lanes inverse;
#pragma omp simd
    for (std::int64_t m = 0; m < kLanes; ++m) {
      const Real x = pivot.re[m], y = pivot.im[m], scale = 1 / (x * x + y * y);
      inverse.re[m] = x * scale;
      inverse.im[m] = -y * scale;
      pivot.re[m] = s.re[m] - k[m] * inverse.re[m];
      pivot.im[m] = s.im[m] - k[m] * inverse.im[m];
    }
    if (sum == nullptr) return;
#pragma omp simd
    for (std::int64_t m = 0; m < kLanes; ++m) {
      const Real re = inverse.re[m], im = inverse.im[m];
      const Real a = sum->re[m] + q.re[m], b = sum->im[m] + q.im[m];
      const Real c = a * re - b * im, d = a * im + b * re;
      sum->re[m] = k[m] * (c * re - d * im);
      sum->im[m] = k[m] * (c * im + d * re);
    }
  }

  /// Computes pivots from the last token on and, for a gradient, the sums over later tokens.
  void compute_pivots() const {
    Lanes rho, s, q, later;
    for (std::int64_t i = tokens - 1; i >= 0; --i) {
      diagonal(i, s);
      if (dg != nullptr && i + 1 < tokens) seed(i + 1, q);
      advance(rho, s, i + 1, dg != nullptr ? &later : nullptr, q);
      Real* to_keep = kept(i);
      for (const Real* part : {rho.re, rho.im, later.re, later.im})
        to_keep = std::copy_n(part, kLanes, to_keep);
    }
  }
  /// g = 1/(δ + ρ − s).
  void invert(Lanes& g, const Lanes& delta, const Lanes& s, const Real* rho) const {
#pragma omp simd
    for (std::int64_t m = 0; m < kLanes; ++m) {
      const Real x = delta.re[m] + rho[m] - s.re[m], y = delta.im[m] + rho[kLanes + m] - s.im[m],
                 square = x * x + y * y;
      g.re[m] = x / square;
      g.im[m] = -y / square;
    }
  }
  void forward() const {
    compute_pivots();
    Lanes delta, s, g;
    for (std::int64_t i = 0; i < tokens; ++i) {
      diagonal(i, s);
      advance(delta, s, i, nullptr, s);
      invert(g, delta, s, kept(i));
      T* const out = to + i * 2 * matrices + first;
      for (std::int64_t m = 0; m < lanes; ++m) {
        put_real(out + m, g.re[m]);
        put_real(out + matrices + m, g.im[m]);
      }
    }
  }

  /// Computes S = g²·(earlier + q + later). The negative real part of S is the gradient of v.
  void write_values(std::int64_t token, const Lanes& g, const Lanes& earlier, const Lanes& q,
                    double (&sums)[2][kLanes]) const {
    const Real* const later = kept(token) + 2 * kLanes;
    Real slopes[kLanes];
#pragma omp simd
    for (std::int64_t m = 0; m < kLanes; ++m) {
      const Real a = earlier.re[m] + q.re[m] + later[m],
                 b = earlier.im[m] + q.im[m] + later[kLanes + m];
      const Real re = g.re[m] * g.re[m] - g.im[m] * g.im[m], im = 2 * g.re[m] * g.im[m];
      slopes[m] = re * a - im * b;
      sums[0][m] += static_cast<double>(slopes[m]);
      sums[1][m] -= static_cast<double>(re * b + im * a);
    }
    if (to == nullptr) return;
    const T* const v = values + token * columns;
    T* const out = to + token * columns;
    for (std::int64_t m = 0; m < lanes; ++m) {
      const Real value = real_of<Real>(v + m);
      put_real(out + m, value > limit || value < -limit ? Real{0} : -slopes[m]);
    }
  }
  /// Computes Re[G_{j−1}·G_j·((A + q)_{j−1}/δ_{j−1} + (B + q)_j/ρ_j)]. The gradient of b is c times
  /// this.
  void write_off_diagonal(std::int64_t token, const Lanes& before, const Lanes& g,
                          const Lanes& lower, const Lanes& q) const {
    const Real* const rho = kept(token);
    Real* const out = off_diagonals + (token - 1) * matrices + first;
    const bool apart = begins(token);
    Real shared[kLanes];
#pragma omp simd
    for (std::int64_t m = 0; m < kLanes; ++m) {
      const Real x = rho[m], y = rho[kLanes + m], square = x * x + y * y;
      const Real a = rho[2 * kLanes + m] + q.re[m], b = rho[3 * kLanes + m] + q.im[m];
      const Real re = lower.re[m] + (a * x + b * y) / square,
                 im = lower.im[m] + (b * x - a * y) / square;
      const Real both_re = before.re[m] * g.re[m] - before.im[m] * g.im[m],
                 both_im = before.re[m] * g.im[m] + before.im[m] * g.re[m];
      shared[m] = apart ? Real{0} : both_re * re - both_im * im;
    }
    std::copy_n(shared, lanes, out);
  }
  /// Computes (A + q)/δ.
  void divide(Lanes& lower, const Lanes& earlier, const Lanes& q, const Lanes& delta) const {
#pragma omp simd
    for (std::int64_t m = 0; m < kLanes; ++m) {
      const Real x = delta.re[m], y = delta.im[m], square = x * x + y * y;
      const Real a = earlier.re[m] + q.re[m], b = earlier.im[m] + q.im[m];
      lower.re[m] = (a * x + b * y) / square;
      lower.im[m] = (b * x - a * y) / square;
    }
  }
  void backward() const {
    compute_pivots();
    Lanes delta, s, g, before, earlier, q, lower;
    double sums[2][kLanes] = {};
    for (std::int64_t i = 0; i < tokens; ++i) {
      diagonal(i, s);
      advance(delta, s, i, &earlier, q);  // with q of the previous token
      seed(i, q);
      invert(g, delta, s, kept(i));
      if (off_diagonals != nullptr) {
        if (i > 0) write_off_diagonal(i, before, g, lower, q);
        divide(lower, earlier, q, delta);
        before = g;
      }
      write_values(i, g, earlier, q, sums);
    }
    if (dz == nullptr) return;
    for (std::int64_t m = 0; m < lanes; ++m) {
      dz[0] += sums[0][m];
      dz[1] += sums[1][m];
    }
  }
};

struct ResolventSums {
  Tensor off_diagonals;  // (B, N − 1, M)
  Tensor dz;             // (tasks, 2) f64
};

/// `to` is g, or if dg is defined the gradient of v.
template <std::int64_t kLanes, class Real, class T>
void run_lanes(const Tensor& to, const Tensor& dg, const ResolventInput& input,
               const ResolventSpec& spec, const ResolventSums& sums, const Stream& stream) {
  const std::int64_t tokens = input.values.size(1), matrices = (dg ? dg : to).size(2) / 2,
                     columns = input.values.size(2);
  const std::int64_t blocks = lane_blocks(matrices), room = tokens * 4 * kLanes;
  const Tensor scratch = empty_workspace(threads() * room, DTypeOf<Real>::value, stream);
  if (simulated(stream) || tokens * matrices * input.values.size(0) == 0) return;
  const auto at = [](const Tensor& tensor, auto element, std::int64_t offset) {
    return tensor ? tensor.data<decltype(element)>() + offset : nullptr;
  };
  parallel_items(input.values.size(0) * blocks, [&](std::int64_t worker, std::int64_t item) {
    const std::int64_t sequence = item / blocks, first = item % blocks * kLanes;
    const ResolventTask<Real, T, kLanes> task{
        .tokens = tokens,
        .matrices = matrices,
        .first = first,
        .lanes = std::min(kLanes, matrices - first),
        .columns = columns,
        .values = at(input.values, T{}, sequence * tokens * columns + input.first + first),
        .dg = at(dg, T{}, sequence * tokens * 2 * matrices),
        .to = at(to, T{},
                 dg ? sequence * tokens * columns + input.first + first
                    : sequence * tokens * 2 * matrices),
        .above = at(input.above, Real{}, 0),
        .below = at(input.below, Real{}, 0),
        .positions = at(input.positions, std::int32_t{}, sequence * tokens),
        .z_re = static_cast<Real>(spec.z.real()),
        .z_im = static_cast<Real>(spec.z.imag()),
        .shift = static_cast<Real>(spec.shift),
        .limit = static_cast<Real>(spec.limit),
        .scratch = scratch.data<Real>() + worker * room,
        .off_diagonals = at(sums.off_diagonals, Real{}, sequence * (tokens - 1) * matrices),
        .dz = at(sums.dz, double{}, 2 * item)};
    dg ? task.backward() : task.forward();
  });
}

template <class Real, class T>
void run_resolvent(const Tensor& to, const Tensor& dg, const ResolventInput& input,
                   const ResolventSpec& spec, const ResolventSums& sums, const Stream& stream) {
  const std::int64_t lanes = lanes_for((dg ? dg : to).size(2) / 2);
  if (lanes == 16) return run_lanes<16, Real, T>(to, dg, input, spec, sums, stream);
  if (lanes == 8) return run_lanes<8, Real, T>(to, dg, input, spec, sums, stream);
  run_lanes<1, Real, T>(to, dg, input, spec, sums, stream);
}

void run_resolvent(const Tensor& to, const Tensor& dg, const ResolventInput& input,
                   const ResolventSpec& spec, const ResolventSums& sums, const Stream& stream) {
  if (input.values.dtype() == DType::kF64)
    return run_resolvent<double, double>(to, dg, input, spec, sums, stream);
  visit_real(input.values.dtype(),
             [&]<class T>(T) { run_resolvent<float, T>(to, dg, input, spec, sums, stream); });
}

/// to = or += factor · the sum of the rows of all sequences.
template <class Real>
void add_off_diagonal(const Tensor& to, const Tensor& factor, const Tensor& all, bool accumulate) {
  const std::int64_t elements = to.elements(),
                     sequences = elements == 0 ? 0 : all.elements() / elements;
  const Real* const from = all.data<Real>();
  const Real* const by = optional_data<Real>(factor);
  Real* const out = to.data<Real>();
  parallel_for(elements, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      Real sum = 0;
      for (std::int64_t b = 0; b < sequences; ++b) sum += from[b * elements + i];
      if (by != nullptr) sum *= by[i];
      out[i] = accumulate ? out[i] + sum : sum;
    }
  });
}

template <class Real>
void finish_sums(const ResolventGradients& gradients, const ResolventSums& sums,
                 const ResolventInput& input) {
  const bool accumulate = gradients.mode == GradientMode::kAccumulate;
  if (sums.off_diagonals) {
    add_off_diagonal<Real>(gradients.above, input.below, sums.off_diagonals, accumulate);
    add_off_diagonal<Real>(gradients.below, input.above, sums.off_diagonals, accumulate);
  }
  if (!gradients.z) return;
  for (std::int64_t part = 0; part < 2; ++part) {
    double sum = 0;
    for (std::int64_t task = 0; task < sums.dz.size(0); ++task)
      sum += sums.dz.data<double>()[2 * task + part];
    Real& to = gradients.z.data<Real>()[part];
    to = (accumulate ? to : Real{0}) + static_cast<Real>(sum);
  }
}

}  // namespace

void resolvent_forward(const Tensor& g, const ResolventInput& input, const ResolventSpec& spec,
                       const Stream& stream) {
  run_resolvent(g, Tensor{}, input, spec, {}, stream);
}

void resolvent_backward(const ResolventGradients& gradients, const Tensor& dg,
                        const ResolventInput& input, const ResolventSpec& spec,
                        const Stream& stream) {
  const Tensor& values = input.values;
  const DType real = values.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  ResolventSums sums;
  if (gradients.above)
    sums.off_diagonals = Tensor::zeros({values.size(0), gradients.above.size(0), dg.size(2) / 2},
                                       real, MemoryKind::kWorkspace, stream);
  if (gradients.z) {
    const std::int64_t blocks = lane_blocks(dg.size(2) / 2);
    sums.dz =
        Tensor::zeros({values.size(0) * blocks, 2}, DType::kF64, MemoryKind::kWorkspace, stream);
  }
  run_resolvent(gradients.values, dg, input, spec, sums, stream);
  if (simulated(stream)) return;
  real == DType::kF64 ? finish_sums<double>(gradients, sums, input)
                      : finish_sums<float>(gradients, sums, input);
}

}  // namespace hybrid_trainer::kernels::cpu
