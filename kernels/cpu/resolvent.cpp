#include "hybrid_trainer/kernels/resolvent.h"

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace hybrid_trainer::kernels::cpu {
namespace {

constexpr std::int64_t kResolventLanes = 16;  // matrices that one task goes through side by side

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

/// A number a matrix: real and imaginary parts apart, so that loops over lanes are vectors.
template <class Real>
struct Lanes {
  Real re[kResolventLanes] = {}, im[kResolventLanes] = {};
};

/// One sequence and up to kResolventLanes of its matrices.
template <class Real, class T>
struct ResolventTask {
  std::int64_t tokens, matrices, first, lanes, columns;
  const T* values;  // of the sequence and the first lane; rows of `columns`
  const T* dg;      // of the sequence, or null
  T* to;            // g of the sequence or dvalues as values, or null
  const Real *above, *below;
  const std::int32_t* positions;
  Real z_re, z_im, shift, limit;
  Real* scratch;        // tokens·4·kResolventLanes
  Real* off_diagonals;  // (tokens − 1, M), or null: what both gradients share
  double* dz;           // 2, or null

  /// b·c between token − 1 and token; 0 where a document begins.
  Real joined(std::int64_t token, std::int64_t m) const {
    return above == nullptr ? Real{1}
                            : above[(token - 1) * matrices + first + m] *
                                  below[(token - 1) * matrices + first + m];
  }
  bool begins(std::int64_t token) const {
    return token == 0 || token == tokens || (positions != nullptr && positions[token] == 0);
  }
  void diagonal(std::int64_t token, Lanes<Real>& s) const {
    const T* const v = values + token * columns;
#pragma omp simd
    for (std::int64_t m = 0; m < lanes; ++m) {
      const Real value = real_of<Real>(v + m);
      s.re[m] = (value > limit ? limit : value < -limit ? -limit : value) + shift - z_re;
      s.im[m] = -z_im;
    }
  }
  /// The conjugate of the gradient of G.
  void seed(std::int64_t token, Lanes<Real>& q) const {
    const T* const from = dg + token * 2 * matrices + first;
#pragma omp simd
    for (std::int64_t m = 0; m < lanes; ++m) {
      q.re[m] = real_of<Real>(from + m);
      q.im[m] = -real_of<Real>(from + matrices + m);
    }
  }
  Real* kept(std::int64_t token) const { return scratch + token * 4 * kResolventLanes; }

  /// pivot = s − k/pivot; where `sum` is there also sum = (sum + q)·k/pivot², of the pivot before.
  void advance(Lanes<Real>& pivot, const Lanes<Real>& s, std::int64_t joint, Lanes<Real>* sum,
               const Lanes<Real>& q) const {
    const bool apart = begins(joint);
#pragma omp simd
    for (std::int64_t m = 0; m < lanes; ++m) {
      const Real k = apart ? Real{0} : joined(joint, m);
      const Real x = apart ? Real{1} : pivot.re[m], y = apart ? Real{0} : pivot.im[m];
      const Real square = x * x + y * y, re = x / square, im = -y / square;
      if (sum != nullptr) {
        const Real a = sum->re[m] + q.re[m], b = sum->im[m] + q.im[m];
        const Real c = a * re - b * im, d = a * im + b * re;
        sum->re[m] = apart ? Real{0} : k * (c * re - d * im);
        sum->im[m] = apart ? Real{0} : k * (c * im + d * re);
      }
      pivot.re[m] = s.re[m] - k * re;
      pivot.im[m] = s.im[m] - k * im;
    }
  }

  /// Pivots from the last token on, and where there is a gradient the sums of later tokens.
  void from_the_end() const {
    Lanes<Real> rho, s, q, later;
    for (std::int64_t i = tokens - 1; i >= 0; --i) {
      diagonal(i, s);
      if (dg != nullptr && i + 1 < tokens) seed(i + 1, q);
      advance(rho, s, i + 1, dg != nullptr ? &later : nullptr, q);
      Real* const to_keep = kept(i);
#pragma omp simd
      for (std::int64_t m = 0; m < lanes; ++m) {
        to_keep[m] = rho.re[m];
        to_keep[kResolventLanes + m] = rho.im[m];
        to_keep[2 * kResolventLanes + m] = later.re[m];
        to_keep[3 * kResolventLanes + m] = later.im[m];
      }
    }
  }
  /// g = 1/(δ + ρ − s).
  void invert(Lanes<Real>& g, const Lanes<Real>& delta, const Lanes<Real>& s,
              const Real* rho) const {
#pragma omp simd
    for (std::int64_t m = 0; m < lanes; ++m) {
      const Real x = delta.re[m] + rho[m] - s.re[m],
                 y = delta.im[m] + rho[kResolventLanes + m] - s.im[m], square = x * x + y * y;
      g.re[m] = x / square;
      g.im[m] = -y / square;
    }
  }
  void forward() const {
    from_the_end();
    Lanes<Real> delta, s, g;
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

  /// S = g²·(earlier + q + later), whose negative real part is the gradient of v.
  void write_values(std::int64_t token, const Lanes<Real>& g, const Lanes<Real>& earlier,
                    const Lanes<Real>& q, double (&sums)[2][kResolventLanes]) const {
    const Real* const later = kept(token) + 2 * kResolventLanes;
    const T* const v = values + token * columns;
    T* const out = to == nullptr ? nullptr : to + token * columns;
#pragma omp simd
    for (std::int64_t m = 0; m < lanes; ++m) {
      const Real a = earlier.re[m] + q.re[m] + later[m],
                 b = earlier.im[m] + q.im[m] + later[kResolventLanes + m];
      const Real re = g.re[m] * g.re[m] - g.im[m] * g.im[m], im = 2 * g.re[m] * g.im[m];
      const Real s_re = re * a - im * b, s_im = re * b + im * a, value = real_of<Real>(v + m);
      sums[0][m] += static_cast<double>(s_re);
      sums[1][m] -= static_cast<double>(s_im);
      if (out != nullptr) put_real(out + m, value > limit || value < -limit ? Real{0} : -s_re);
    }
  }
  /// Re[G_{j−1}·G_j·((A + q)_{j−1}/δ_{j−1} + (B + q)_j/ρ_j)], of which b's gradient is c times.
  void write_off_diagonal(std::int64_t token, const Lanes<Real>& before, const Lanes<Real>& g,
                          const Lanes<Real>& lower, const Lanes<Real>& q) const {
    const Real* const rho = kept(token);
    Real* const out = off_diagonals + (token - 1) * matrices + first;
    const bool apart = begins(token);
#pragma omp simd
    for (std::int64_t m = 0; m < lanes; ++m) {
      const Real x = rho[m], y = rho[kResolventLanes + m], square = x * x + y * y;
      const Real a = rho[2 * kResolventLanes + m] + q.re[m],
                 b = rho[3 * kResolventLanes + m] + q.im[m];
      const Real re = lower.re[m] + (a * x + b * y) / square,
                 im = lower.im[m] + (b * x - a * y) / square;
      const Real both_re = before.re[m] * g.re[m] - before.im[m] * g.im[m],
                 both_im = before.re[m] * g.im[m] + before.im[m] * g.re[m];
      out[m] = apart ? Real{0} : both_re * re - both_im * im;
    }
  }
  /// (A + q)/δ.
  void divide(Lanes<Real>& lower, const Lanes<Real>& earlier, const Lanes<Real>& q,
              const Lanes<Real>& delta) const {
#pragma omp simd
    for (std::int64_t m = 0; m < lanes; ++m) {
      const Real x = delta.re[m], y = delta.im[m], square = x * x + y * y;
      const Real a = earlier.re[m] + q.re[m], b = earlier.im[m] + q.im[m];
      lower.re[m] = (a * x + b * y) / square;
      lower.im[m] = (b * x - a * y) / square;
    }
  }
  void backward() const {
    from_the_end();
    Lanes<Real> delta, s, g, before, earlier, q, lower;
    double sums[2][kResolventLanes] = {};
    for (std::int64_t i = 0; i < tokens; ++i) {
      diagonal(i, s);
      advance(delta, s, i, &earlier, q);  // with q of the token before
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

/// What tasks write that is then summed.
struct ResolventSums {
  Tensor off_diagonals;  // (B, N − 1, M)
  Tensor dz;             // (tasks, 2) f64
};

/// to: g, or the gradient of v for dg.
template <class Real, class T>
void run_resolvent(const Tensor& to, const Tensor& dg, const ResolventInput& input,
                   const ResolventSpec& spec, const ResolventSums& sums, const Stream& stream) {
  const std::int64_t tokens = input.values.size(1), matrices = (dg ? dg : to).size(2) / 2,
                     columns = input.values.size(2);
  const std::int64_t blocks = (matrices + kResolventLanes - 1) / kResolventLanes;
  const std::int64_t room = tokens * 4 * kResolventLanes;
  const Tensor scratch = empty_workspace(threads() * room, DTypeOf<Real>::value, stream);
  if (simulated(stream) || tokens * matrices * input.values.size(0) == 0) return;
  const auto at = [](const Tensor& tensor, auto real, std::int64_t offset) {
    return tensor ? tensor.data<decltype(real)>() + offset : nullptr;
  };
  parallel_items(input.values.size(0) * blocks, [&](std::int64_t worker, std::int64_t item) {
    const std::int64_t sequence = item / blocks, first = item % blocks * kResolventLanes;
    const ResolventTask<Real, T> task{
        .tokens = tokens,
        .matrices = matrices,
        .first = first,
        .lanes = std::min(kResolventLanes, matrices - first),
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

/// Calls run_resolvent for the types of the input.
void run_resolvent(const Tensor& to, const Tensor& dg, const ResolventInput& input,
                   const ResolventSpec& spec, const ResolventSums& sums, const Stream& stream) {
  if (input.values.dtype() == DType::kF64)
    return run_resolvent<double, double>(to, dg, input, spec, sums, stream);
  visit_real(input.values.dtype(), [&](auto real) {
    run_resolvent<float, decltype(real)>(to, dg, input, spec, sums, stream);
  });
}

/// to (+)= factor·the sum of all sequences' rows.
template <class Real>
void add_off_diagonal(const Tensor& to, const Tensor& factor, const Tensor& all, bool accumulate) {
  const std::int64_t elements = to.elements(),
                     sequences = elements == 0 ? 0 : all.elements() / elements;
  const Real* const from = all.data<Real>();
  const Real* const by = factor ? factor.data<Real>() : nullptr;
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
    const std::int64_t blocks = (dg.size(2) / 2 + kResolventLanes - 1) / kResolventLanes;
    sums.dz =
        Tensor::zeros({values.size(0) * blocks, 2}, DType::kF64, MemoryKind::kWorkspace, stream);
  }
  run_resolvent(gradients.values, dg, input, spec, sums, stream);
  if (simulated(stream)) return;
  real == DType::kF64 ? finish_sums<double>(gradients, sums, input)
                      : finish_sums<float>(gradients, sums, input);
}

}  // namespace hybrid_trainer::kernels::cpu
