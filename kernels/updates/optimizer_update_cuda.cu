#include "kernels/elementwise/map.cuh"
#include "kernels/quantized/quantized_block.cuh"
#include "kernels/updates/optimizer_update.h"
#include "kernels/updates/update_step.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

constexpr int kPack = kPackSize<float>;

/// Updates weights with `next`, and copies them to compute_copy if it is not null.
template <class Next>
struct UpdateWeights {
  float* w;
  BFloat16* compute_copy;  // or null
  Next next;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float weights[N];
    load_pack(weights, w + i);
    next(weights, i);
    store_pack(w + i, weights);
    if (compute_copy != nullptr) store_pack(compute_copy + i, weights);
  }
};

template <class Next, class... Pointers>
void update_weights(const Stream& stream, const char* name, const Tensor& w,
                    const Tensor& compute_copy, const Next& next, Pointers... begins) {
  const UpdateWeights<Next> body{w.data<float>(), optional_data<BFloat16>(compute_copy), next};
  for_packs<kPack>(stream, name, w.elements(), body, body.w, body.compute_copy, begins...);
}

/// T is the type of the moments, f32 or bf16.
template <class T>
struct AdamW {
  T* m;
  T* v;
  const float* g;
  AdamWStep step;
  std::uint32_t key;
  std::int64_t before;  // first_element of the settings
  template <int N>
  __device__ void operator()(float (&weights)[N], std::int64_t i) const {
    float mean[N], square[N], gradient[N];
    load_pack(mean, m + i);
    load_pack(square, v + i);
    load_pack(gradient, g + i);
    Pack<T, N> means, squares;
    for (int k = 0; k < N; ++k) {
      weights[k] = step(weights[k], gradient[k], mean[k], square[k]);
      const std::uint32_t random = std::is_same_v<T, float> ? 0 : random_bits(key, before + i + k);
      store_moment(&means.values[k], mean[k], random);
      store_moment(&squares.values[k], square[k], random >> 16);
    }
    *reinterpret_cast<Pack<T, N>*>(m + i) = means;
    *reinterpret_cast<Pack<T, N>*>(v + i) = squares;
  }
};

struct AdamWRow {
  float* w;
  BFloat16* compute_copy;  // or null
  void* m;
  void* v;
  const float* g;
  std::int64_t elements;
  std::int64_t before;
  AdamWStep step;
  std::uint32_t key;
  unsigned int first_block;

  AdamWRow() = default;
  AdamWRow(const AdamWUpdate& u, unsigned int first)
      : w(u.w.data<float>()),
        compute_copy(optional_data<BFloat16>(u.compute_copy)),
        m(u.m.raw()),
        v(u.v.raw()),
        g(u.g.data<float>()),
        elements(u.w.elements()),
        before(u.settings.first_element),
        step(u.settings),
        key(u.settings.rounding_key),
        first_block(first) {}
};

constexpr unsigned int kAdamWThreads = 256;
constexpr std::int64_t kAdamWBlock = 4 * kAdamWThreads * kPack;  // elements

/// Tensors of one launch, passed as kernel arguments, of which every device accepts 4 KiB.
struct AdamWTable {
  static constexpr int kMax = 40;
  AdamWRow rows[kMax];
  int count = 0;
};
static_assert(sizeof(AdamWTable) <= 4096);

/// Each block updates a part of one tensor, found by the block's index.
template <class T>
__global__ void adamw_updates_kernel(const AdamWTable table) {
  int at = 0;
  for (int last = table.count - 1; at < last;) {
    const int middle = (at + last + 1) / 2;
    if (table.rows[middle].first_block <= blockIdx.x) {
      at = middle;
    } else {
      last = middle - 1;
    }
  }
  const AdamWRow& row = table.rows[at];
  const UpdateWeights<AdamW<T>> body{
      row.w,
      row.compute_copy,
      {static_cast<T*>(row.m), static_cast<T*>(row.v), row.g, row.step, row.key, row.before}};
  const std::int64_t begin = (blockIdx.x - row.first_block) * kAdamWBlock;
  const std::int64_t end = begin + kAdamWBlock < row.elements ? begin + kAdamWBlock : row.elements;
  for (std::int64_t i = begin + threadIdx.x * kPack; i < end; i += kAdamWThreads * kPack) {
    if (i + kPack <= end) {
      body.template at<kPack>(i);
    } else {
      for (std::int64_t k = i; k < end; ++k) body.template at<1>(k);
    }
  }
}

/// Collects tensors with moments of type T and updates them, as many per launch as fit.
template <class T>
class AdamWLaunches {
 public:
  explicit AdamWLaunches(const Stream& stream) : stream_(stream) {}

  void add(const AdamWUpdate& update) {
    if (update.w.elements() == 0) return;
    if (table_.count == AdamWTable::kMax) start();
    table_.rows[table_.count] = AdamWRow(update, blocks_);
    ++table_.count;
    blocks_ += static_cast<unsigned int>((update.w.elements() + kAdamWBlock - 1) / kAdamWBlock);
  }
  void start() {
    launch(stream_, "adamw_updates", adamw_updates_kernel<T>,
           Grid{.x = blocks_, .threads = kAdamWThreads}, table_);
    table_.count = 0;
    blocks_ = 0;
  }

 private:
  const Stream& stream_;
  AdamWTable table_;
  unsigned int blocks_ = 0;
};

struct AdamWDirection {
  AdamFactors factors;
  __device__ float operator()(float m, float v) const { return factors.change(m, v); }
};

struct Sgd {
  float* m;  // null without momentum
  const float* g;
  float learning_rate;
  float momentum;
  float gradient_scale;
  float kept;
  template <int N>
  __device__ void operator()(float (&weights)[N], std::int64_t i) const {
    float next[N];
    load_pack(next, g + i);
    for (int k = 0; k < N; ++k) next[k] *= gradient_scale;
    if (m != nullptr) {
      float velocity[N];
      load_pack(velocity, m + i);
      for (int k = 0; k < N; ++k) next[k] = multiply_add(momentum, velocity[k], next[k]);
      store_pack(m + i, next);
    }
    for (int k = 0; k < N; ++k)
      weights[k] = multiply_add(-learning_rate, next[k], weights[k] * kept);
  }
};

/// T is the type of the momentum, f32 or bf16.
template <class T>
struct Lion {
  T* m;
  const float* g;
  LionStep step;
  template <int N>
  __device__ void operator()(float (&weights)[N], std::int64_t i) const {
    float last[N], gradient[N];
    load_pack(last, m + i);
    load_pack(gradient, g + i);
    Pack<T, N> kept;
    for (int k = 0; k < N; ++k) {
      weights[k] = step(weights[k], gradient[k], last[k]);
      const std::uint32_t random =
          std::is_same_v<T, float> ? 0
                                   : random_bits(step.s.rounding_key, step.s.first_element + i + k);
      store_moment(&kept.values[k], last[k], random);
    }
    *reinterpret_cast<Pack<T, N>*>(m + i) = kept;
  }
};

__device__ inline float sign_of(float m) { return LionStep::sign(m); }
__device__ inline float sign_of(BFloat16 m) { return LionStep::sign(load(&m)); }
/// Returns the sign of the value that a code of the signed map represents.
__device__ inline float sign_of(std::uint8_t code) {
  return static_cast<float>(code > 0) - 2.0f * static_cast<float>(code > 128);
}

template <class T>
struct LionDirection {
  float* direction;
  const T* m;
  float learning_rate;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const Pack<T, N> momentum = *reinterpret_cast<const Pack<T, N>*>(m + i);
    float values[N];
    for (int k = 0; k < N; ++k) values[k] = -learning_rate * sign_of(momentum.values[k]);
    store_pack(direction + i, values);
  }
};

struct MuonMomentum {
  float* u;
  float* m;
  const float* g;
  const double* squares;
  float momentum;
  float gradient_scale;
  template <int N>
  __device__ void at(std::int64_t i) const {
    const bool moves = *squares != 0;
    float velocity[N], out[N];
    load_pack(velocity, m + i);
    load_pack(out, g + i);
    for (int k = 0; k < N; ++k) {
      const float scaled = out[k] * gradient_scale;
      velocity[k] = multiply_add(momentum, velocity[k], scaled);
      out[k] = moves ? multiply_add(momentum, velocity[k], scaled) : 0.0f;
    }
    store_pack(m + i, velocity);
    store_pack(u + i, out);
  }
};

struct DecayedStep {
  const float* u;
  float step_size;
  float decay_factor;
  template <int N>
  __device__ void operator()(float (&weights)[N], std::int64_t i) const {
    float direction[N];
    load_pack(direction, u + i);
    for (int k = 0; k < N; ++k)
      weights[k] = multiply_add(-step_size, direction[k], weights[k] * decay_factor);
  }
};

}  // namespace

void adamw_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g,
                  const Tensor& compute_copy, const AdamWSettings& settings, const Stream& stream) {
  visit_real(m.dtype(), [&]<class T>(T) {
    const AdamW<T> next{m.data<T>(),         v.data<T>(),           g.data<float>(),
                        AdamWStep(settings), settings.rounding_key, settings.first_element};
    update_weights(stream, "adamw_update", w, compute_copy, next, next.m, next.v, next.g);
  });
}

void adamw_updates(const std::vector<AdamWUpdate>& updates, const Stream& stream) {
  AdamWLaunches<float> wide(stream);
  AdamWLaunches<BFloat16> rounded(stream);
  for (const AdamWUpdate& u : updates) {
    if (!packs_aligned(u.w.raw(), u.compute_copy.raw(), u.m.raw(), u.v.raw(), u.g.raw())) {
      cuda::adamw_update(u.w, u.m, u.v, u.g, u.compute_copy, u.settings, stream);
    } else if (u.m.dtype() == DType::kF32) {
      wide.add(u);
    } else {
      rounded.add(u);
    }
  }
  wide.start();
  rounded.start();
}

void adamw_direction(const Tensor& direction, const Tensor& m, const Tensor& v,
                     const AdamWSettings& settings, const Stream& stream) {
  visit_real(m.dtype(), [&]<class T>(T) {
    map<float, T>(stream, "adamw_direction", AdamWDirection{AdamFactors(settings)}, direction, m,
                  v);
  });
}

void sgd_update(const Tensor& w, const Tensor& m, const Tensor& g, const Tensor& compute_copy,
                float learning_rate, float momentum, float weight_decay, float gradient_scale,
                const Stream& stream) {
  const Sgd next{momentum == 0.0f ? nullptr : m.data<float>(),
                 g.data<float>(),
                 learning_rate,
                 momentum,
                 gradient_scale,
                 1.0f - learning_rate * weight_decay};
  update_weights(stream, "sgd_update", w, compute_copy, next, next.m, next.g);
}

void lion_update(const Tensor& w, const Tensor& m, const Tensor& g, const Tensor& compute_copy,
                 const LionSettings& settings, const Stream& stream) {
  visit_real(m.dtype(), [&]<class T>(T) {
    const Lion<T> next{m.data<T>(), g.data<float>(), LionStep(settings)};
    update_weights(stream, "lion_update", w, compute_copy, next, next.m, next.g);
  });
}

void lion_direction(const Tensor& direction, const Tensor& m, float learning_rate,
                    const Stream& stream) {
  const auto write = [&](const auto* momentum) {
    const LionDirection<std::remove_cvref_t<decltype(*momentum)>> body{direction.data<float>(),
                                                                       momentum, learning_rate};
    for_packs<kPack>(stream, "lion_direction", direction.elements(), body, body.direction, body.m);
  };
  if (m.dtype() == DType::kU8) return write(m.data<std::uint8_t>());
  visit_real(m.dtype(), [&]<class T>(T) { write(m.data<T>()); });
}

void muon_momentum(const Tensor& u, const Tensor& m, const Tensor& g, const Tensor& squares,
                   float momentum, float gradient_scale, const Stream& stream) {
  const MuonMomentum body{u.data<float>(),        m.data<float>(), g.data<float>(),
                          squares.data<double>(), momentum,        gradient_scale};
  for_packs<kPack>(stream, "muon_momentum", u.elements(), body, body.u, body.m, body.g);
}

void decayed_step(const Tensor& w, const Tensor& u, const Tensor& compute_copy, float step_size,
                  float decay_factor, const Stream& stream) {
  const DecayedStep next{u.data<float>(), step_size, decay_factor};
  update_weights(stream, "decayed_step", w, compute_copy, next, next.u);
}

namespace {

struct Moments : QuantizedPointers {
  using QuantizedPointers::QuantizedPointers;
  template <int N>
  __device__ void decode(float (&m)[kPerLane], float (&v)[kPerLane], std::int64_t block,
                         std::int64_t begin, int count, const SharedTables& tables) const {
    decode_lane<N>(m, m_codes + begin, m_scales[block], count, tables.of_signed);
    decode_lane<N>(v, v_codes + begin, v_scales[block], count, tables.of_unsigned);
  }
  template <int N>
  __device__ void encode(const float (&m)[kPerLane], const float (&v)[kPerLane], std::int64_t block,
                         std::int64_t begin, int count, const SharedTables& tables) const {
    encode_lane<N>(m_codes + begin, m_scales + block, m, count, tables.of_signed);
    encode_lane<N>(v_codes + begin, v_scales + block, v, count, tables.of_unsigned);
  }
};

struct Update {
  float* w;
  BFloat16* compute_copy;  // or null
  const float* g;
  Moments moments;
  AdamWStep step;
  template <int N>
  __device__ void at(std::int64_t block, std::int64_t begin, int count,
                     const SharedTables& tables) const {
    float weight[kPerLane], gradient[kPerLane], m[kPerLane], v[kPerLane];
    load_lane<N>(weight, w + begin, count);
    load_lane<N>(gradient, g + begin, count);
    moments.decode<N>(m, v, block, begin, count, tables);
    for (int k = 0; k < kPerLane; ++k) weight[k] = step(weight[k], gradient[k], m[k], v[k]);
    store_lane<N>(w + begin, weight, count);
    if (compute_copy != nullptr) store_lane<N>(compute_copy + begin, weight, count);
    moments.encode<N>(m, v, block, begin, count, tables);
  }
};

struct Direction {
  float* direction;
  Moments moments;
  AdamFactors factors;
  template <int N>
  __device__ void at(std::int64_t block, std::int64_t begin, int count,
                     const SharedTables& tables) const {
    float m[kPerLane], v[kPerLane];
    moments.decode<N>(m, v, block, begin, count, tables);
    for (int k = 0; k < kPerLane; ++k) m[k] = factors.change(m[k], v[k]);
    store_lane<N>(direction + begin, m, count);
  }
};

struct LionUpdate {
  float* w;
  BFloat16* compute_copy;  // or null
  const float* g;
  std::uint8_t* codes;
  float* scales;
  LionStep step;
  template <int N>
  __device__ void at(std::int64_t block, std::int64_t begin, int count,
                     const SharedTables& tables) const {
    float weight[kPerLane], gradient[kPerLane], m[kPerLane];
    load_lane<N>(weight, w + begin, count);
    load_lane<N>(gradient, g + begin, count);
    decode_lane<N>(m, codes + begin, scales[block], count, tables.of_signed);
    for (int k = 0; k < kPerLane; ++k) weight[k] = step(weight[k], gradient[k], m[k]);
    store_lane<N>(w + begin, weight, count);
    if (compute_copy != nullptr) store_lane<N>(compute_copy + begin, weight, count);
    encode_lane<N>(codes + begin, scales + block, m, count, tables.of_signed);
  }
};

}  // namespace

void adamw_update_8bit(const Tensor& w, const QuantizedMoments& moments, const Tensor& g,
                       const Tensor& compute_copy, const AdamWSettings& settings,
                       const Stream& stream) {
  const Update body{w.data<float>(), optional_data<BFloat16>(compute_copy), g.data<float>(),
                    Moments(moments), AdamWStep(settings)};
  for_quantized_blocks(stream, "adamw_update_8bit", w.elements(), body, body.w, body.compute_copy,
                       body.g, body.moments.m_codes, body.moments.v_codes);
}

void adamw_direction_8bit(const Tensor& direction, const QuantizedMoments& moments,
                          const AdamWSettings& settings, const Stream& stream) {
  const Direction body{direction.data<float>(), Moments(moments), AdamFactors(settings)};
  for_quantized_blocks(stream, "adamw_direction_8bit", direction.elements(), body, body.direction,
                       body.moments.m_codes, body.moments.v_codes);
}

void lion_update_8bit(const Tensor& w, const Tensor& m_codes, const Tensor& m_scales,
                      const Tensor& g, const Tensor& compute_copy, const LionSettings& settings,
                      const Stream& stream) {
  const LionUpdate body{w.data<float>(),        optional_data<BFloat16>(compute_copy),
                        g.data<float>(),        m_codes.data<std::uint8_t>(),
                        m_scales.data<float>(), LionStep(settings)};
  for_quantized_blocks(stream, "lion_update_8bit", w.elements(), body, body.w, body.compute_copy,
                       body.g, body.codes);
}

}  // namespace hybrid_trainer::kernels::cuda
