#include "hybrid_trainer/kernels/normalization.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"
#include "kernels/backend/vector_math.h"

namespace hybrid_trainer::kernels::cpu {

namespace {

constexpr std::int64_t kChunkElements = 16 << 10;

/// The places of an example in chunks of equal size. The division depends only on the sizes.
struct PlaceChunks {
  explicit PlaceChunks(const Tensor& x, std::int64_t groups_)
      : batch(x.size(0)),
        places(x.size(1)),
        channels(x.size(2)),
        groups(groups_),
        count(std::clamp<std::int64_t>(places * channels / kChunkElements, 1, places)) {}
  std::int64_t begin(std::int64_t chunk) const { return places * chunk / count; }
  std::int64_t of_group() const { return channels / groups; }
  std::int64_t batch, places, channels, groups, count;
};

/// Mean of `count` numbers, and the sum of their squared distances from it.
struct GroupMoments {
  double count = 0, mean = 0, squares = 0;
  /// Adds the moments of more numbers. Source: Chan et al. 1979.
  void add(const GroupMoments& more) {
    const double total = count + more.count, distance = more.mean - mean;
    squares += more.squares + distance * distance * count * more.count / total;
    mean += distance * more.count / total;
    count = total;
  }
};

/// line[c] = the sum of term(value, c) over the rows.
template <class T, class Term>
inline void sum_places(float* line, const T* x, std::int64_t rows, std::int64_t channels,
                       const Term& term) {
  std::fill_n(line, channels, 0.0f);
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* const from = x + row * channels;
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) line[c] += term(load(from + c), c);
  }
}

inline double sum_of(const float* line, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(line[i]);
  return sum;
}

/// Computes a chunk's moments by group, around the mean rounded to float. `line`: 2·C floats.
template <class T>
inline void chunk_moments(GroupMoments* moments, float* line, const T* x, std::int64_t rows,
                          const PlaceChunks& of) {
  float* const means = line + of.channels;
  sum_places(line, x, rows, of.channels, [](float value, std::int64_t) { return value; });
  const auto count = static_cast<double>(rows * of.of_group());
  for (std::int64_t group = 0; group < of.groups; ++group) {
    const double mean = sum_of(line + group * of.of_group(), of.of_group()) / count;
    std::fill_n(means + group * of.of_group(), of.of_group(), static_cast<float>(mean));
    moments[group] = {count, mean, 0};
  }
  sum_places(line, x, rows, of.channels, [means](float value, std::int64_t c) {
    const float distance = value - means[c];
    return distance * distance;
  });
  for (std::int64_t group = 0; group < of.groups; ++group)
    moments[group].squares = sum_of(line + group * of.of_group(), of.of_group());
}

/// Calls body(worker, item, first element, rows) for each chunk of each example.
template <class Body>
void for_place_chunks(const PlaceChunks& of, const Body& body) {
  parallel_items(of.batch * of.count, [=](std::int64_t worker, std::int64_t item) {
    const std::int64_t chunk = item % of.count, begin = of.begin(chunk);
    body(worker, item, (item / of.count * of.places + begin) * of.channels,
         of.begin(chunk + 1) - begin);
  });
}

/// Statistics of an example's groups for each channel: means, then inverse standard deviations.
struct ChannelStatistics {
  float* values;  // 2·C per example
  std::int64_t channels;
  float* means(std::int64_t example) const { return values + example * 2 * channels; }
  float* rstds(std::int64_t example) const { return means(example) + channels; }
};

/// Combines the moments of the chunks in order; mean and rstd may be null.
void combine_moments(const ChannelStatistics& to, float* mean, float* rstd,
                     const GroupMoments* moments, const PlaceChunks& of, float epsilon) {
  for (std::int64_t i = 0; i < of.batch * of.groups; ++i) {
    const std::int64_t example = i / of.groups, group = i % of.groups;
    GroupMoments all;
    for (std::int64_t chunk = 0; chunk < of.count; ++chunk)
      all.add(moments[(example * of.count + chunk) * of.groups + group]);
    const auto middle = static_cast<float>(all.mean);
    const auto factor =
        static_cast<float>(1 / std::sqrt(all.squares / all.count + static_cast<double>(epsilon)));
    if (mean != nullptr) mean[i] = middle;
    if (rstd != nullptr) rstd[i] = factor;
    std::fill_n(to.means(example) + group * of.of_group(), of.of_group(), middle);
    std::fill_n(to.rstds(example) + group * of.of_group(), of.of_group(), factor);
  }
}

/// Sums that the gradient of x needs in addition to the statistics.
struct GroupNormSums {
  const PlaceChunks& of;
  float* chunks;   // per chunk, by channel: Σ dy, then Σ dy·normalized
  double* totals;  // sums per example, in the layout of a chunk
  float* means;  // per example, by channel: group means of dy·weight, then of dy·weight·normalized

  /// Adds the chunks in order and computes the means of the groups.
  void combine(const float* weight) const {
    const std::int64_t columns = 2 * of.channels;
    for (std::int64_t i = 0; i < of.batch * columns; ++i) {
      double total = 0;
      for (std::int64_t chunk = 0; chunk < of.count; ++chunk)
        total +=
            static_cast<double>(chunks[(i / columns * of.count + chunk) * columns + i % columns]);
      totals[i] = total;
    }
    const auto count = static_cast<double>(of.places * of.of_group());
    for (std::int64_t i = 0; i < of.batch * 2 * of.groups; ++i) {
      const std::int64_t begin = i * of.of_group(), channel = i % of.groups * of.of_group();
      double sum = 0;
      for (std::int64_t c = 0; c < of.of_group(); ++c)
        sum += totals[begin + c] * static_cast<double>(weight[channel + c]);
      std::fill_n(means + begin, of.of_group(), static_cast<float>(sum / count));
    }
  }
  void write(float* to, std::int64_t row, bool adds) const {
    for (std::int64_t c = 0; c < of.channels; ++c) {
      double total = 0;
      for (std::int64_t example = 0; example < of.batch; ++example)
        total += totals[(example * 2 + row) * of.channels + c];
      to[c] = (adds ? to[c] : 0.0f) + static_cast<float>(total);
    }
  }
};

/// Computes the sums Σ dy and Σ dy·normalized of a chunk, by channel.
template <class T>
inline void sum_gradients(float* plain, const T* dy, const T* x, std::int64_t rows,
                          std::int64_t channels, const float* means, const float* rstds) {
  float* const projected = plain + channels;
  std::fill_n(plain, 2 * channels, 0.0f);
  for (std::int64_t at = 0; at < rows * channels; at += channels) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float gradient = load(dy + at + c);
      plain[c] += gradient;
      projected[c] += gradient * ((load(x + at + c) - means[c]) * rstds[c]);
    }
  }
}

}  // namespace

void group_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, std::int64_t groups,
                        float epsilon, const Stream& stream) {
  const PlaceChunks of(x, groups);
  const std::int64_t channels = of.channels;
  const Tensor lines = empty_workspace(threads() * 2 * channels, DType::kF32, stream);
  const Tensor parts = empty_workspace(of.batch * of.count * groups * 3, DType::kF64, stream);
  const Tensor scales = empty_workspace(of.batch * 2 * channels, DType::kF32, stream);
  if (simulated(stream)) return;
  float* const line = lines.data<float>();
  auto* const moments = reinterpret_cast<GroupMoments*>(parts.data<double>());
  const ChannelStatistics statistics{scales.data<float>(), channels};
  const float *const gain = weight.data<float>(), *const shift = bias.data<float>();
  visit_real(x.dtype(), [&]<class T>(T) {
    T* const out = y.data<T>();
    const T* const in = x.data<T>();
    for_place_chunks(of, [=](std::int64_t worker, std::int64_t item, std::int64_t first,
                             std::int64_t rows) {
      chunk_moments(moments + item * of.groups, line + worker * 2 * channels, in + first, rows, of);
    });
    combine_moments(statistics, optional_data<float>(mean), optional_data<float>(rstd), moments, of,
                    epsilon);
    for_place_chunks(of, [=](std::int64_t, std::int64_t item, std::int64_t first,
                             std::int64_t rows) {
      const float *const means = statistics.means(item / of.count), *const rstds = statistics.rstds(
                                                                        item / of.count);
      for (std::int64_t at = first; at < first + rows * channels; at += channels) {
#pragma omp simd
        for (std::int64_t c = 0; c < channels; ++c)
          store(out + at + c, (load(in + at + c) - means[c]) * (rstds[c] * gain[c]) + shift[c]);
      }
    });
  });
}

void group_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         GradientMode mode, const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& rstd, const Tensor& weight, const Stream& stream) {
  const PlaceChunks of(x, mean.size(1));
  const std::int64_t channels = of.channels, columns = 2 * channels;
  const Tensor lines = empty_workspace(of.batch * of.count * columns, DType::kF32, stream);
  const Tensor totals = empty_workspace(of.batch * columns, DType::kF64, stream);
  const Tensor scales = empty_workspace(of.batch * 2 * columns, DType::kF32, stream);
  if (simulated(stream)) return;
  const ChannelStatistics statistics{scales.data<float>(), channels};
  const GroupNormSums sums{of, lines.data<float>(), totals.data<double>(),
                           scales.data<float>() + of.batch * columns};
  for (std::int64_t i = 0; i < of.batch * channels; ++i) {
    const std::int64_t example = i / channels, c = i % channels;
    const std::int64_t group = example * of.groups + c / of.of_group();
    statistics.means(example)[c] = mean.data<float>()[group];
    statistics.rstds(example)[c] = rstd.data<float>()[group];
  }
  const float* const gain = weight.data<float>();
  visit_real(x.dtype(), [&]<class T>(T) {
    T* const out = dx.data<T>();
    const T *const in = x.data<T>(), *const gradient = dy.data<T>();
    float *const chunks = sums.chunks, *const group_means = sums.means;
    for_place_chunks(
        of, [=](std::int64_t, std::int64_t item, std::int64_t first, std::int64_t rows) {
          sum_gradients(chunks + item * columns, gradient + first, in + first, rows, channels,
                        statistics.means(item / of.count), statistics.rstds(item / of.count));
        });
    sums.combine(gain);
    for_place_chunks(
        of, [=](std::int64_t, std::int64_t item, std::int64_t first, std::int64_t rows) {
          const std::int64_t example = item / of.count;
          const float *const means = statistics.means(example),
                             *const rstds = statistics.rstds(example),
                             *const sum = group_means + example * columns,
                             *const projection = sum + channels;
          for (std::int64_t at = first; at < first + rows * channels; at += channels) {
#pragma omp simd
            for (std::int64_t c = 0; c < channels; ++c) {
              const float normalized = (load(in + at + c) - means[c]) * rstds[c];
              store(out + at + c,
                    (load(gradient + at + c) * gain[c] - sum[c] - normalized * projection[c]) *
                        rstds[c]);
            }
          }
        });
  });
  const bool adds = mode == GradientMode::kAccumulate;
  sums.write(dbias.data<float>(), 0, adds);
  sums.write(dweight.data<float>(), 1, adds);
}

}  // namespace hybrid_trainer::kernels::cpu
