#include "hybrid_trainer/kernels/attention.h"

#include <algorithm>
#include <limits>

#include "src/core/machine.h"
#include "tests/kernels/attention/attention_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr AttentionCase kCases[] = {
    {{1, 1, 1, 1}, {}},       {{2, 7, 3, 5}, {}},      {{1, 64, 2, 16}, {}},
    {{2, 65, 1, 33}, {}},     {{1, 200, 2, 8}, {}},    {{1, 256, 1, 64}, {}},
    {{1, 330, 2, 12}, {}},    {{1, 31, 2, 32}, {}},    {{2, 96, 1, 64}, {}},
    {{1, 300, 2, 64}, {}},    {{1, 390, 1, 96}, {}},   {{2, 70, 6, 5, 2}, {}},
    {{1, 300, 4, 32, 1}, {}}, {{2, 140, 4, 64, 2}, {}}};
constexpr AttentionCase kMasked[] = {
    {{2, 70, 2, 5, 1}, {.scale = 0.3f}},      // a scale
    {{1, 70, 2, 32, 2}, {.cap = 1.5f}},       // a cap
    {{1, 330, 2, 32, 1}, {.window = 1}},      // only itself
    {{1, 330, 1, 32, 1}, {.window = 100}},    // a window
    {{1, 300, 1, 5, 1}, {.window = 301}},     // a window larger than the sequence
    {{2, 330, 1, 32, 1}, {.document = 37}},   // documents
    {{2, 270, 2, 7, 2}, {.document = 1}},     // documents of one token
    {{2, 70, 1, 64, 1}, {.document = 1000}},  // documents longer than the sequence
    {{2, 390, 4, 32, 2},
     {.scale = 0.25f, .cap = 2, .window = 90, .document = 150}},  // everything, in tiles
    {{2, 390, 4, 9, 2}, {.scale = 0.25f, .cap = 2, .window = 90, .document = 150}},  // untiled
    {{1, 700, 2, 32, 1}, {.cap = 5, .window = 130, .document = 290}}};
constexpr AttentionCase kTwoWay[] = {
    {{2, 1, 2, 3, 1}, {.bidirectional = true}},
    {{2, 70, 2, 5, 1}, {.bidirectional = true}},
    {{1, 95, 2, 32, 1}, {.bidirectional = true}},                   // a padded key in tiles
    {{1, 300, 2, 64, 1}, {.cap = 1.5f, .bidirectional = true}},     // a group and a cap
    {{1, 130, 1, 32, 1}, {.window = 1, .bidirectional = true}},     // only itself
    {{1, 300, 1, 32, 1}, {.window = 100, .bidirectional = true}},   // a window on both sides
    {{2, 300, 1, 5, 1}, {.document = 37, .bidirectional = true}},   // documents
    {{1, 300, 1, 32, 1}, {.document = 37, .bidirectional = true}},  // in tiles
    {{1, 300, 2, 32, 1},
     {.scale = 0.25f,
      .cap = 2,
      .window = 90,
      .document = 130,
      .bidirectional = true}}  // everything
};
constexpr AttentionCase kWithSinks[] = {
    {{2, 7, 3, 5}, {.has_sinks = true}},
    {{1, 130, 3, 32, 1}, {.has_sinks = true}},
    {{1, 140, 4, 9, 2},
     {.scale = 0.25f, .cap = 2, .window = 90, .document = 100, .has_sinks = true}},
    {{1, 70, 2, 64, 1}, {.window = 40, .document = 50, .bidirectional = true, .has_sinks = true}}};

std::string text(const AttentionCase& c, DType dtype) {
  return concat("B ", c.batch, " T ", c.length, " H ", c.heads, " of ", c.counts().keys, " head ",
                c.head_size, " ", name_of(dtype), " scale ", c.scale, " cap ", c.cap, " window ",
                c.window, " documents ", c.document, c.bidirectional ? " two-way" : "",
                c.has_sinks ? " sinks" : "", " blocks of ", c.pattern.block);
}

/// Pattern blocks of one tile, of several tiles and of part of a tile; adjacent random blocks; also
/// combined with groups, documents and windows.
constexpr AttentionCase kWithPatterns[] = {
    {{2, 37, 3, 5, 1}, {.pattern = {.block = 4, .random = 1}}},
    {{1, 140, 2, 16, 1},
     {.cap = 1.5f,
      .document = 50,
      .has_sinks = true,
      .pattern = {.block = 16, .local = 2, .global = 1, .random = 2, .key = 3}}},
    {{1, 260, 2, 32, 1}, {.pattern = {.block = 64, .global = 1, .random = 1}}},
    {{1, 170, 2, 32, 2}, {.window = 90, .document = 70, .pattern = {.block = 32, .global = 2}}},
    {{1, 210, 2, 8, 1}, {.pattern = {.block = 100}}},
    {{1, 100, 1, 32, 1}, {.pattern = {.block = 1, .local = 3, .global = 1, .random = 9}}},
    {{1, 450, 1, 32, 1}, {.cap = 2, .pattern = {.block = 128, .random = 1}}}};

/// Causal and bidirectional, with groups, windows, documents, a cap, and reach past the sequence.
constexpr AttentionCase kBiased[] = {
    {{2, 37, 3, 5}, {.scale = 1, .reach = 37}},
    {{1, 140, 2, 32, 1}, {.cap = 1.5f, .document = 50, .bidirectional = true, .reach = 150}},
    {{1, 300, 2, 16, 2}, {.window = 90, .bidirectional = true, .reach = 300}},
    {{1, 100, 2, 8, 2},
     {.has_sinks = true,
      .pattern = {.block = 16, .local = 2, .global = 1, .random = 1},
      .reach = 200}}};

struct Reference {
  Values y, log_sum_exp;
};

double product_of_heads(const double* a, const double* b, std::int64_t head_size) {
  double sum = 0;
  for (std::int64_t i = 0; i < head_size; ++i) sum += a[i] * b[i];
  return sum;
}

void add_head(double* to, double factor, const double* head, std::int64_t head_size) {
  for (std::int64_t i = 0; i < head_size; ++i) to[i] += factor * head[i];
}

Reference reference_forward(const AttentionCase& c, const Tensor& qkv) {
  const Values x = values_of(qkv);
  const Values sinks = c.has_sinks ? values_of(c.sinks(cpu_stream())) : Values();
  const Values bias = c.reach > 0 ? values_of(c.bias(cpu_stream())) : Values();
  const std::int64_t channels = c.channels();
  Reference result{Values(static_cast<std::size_t>(c.batch * c.length * channels), 0.0), {}};
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const auto at = [&](std::int64_t t, std::int64_t part) {
        return x.data() + (b * c.length + t) * c.width() + c.column(h, part);
      };
      for (std::int64_t t = 0; t < c.length; ++t) {
        Values score;
        for (std::int64_t s = 0; s < c.end(t); ++s) {
          score.push_back(c.attends(b, t, s) && !c.hides(h, t, s)
                              ? c.score(product_of_heads(at(t, 0), at(s, 1), c.head_size),
                                        bias.empty() ? 0 : bias[c.bias_at(h, t, s)])
                              : -std::numeric_limits<double>::infinity());
        }
        if (c.has_sinks) score.push_back(sinks[static_cast<std::size_t>(h)]);
        const double highest = *std::max_element(score.begin(), score.end());
        double total = 0;
        for (const double value : score) total += std::exp(value - highest);
        result.log_sum_exp.push_back(highest + std::log(total));
        double* const y = result.y.data() + (b * c.length + t) * channels + h * c.head_size;
        for (std::int64_t s = 0; s < c.end(t); ++s) {
          const double weight = std::exp(score[static_cast<std::size_t>(s)] - highest) / total;
          if (weight > 0) add_head(y, weight, at(s, 2), c.head_size);
        }
      }
    }
  }
  return result;
}

struct AttentionTensors {
  AttentionTensors(const AttentionCase& c, DType dtype, const Stream& stream)
      : qkv(random_tensor({c.batch, c.length, c.width()}, dtype, 1, stream)),
        y(Tensor::empty({c.batch, c.length, c.channels()}, dtype, MemoryKind::kActivations,
                        stream)),
        log_sum_exp(Tensor::empty({c.batch, c.heads, c.length}, DType::kF32,
                                  MemoryKind::kActivations, stream)),
        dy(random_tensor({c.batch, c.length, c.channels()}, dtype, 2, stream)),
        dqkv(Tensor::empty_like(qkv, MemoryKind::kActivations, stream)),
        positions(c.positions(stream)),
        spec(c.counts(c.sinks(stream)).with_bias(c.bias(stream))) {}
  Tensor qkv, y, log_sum_exp, dy, dqkv, positions;
  AttentionSpec spec;
};

std::vector<AttentionCase> all_cases() {
  std::vector<AttentionCase> cases(std::begin(kCases), std::end(kCases));
  cases.insert(cases.end(), std::begin(kMasked), std::end(kMasked));
  cases.insert(cases.end(), std::begin(kTwoWay), std::end(kTwoWay));
  cases.insert(cases.end(), std::begin(kWithSinks), std::end(kWithSinks));
  cases.insert(cases.end(), std::begin(kWithPatterns), std::end(kWithPatterns));
  cases.insert(cases.end(), std::begin(kBiased), std::end(kBiased));
  return cases;
}

TEST(Attention, ForwardMatchesReference) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const AttentionCase& c : all_cases()) {
      const AttentionTensors t(c, dtype, stream);
      attention_forward(t.y, t.log_sum_exp, t.qkv, t.positions, t.spec, stream);
      const Reference wanted = reference_forward(c, t.qkv);
      expect_close(t.y, wanted.y, tolerance_of(dtype), text(c, dtype));
      expect_close(t.log_sum_exp, wanted.log_sum_exp, 2e-5, text(c, dtype));
      const Tensor other = Tensor::empty_like(t.y, MemoryKind::kActivations, stream);
      attention_forward(other, Tensor(), t.qkv, t.positions, t.spec, stream);
      expect_same_bits(t.y, other);
    }
  }
}

TEST(Attention, StaysFiniteWithLargeScores) {
  const Stream stream = cpu_stream();
  const AttentionCase c{{1, 300, 1, 8}, {}};
  const AttentionTensors t(c, DType::kF32, stream);
  for (std::int64_t i = 0; i < t.qkv.elements(); ++i) t.qkv.data<float>()[i] *= 50;
  attention_forward(t.y, t.log_sum_exp, t.qkv, t.positions, t.spec, stream);
  expect_close(t.y, reference_forward(c, t.qkv).y, 1e-3);
}

TEST(Attention, BackwardMatchesFiniteDifferences) {
  const Stream stream = cpu_stream();
  for (const AttentionCase& c :
       {AttentionCase{{2, 7, 2, 5}, {}}, AttentionCase{{1, 70, 1, 3}, {}},
        AttentionCase{{1, 9, 4, 3, 2}, {}},
        AttentionCase{{2, 17, 4, 4, 2}, {.scale = 0.6f, .cap = 1.5f, .window = 5, .document = 7}},
        AttentionCase{
            {2, 17, 4, 4, 2},
            {.scale = 0.6f, .cap = 1.5f, .window = 5, .document = 7, .bidirectional = true}},
        AttentionCase{{2, 17, 4, 4, 2}, {.window = 5, .document = 7, .has_sinks = true}},
        AttentionCase{{1, 23, 2, 4, 1},
                      {.document = 9, .pattern = {.block = 4, .global = 1, .random = 1}}}}) {
    const AttentionTensors t(c, DType::kF32, stream);
    const auto forward = [&] {
      attention_forward(t.y, t.log_sum_exp, t.qkv, t.positions, t.spec, stream);
      return values_of(t.y);
    };
    forward();
    attention_backward(t.dqkv, t.dy, t.y, t.log_sum_exp, t.qkv, t.positions, t.spec, stream);
    expect_close(t.dqkv, finite_differences(t.qkv, values_of(t.dy), 1e-2, forward), 1e-3,
                 text(c, DType::kF32));
  }
}

/// Gradients are accumulated.
TEST(Attention, SinksBackwardMatchesFiniteDifferences) {
  const Stream stream = cpu_stream();
  const AttentionCase c{{2, 17, 4, 4, 2},
                        {.cap = 1.5f, .window = 5, .document = 7, .has_sinks = true}};
  const AttentionTensors t(c, DType::kF32, stream);
  const auto forward = [&] {
    attention_forward(t.y, t.log_sum_exp, t.qkv, t.positions, t.spec, stream);
    return values_of(t.y);
  };
  forward();
  const Tensor dsinks = tensor_of({3, 3, 3, 3}, {4}, DType::kF32, stream);
  for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate})
    attention_sinks_backward(dsinks, mode, t.dy, t.y, t.log_sum_exp, t.spec.sinks, stream);
  Values wanted = finite_differences(t.spec.sinks, values_of(t.dy), 1e-2, forward);
  for (double& value : wanted) value *= 2;
  expect_close(dsinks, wanted, 1e-3);
}

/// dqkv and dbias in double from the textbook formulas, with the full attention matrix.
struct Gradients {
  Values dqkv, dbias;
};
Gradients reference_gradients(const AttentionCase& c, const AttentionTensors& t) {
  const Values bias = c.reach > 0 ? values_of(t.spec.bias) : Values();
  Values dbias(bias.size(), 0.0);
  const Values x = values_of(t.qkv), dy = values_of(t.dy),
               log_sums = reference_forward(c, t.qkv).log_sum_exp;
  const std::int64_t channels = c.channels();
  const double scale = c.scale > 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.head_size));
  Values gradient(x.size(), 0.0);
  for (std::int64_t item = 0; item < c.batch * c.heads; ++item) {
    const std::int64_t b = item / c.heads, head = item % c.heads;
    const auto at = [&](std::int64_t row, std::int64_t part) {
      return (b * c.length + row) * c.width() + c.column(head, part);
    };
    for (std::int64_t q = 0; q < c.length; ++q) {
      const double* const dy_of_row =
          dy.data() + (b * c.length + q) * channels + head * c.head_size;
      const double log_sum = log_sums[static_cast<std::size_t>(item * c.length + q)];
      Values weight, dweight, slope;
      double correction = 0;
      for (std::int64_t s = 0; s < c.end(q); ++s) {
        const bool seen = c.attends(b, q, s) && !c.hides(head, q, s);
        const double sum =
            seen ? product_of_heads(x.data() + at(q, 0), x.data() + at(s, 1), c.head_size) : 0;
        const double score = c.score(sum, bias.empty() ? 0 : bias[c.bias_at(head, q, s)]);
        const double capped = c.cap > 0 ? score / c.cap : 0;
        slope.push_back(1 - capped * capped);
        weight.push_back(seen ? std::exp(score - log_sum) : 0);
        dweight.push_back(seen ? product_of_heads(dy_of_row, x.data() + at(s, 2), c.head_size) : 0);
        correction += weight.back() * dweight.back();
      }
      for (std::int64_t s = 0; s < c.end(q); ++s) {
        const double w = weight[static_cast<std::size_t>(s)];
        if (w == 0) continue;
        const double dscaled = w * (dweight[static_cast<std::size_t>(s)] - correction) *
                               slope[static_cast<std::size_t>(s)];
        const double dscore = dscaled * scale;
        if (!bias.empty()) dbias[c.bias_at(head, q, s)] += dscaled;
        add_head(gradient.data() + at(q, 0), dscore, x.data() + at(s, 1), c.head_size);
        add_head(gradient.data() + at(s, 1), dscore, x.data() + at(q, 0), c.head_size);
        add_head(gradient.data() + at(s, 2), w, dy_of_row, c.head_size);
      }
    }
  }
  return {gradient, dbias};
}

/// Gradients are accumulated, and bit-identical for any number of threads.
TEST(Attention, BiasBackwardMatchesReference) {
  const Stream stream = cpu_stream();
  const int before = threads();
  for (const DType dtype : kRealTypes) {
    for (const AttentionCase& c : kBiased) {
      const AttentionTensors t(c, dtype, stream);
      attention_forward(t.y, t.log_sum_exp, t.qkv, t.positions, t.spec, stream);
      Values wanted = reference_gradients(c, t).dbias;
      Tensor first;
      for (const int count : {1, std::min(2, before), before}) {
        set_threads(count);
        const Tensor dbias = Tensor::empty_like(t.spec.bias, MemoryKind::kActivations, stream);
        for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate})
          attention_bias_backward(dbias, mode, t.dy, t.y, t.log_sum_exp, t.qkv, t.positions, t.spec,
                                  stream);
        if (first) expect_same_bits(dbias, first);
        first = dbias;
      }
      for (double& value : wanted) value *= 2;
      expect_close(first, wanted, dtype == DType::kF32 ? 2e-5 : 8e-2, text(c, dtype));
    }
  }
  set_threads(before);
}

TEST(Attention, BackwardMatchesReferenceAndRepeatsBitForBit) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const AttentionCase& c : all_cases()) {
      const AttentionTensors t(c, dtype, stream);
      attention_forward(t.y, t.log_sum_exp, t.qkv, t.positions, t.spec, stream);
      attention_backward(t.dqkv, t.dy, t.y, t.log_sum_exp, t.qkv, t.positions, t.spec, stream);
      // Rounding y before its correction is computed adds two roundings in bf16.
      expect_close(t.dqkv, reference_gradients(c, t).dqkv, dtype == DType::kF32 ? 2e-5 : 4e-2,
                   text(c, dtype));
      const Tensor again = Tensor::empty_like(t.dqkv, MemoryKind::kActivations, stream);
      attention_backward(again, t.dy, t.y, t.log_sum_exp, t.qkv, t.positions, t.spec, stream);
      expect_same_bits(t.dqkv, again);
    }
  }
}

/// Text b is in row 2 − b of the caches and is 3·b tokens behind the first.
TEST(Attention, DecodeMatchesForwardForMixedLengths) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const AttentionCase& c :
         {AttentionCase{{2, 90, 3, 7}, {}}, AttentionCase{{2, 40, 6, 4, 2}, {}},
          AttentionCase{{2, 40, 6, 4, 2}, {.scale = 0.6f, .cap = 1.5f, .window = 9}},
          AttentionCase{{2, 40, 6, 4, 2}, {.has_sinks = true}},
          AttentionCase{{2, 40, 6, 4, 2}, {.scale = 1, .cap = 1.5f, .reach = 100}},
          AttentionCase{{2, 50, 4, 4, 2},
                        {.cap = 1,
                        .has_sinks = true,
                        .pattern = {.block = 4, .local = 2, .global = 1, .random = 2}}}}) {
      const AttentionTensors t(c, dtype, stream);
      const Reference wanted = reference_forward(c, t.qkv);
      const std::int64_t width = c.width(), channels = c.channels();
      const Tensor keys = Tensor::empty({3, 100, c.counts().keys * c.head_size}, dtype,
                                        MemoryKind::kActivations, stream);
      const Tensor values = Tensor::empty_like(keys, MemoryKind::kActivations, stream);
      const Values all = values_of(t.qkv);
      for (std::int64_t step = 0; step < c.length + 3; ++step) {
        Values now, wanted_now, texts, positions;
        for (std::int64_t b = 0; b < 2; ++b) {
          const std::int64_t position = step - 3 * b;
          if (position < 0 || position >= c.length) continue;
          const auto qkv_at = all.begin() + (b * c.length + position) * width;
          now.insert(now.end(), qkv_at, qkv_at + width);
          const auto y_at = wanted.y.begin() + (b * c.length + position) * channels;
          wanted_now.insert(wanted_now.end(), y_at, y_at + channels);
          texts.push_back(static_cast<double>(2 - b));
          positions.push_back(static_cast<double>(position));
        }
        const std::int64_t rows = std::ssize(texts);
        const Tensor y = Tensor::empty({rows, channels}, dtype, MemoryKind::kActivations, stream);
        attention_decode(y, keys, values, tensor_of(now, {rows, width}, dtype, stream),
                         tensor_of(texts, {rows}, DType::kI32, stream),
                         tensor_of(positions, {rows}, DType::kI32, stream), t.spec, stream);
        expect_close(y, wanted_now, tolerance_of(dtype), concat("step ", step));
      }
    }
  }
}

TEST(Attention, StoresKeysAndValuesInFirstCacheRows) {
  const Stream stream = cpu_stream();
  const Tensor qkv = random_tensor({2, 3, 12}, DType::kBF16, 1, stream);
  const Tensor keys = random_tensor({2, 5, 4}, DType::kBF16, 2, stream);
  const Tensor values = random_tensor({2, 5, 4}, DType::kBF16, 3, stream);
  const Values all = values_of(qkv);
  Values wanted_keys = values_of(keys), wanted_values = values_of(values);
  for (std::size_t row = 0; row < 6; ++row) {
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t at = (row / 3 * 5 + row % 3) * 4 + i;
      wanted_keys[at] = all[row * 12 + 4 + i];
      wanted_values[at] = all[row * 12 + 8 + i];
    }
  }
  store_keys_values(keys, values, qkv, stream);
  expect_close(keys, wanted_keys, 0);
  expect_close(values, wanted_values, 0);
  const Tensor longer = random_tensor({2, 6, 12}, DType::kBF16, 1, stream);
  EXPECT_THROW(store_keys_values(keys, values, longer, stream), ShapeMismatch);
}

TEST(Attention, ThrowsOnMismatch) {
  const Stream stream = cpu_stream();
  const AttentionCase c{{1, 4, 2, 3}, {}};
  const AttentionTensors t(c, DType::kF32, stream);
  EXPECT_THROW(attention_forward(t.y, t.log_sum_exp, t.qkv, Tensor(), 4, stream), ShapeMismatch);
  EXPECT_THROW(attention_forward(t.y, t.log_sum_exp, t.qkv, Tensor(), {3, 2}, stream),
               ShapeMismatch);
  EXPECT_THROW(attention_forward(t.qkv, t.log_sum_exp, t.qkv, Tensor(), 2, stream), ShapeMismatch);
  EXPECT_THROW(attention_backward(t.dqkv, t.dy, t.y, Tensor(), t.qkv, Tensor(), 2, stream),
               ShapeMismatch);
  const Tensor cache = Tensor::empty({1, 8, 6}, DType::kF32, MemoryKind::kActivations, stream);
  const Tensor y = Tensor::empty({1, 6}, DType::kF32, MemoryKind::kActivations, stream);
  for (const auto& [text, position] : {std::pair{0, 8}, {1, 0}, {0, -1}, {-1, 0}}) {
    EXPECT_THROW(
        attention_decode(y, cache, cache, t.qkv.view({4, 18}).rows(0, 1),
                         tensor_of({double(text)}, {1}, DType::kI32, stream),
                         tensor_of({double(position)}, {1}, DType::kI32, stream), 2, stream),
        ShapeMismatch);
  }
  EXPECT_THROW(
      attention_forward(t.y, t.log_sum_exp, t.qkv, Tensor(),
                        AttentionSpec(2).with_sinks(tensor_of({1, 1, 1}, {3}, DType::kF32, stream)),
                        stream),
      ShapeMismatch);
  EXPECT_THROW(attention_sinks_backward(tensor_of({1, 1}, {2}, DType::kF32, stream),
                                        GradientMode::kOverwrite, t.dy, t.y, t.log_sum_exp,
                                        tensor_of({1, 1, 1}, {3}, DType::kF32, stream), stream),
               ShapeMismatch);
  for (const std::int64_t distances : {5, 8}) {
    const Tensor bias = random_tensor({2, distances}, DType::kF32, 1, stream);
    EXPECT_THROW(attention_forward(t.y, t.log_sum_exp, t.qkv, Tensor(),
                                   AttentionSpec(2).with_bias(bias), stream),
                 ShapeMismatch)
        << distances;
  }
  AttentionSpec bidirectional(2);
  bidirectional.bidirectional = true;
  for (const BlockPattern& pattern :
       {BlockPattern{.block = 2, .local = 0}, BlockPattern{.block = 1, .random = 1 << 30}}) {
    AttentionSpec spec(2);
    spec.pattern = pattern;
    EXPECT_THROW(attention_forward(t.y, t.log_sum_exp, t.qkv, Tensor(), spec, stream), Error);
  }
  EXPECT_THROW(attention_decode(y, cache, cache, t.qkv.view({4, 18}).rows(0, 1),
                                tensor_of({0}, {1}, DType::kI32, stream),
                                tensor_of({0}, {1}, DType::kI32, stream), bidirectional, stream),
               Error);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
