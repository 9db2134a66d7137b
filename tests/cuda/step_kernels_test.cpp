// The other kernels at real shapes: bit-identical repetitions, and rows against double precision.

#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/kernels/loss.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "hybrid_trainer/kernels/normalization.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "kernels/updates/optimizer_update.h"
#include "tests/cuda/step_case.h"

namespace hybrid_trainer::kernels {
namespace {

using CudaStepKernels = StepCase;

/// One head's queries, keys and values, and attention over them, in double precision.
class Head {
 public:
  /// qkv: one sequence, (T, 3·C).
  Head(const Tensor& qkv, int heads, int head)
      : length_(static_cast<std::size_t>(qkv.size(0))),
        width_(static_cast<std::size_t>(qkv.size(1) / 3 / heads)),
        q_(part_of(qkv, 0, head)),
        k_(part_of(qkv, 1, head)),
        v_(part_of(qkv, 2, head)) {}

  /// Attention weights of the query at t for the keys up to t.
  Values weights(std::size_t t) const {
    Values scores(t + 1);
    double largest = -HUGE_VAL, sum = 0;
    for (std::size_t s = 0; s <= t; ++s) {
      scores[s] = dot(q_, t, k_, s) / std::sqrt(static_cast<double>(width_));
      largest = std::max(largest, scores[s]);
    }
    for (double& score : scores) sum += score = std::exp(score - largest);
    for (double& score : scores) score /= sum;
    return scores;
  }
  Values forward(std::size_t t) const {
    const Values p = weights(t);
    Values y(width_, 0);
    for (std::size_t s = 0; s <= t; ++s) add(y, p[s], v_, s);
    return y;
  }
  /// Gradients of query t, and of key and value s, for the gradient dy of the entire head.
  Values dq(std::size_t t, const Values& dy) const {
    Values result(width_, 0);
    const Values ds = score_gradients(t, dy);
    for (std::size_t s = 0; s <= t; ++s) add(result, ds[s], k_, s);
    return result;
  }
  Values dk(std::size_t s, const Values& dy) const {
    Values result(width_, 0);
    for (std::size_t t = s; t < length_; ++t) add(result, score_gradients(t, dy)[s], q_, t);
    return result;
  }
  Values dv(std::size_t s, const Values& dy) const {
    Values result(width_, 0);
    for (std::size_t t = s; t < length_; ++t) add(result, weights(t)[s], dy, t);
    return result;
  }
  /// Row t of one head in a matrix (T, parts·C).
  static Values head_row(const Tensor& matrix, std::int64_t t, std::int64_t begin,
                         std::size_t width) {
    const Values row = row_of(matrix, t);
    return {row.begin() + begin, row.begin() + begin + static_cast<std::int64_t>(width)};
  }

 private:
  Values part_of(const Tensor& qkv, int part, int head) const {
    Values all;
    for (std::size_t t = 0; t < length_; ++t) {
      const std::int64_t begin =
          part * (qkv.size(1) / 3) + head * static_cast<std::int64_t>(width_);
      const Values row = head_row(qkv, static_cast<std::int64_t>(t), begin, width_);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }
  double dot(const Values& x, std::size_t i, const Values& y, std::size_t j) const {
    double sum = 0;
    for (std::size_t d = 0; d < width_; ++d) sum += x[i * width_ + d] * y[j * width_ + d];
    return sum;
  }
  void add(Values& to, double factor, const Values& x, std::size_t i) const {
    for (std::size_t d = 0; d < width_; ++d) to[d] += factor * x[i * width_ + d];
  }
  Values score_gradients(std::size_t t, const Values& dy) const {
    const Values p = weights(t);
    Values ds(t + 1);
    double mean = 0;
    for (std::size_t s = 0; s <= t; ++s) mean += p[s] * (ds[s] = dot(dy, t, v_, s));
    for (std::size_t s = 0; s <= t; ++s)
      ds[s] = p[s] * (ds[s] - mean) / std::sqrt(static_cast<double>(width_));
    return ds;
  }

  std::size_t length_, width_;
  Values q_, k_, v_;  // (T, head size)
};

TEST_F(CudaStepKernels, AttentionMatchesReference) {
  const std::int64_t b = sizes_.batch, t = sizes_.length, c = sizes_.channels();
  const auto width = static_cast<std::size_t>(sizes_.head_size);
  const Tensor qkv = noise({b, t, 3 * c}, kStepType, 1, 2), y = noise({b, t, c}, kStepType, 2);
  const Tensor lse = noise({b, sizes_.heads, t}, DType::kF32, 3);
  const Tensor dy = noise({b, t, c}, kStepType, 4), dqkv = noise({b, t, 3 * c}, kStepType, 5);
  const Tensor found = same_each_time(
      {y, lse}, [&] { attention_forward(y, lse, qkv, Tensor(), sizes_.heads, stream_); })[0];
  const Tensor back = same_each_time({dqkv}, [&] {
    attention_backward(dqkv, dy, y, lse, qkv, Tensor(), sizes_.heads, stream_);
  })[0];
  for (const std::int64_t sequence : {std::int64_t{0}, b - 1}) {
    const int head = sequence == 0 ? 0 : sizes_.heads - 1;
    const std::int64_t begin = head * sizes_.head_size;
    const auto one = [&](const Tensor& all, std::int64_t columns) {
      return all.rows(sequence, sequence + 1).view({t, columns});
    };
    const Head wanted(one(on_host(qkv), 3 * c), sizes_.heads, head);
    const Tensor dy_host = one(on_host(dy), c);
    Values dy_head;
    for (std::int64_t row = 0; row < t; ++row) {
      const Values part = Head::head_row(dy_host, row, begin, width);
      dy_head.insert(dy_head.end(), part.begin(), part.end());
    }
    const auto compare = [&](const Tensor& matrix, std::int64_t row, std::int64_t from,
                             const Values& values, double tolerance, const char* what) {
      const Values got = Head::head_row(matrix, row, from, width);
      for (std::size_t i = 0; i < width; ++i) {
        EXPECT_NEAR(got[i], values[i], tolerance * (1 + std::abs(values[i])))
            << what << ", sequence " << sequence << ", row " << row;
      }
    };
    for (const std::int64_t row : some_of(t)) {
      const auto at = static_cast<std::size_t>(row);
      const Tensor dqkv_one = one(back, 3 * c);
      compare(one(found, c), row, begin, wanted.forward(at), 1e-2, "y");
      compare(dqkv_one, row, begin, wanted.dq(at, dy_head), 4e-2, "dq");
      compare(dqkv_one, row, c + begin, wanted.dk(at, dy_head), 4e-2, "dk");
      compare(dqkv_one, row, 2 * c + begin, wanted.dv(at, dy_head), 4e-2, "dv");
    }
  }
}

class CudaStepLayerNorm : public StepCase {
 protected:
  /// Normalizes a row; also returns the reciprocal standard deviation.
  std::pair<Values, double> normal(Values row) const {
    const auto count = static_cast<double>(row.size());
    double sum = 0, squares = 0;
    for (const double value : row) sum += value;
    for (double& value : row) {
      value -= sum / count;
      squares += value * value;
    }
    const double scale = 1 / std::sqrt(squares / count + 1e-5);
    for (double& value : row) value *= scale;
    return {row, scale};
  }
  void forward() const { layer_norm_forward(y_, mean_, rstd_, x_, weight_, bias_, 1e-5f, stream_); }
  void backward() const {
    layer_norm_backward(dx_, GradientMode::kOverwrite, dweight_, dbias_, GradientMode::kOverwrite,
                        dy_, x_, mean_, rstd_, weight_, stream_);
  }

  const std::int64_t n_ = sizes_.rows(), c_ = sizes_.channels();
  const Tensor x_ = noise({n_, c_}, kStepType, 1, 3), dy_ = noise({n_, c_}, kStepType, 2);
  const Tensor weight_ = noise({c_}, DType::kF32, 3), bias_ = noise({c_}, DType::kF32, 4);
  const Tensor y_ = noise({n_, c_}, kStepType, 5), dx_ = noise({n_, c_}, kStepType, 6);
  const Tensor mean_ = noise({n_}, DType::kF32, 7), rstd_ = noise({n_}, DType::kF32, 8);
  const Tensor dweight_ = noise({c_}, DType::kF32, 9), dbias_ = noise({c_}, DType::kF32, 10);
};

TEST_F(CudaStepLayerNorm, RowsMatchReference) {
  const Tensor found = same_each_time({y_, mean_, rstd_}, [&] { forward(); })[0];
  const Tensor back = same_each_time({dx_}, [&] { backward(); })[0];
  const Values w = values_of(on_host(weight_)), shift = values_of(on_host(bias_));
  for (const std::int64_t row : some_of(n_)) {
    const auto [hat, scale] = normal(values_of(on_host(x_.rows(row, row + 1))));
    const Values gradient = values_of(on_host(dy_.rows(row, row + 1)));
    Values wanted = hat, wanted_back = hat;
    double sum = 0, along = 0;
    for (std::size_t i = 0; i < hat.size(); ++i) {
      wanted[i] = hat[i] * w[i] + shift[i];
      sum += gradient[i] * w[i] / static_cast<double>(c_);
      along += gradient[i] * w[i] * hat[i] / static_cast<double>(c_);
    }
    for (std::size_t i = 0; i < hat.size(); ++i)
      wanted_back[i] = scale * (gradient[i] * w[i] - sum - hat[i] * along);
    expect_close(found.rows(row, row + 1), wanted, 1e-2, concat("y, row ", row));
    expect_close(back.rows(row, row + 1), wanted_back, 1e-2, concat("dx, row ", row));
  }
}

TEST_F(CudaStepLayerNorm, ParameterGradientsMatchReference) {
  forward();
  const Tensors found = same_each_time({dweight_, dbias_}, [&] { backward(); });
  Values weight_sum(static_cast<std::size_t>(c_), 0), bias_sum = weight_sum;
  const Tensor x = on_host(x_), dy = on_host(dy_);
  for (std::int64_t row = 0; row < n_; ++row) {
    const Values hat = normal(row_of(x, row)).first, gradient = row_of(dy, row);
    for (std::size_t i = 0; i < hat.size(); ++i) {
      bias_sum[i] += gradient[i];
      weight_sum[i] += gradient[i] * hat[i];
    }
  }
  expect_close(found[0], weight_sum, 1e-3, "dweight");
  expect_close(found[1], bias_sum, 1e-3, "dbias");
}

TEST_F(CudaStepKernels, CrossEntropyMatchesReference) {
  const std::int64_t n = sizes_.head_rows, v = sizes_.padded_vocabulary;
  constexpr float kScale = 0.25f;
  const Tensor from = noise({n, v}, kStepType, 1, 4), logits = noise({n, v}, kStepType, 2);
  const Tensor losses = noise({n}, DType::kF32, 3);
  const Tensor targets = copy_to(random_ids({n}, sizes_.vocabulary, 4, cpu_stream()), stream_);
  const Tensors found = same_each_time({losses, logits}, [&] {
    copy(logits, from, stream_);
    softmax_cross_entropy(losses, logits, targets, sizes_.vocabulary, kScale, stream_);
  });
  const Tensor targets_host = on_host(targets);
  for (const std::int64_t row : some_of(n)) {
    Values x = values_of(on_host(from.rows(row, row + 1)));
    const auto target = static_cast<std::size_t>(targets_host.data<std::int32_t>()[row]);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = i < static_cast<std::size_t>(sizes_.vocabulary) ? std::exp(x[i]) : 0;
      sum += x[i];
    }
    EXPECT_NEAR(found[0].data<float>()[row], std::log(sum) - std::log(x[target]), 1e-4) << row;
    for (double& value : x) value *= kScale / sum;
    x[target] -= kScale;
    expect_close(found[1].rows(row, row + 1), x, 2e-3, concat("row ", row));
  }
}

TEST_F(CudaStepKernels, EmbeddingAndBiasGradientsMatchReference) {
  const std::int64_t n = sizes_.rows(), c = sizes_.channels();
  const Tensor dy = noise({sizes_.batch, sizes_.length, c}, kStepType, 1);
  const Tensor tokens = copy_to(
      random_ids({sizes_.batch, sizes_.length}, sizes_.vocabulary, 2, cpu_stream()), stream_);
  const Tensor words = noise({sizes_.padded_vocabulary, c}, DType::kF32, 3);
  const Tensor places = noise({sizes_.length, c}, DType::kF32, 4),
               dbias = noise({c}, DType::kF32, 5);
  const Tensors found = same_each_time({words, places, dbias}, [&] {
    embedding_backward(words, GradientMode::kOverwrite, places, GradientMode::kOverwrite, dy,
                       tokens, stream_);
    bias_backward(dbias, dy.view({n, c}), GradientMode::kOverwrite, stream_);
  });
  const Tensor dy_host = on_host(dy).view({n, c}), ids = on_host(tokens);
  const auto columns = static_cast<std::size_t>(c);
  const auto sum_where = [&](const std::function<bool(std::int64_t)>& counts) {
    Values sum(columns, 0);
    for (std::int64_t row = 0; row < n; ++row) {
      if (!counts(row)) continue;
      const Values values = row_of(dy_host, row);
      for (std::size_t i = 0; i < columns; ++i) sum[i] += values[i];
    }
    return sum;
  };
  for (const std::int64_t row : some_of(n)) {
    const std::int32_t token = ids.data<std::int32_t>()[row];
    const std::int64_t place = row % sizes_.length;
    expect_close(found[0].rows(token, token + 1),
                 sum_where([&](std::int64_t at) { return ids.data<std::int32_t>()[at] == token; }),
                 1e-4, concat("token ", token));
    expect_close(found[1].rows(place, place + 1),
                 sum_where([&](std::int64_t at) { return at % sizes_.length == place; }), 1e-4,
                 concat("place ", place));
  }
  expect_close(found[2], sum_where([](std::int64_t) { return true; }), 1e-3, "dbias");
}

TEST_F(CudaStepKernels, TableUpdateAndNormMatchReference) {
  const Shape shape{sizes_.padded_vocabulary, sizes_.channels()};
  constexpr AdamWSettings kSettings{
      .learning_rate = 0.01f, .weight_decay = 0.1f, .gradient_scale = 0.5f, .step = 3};
  const Tensor w0 = noise(shape, DType::kF32, 1), m0 = noise(shape, DType::kF32, 2);
  const Tensor g = noise(shape, DType::kF32, 4);
  const Tensor w = noise(shape, DType::kF32, 5), m = noise(shape, DType::kF32, 6);
  const Tensor v = noise(shape, DType::kF32, 7), working = noise(shape, kStepType, 8);
  const Tensors found = same_each_time({w, m, v, working}, [&] {
    copy(w, w0, stream_);
    copy(m, m0, stream_);
    fill_zero(v, stream_);
    adamw_update(w, m, v, g, working, kSettings, stream_);
  });
  for (const std::int64_t row : some_of(shape[0])) {
    const Tensors host{on_host(w0.rows(row, row + 1)), on_host(m0.rows(row, row + 1)),
                       on_host(g.rows(row, row + 1))};
    Tensors wanted{clone(host[0], cpu_stream()), clone(host[1], cpu_stream())};
    const Stream cpu = cpu_stream();
    const Tensor zero = Tensor::zeros(host[0].shape(), DType::kF32, MemoryKind::kActivations, cpu);
    adamw_update(wanted[0], wanted[1], zero, host[2], Tensor(), kSettings, cpu);
    expect_close(found[0].rows(row, row + 1), values_of(wanted[0]), 1e-6, concat("w, row ", row));
    expect_close(found[1].rows(row, row + 1), values_of(wanted[1]), 1e-6, concat("m, row ", row));
  }
  double sum = 0;
  const Tensor g_host = on_host(g);
  for (std::int64_t i = 0; i < g_host.elements(); ++i) {
    const auto value = static_cast<double>(g_host.data<float>()[i]);
    sum += value * value;
  }
  const double norm = wait_for_sum_of_squares(g, stream_);
  EXPECT_NEAR(norm, sum, 1e-9 * sum);
  in_several_orders([&] { EXPECT_EQ(wait_for_sum_of_squares(g, stream_), norm); });
}

}  // namespace
}  // namespace hybrid_trainer::kernels
