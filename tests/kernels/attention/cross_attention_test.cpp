#include "hybrid_trainer/kernels/attention.h"

#include <limits>

#include "src/core/machine.h"
#include "tests/kernels/attention/cross_attention_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Reference results in double, with the full attention matrix.
struct CrossReference {
  Values y, log_sum_exp, dq, dkv;
};

/// One query of the reference.
struct CrossQuery {
  const double *query, *dy, *keys;  // keys: row 0 of its head
  double *y, *dquery, *dkeys;
  std::int64_t count, stride, values;  // of keys; between rows; from a key to its value
};

/// Returns the logarithm of the sum of e^score.
double add_query(const CrossCase& c, const CrossQuery& at) {
  const auto product = [&](const double* a, const double* b) {
    double sum = 0;
    for (std::int64_t i = 0; i < c.head_size; ++i) sum += a[i] * b[i];
    return sum;
  };
  const double scale = c.scale > 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.head_size));
  Values scores, slopes, weights;
  double highest = -std::numeric_limits<double>::infinity(), total = 0, correction = 0;
  for (std::int64_t s = 0; s < at.count; ++s) {
    const double scaled = scale * product(at.query, at.keys + s * at.stride);
    const double tangent = c.cap > 0 ? std::tanh(scaled / c.cap) : 0;
    scores.push_back(c.cap > 0 ? c.cap * tangent : scaled);
    slopes.push_back(1 - tangent * tangent);
    highest = std::max(highest, scores.back());
  }
  for (const double score : scores) total += std::exp(score - highest);
  const auto value_of = [&](std::int64_t s) { return at.keys + s * at.stride + at.values; };
  for (std::int64_t s = 0; s < at.count; ++s) {
    weights.push_back(std::exp(scores[static_cast<std::size_t>(s)] - highest) / total);
    correction += weights.back() * product(at.dy, value_of(s));
    for (std::int64_t i = 0; i < c.head_size; ++i) at.y[i] += weights.back() * value_of(s)[i];
  }
  for (std::int64_t s = 0; s < at.count; ++s) {
    const auto n = static_cast<std::size_t>(s);
    const double dscore =
        weights[n] * (product(at.dy, value_of(s)) - correction) * slopes[n] * scale;
    double* const dkey = at.dkeys + s * at.stride;
    for (std::int64_t i = 0; i < c.head_size; ++i) {
      at.dquery[i] += dscore * at.keys[s * at.stride + i];
      dkey[i] += dscore * at.query[i];
      dkey[at.values + i] += weights[n] * at.dy[i];
    }
  }
  return highest + std::log(total);
}

CrossReference reference_of(const CrossCase& c, const CrossTensors& t) {
  const Values q = values_of(t.q), kv = values_of(t.kv), dy = values_of(t.dy);
  CrossReference all{Values(q.size()), {}, Values(q.size()), Values(kv.size())};
  const std::int64_t stride = 2 * c.kv_heads * c.head_size;
  for (std::int64_t item = 0; item < c.batch * c.heads; ++item) {
    const std::int64_t b = item / c.heads, h = item % c.heads;
    const std::int64_t keys_at = b * c.keys * stride + h / (c.heads / c.kv_heads) * c.head_size;
    for (std::int64_t query = 0; query < c.queries; ++query) {
      const std::int64_t at = ((b * c.queries + query) * c.heads + h) * c.head_size;
      all.log_sum_exp.push_back(add_query(c, {.query = q.data() + at,
                                              .dy = dy.data() + at,
                                              .keys = kv.data() + keys_at,
                                              .y = all.y.data() + at,
                                              .dquery = all.dq.data() + at,
                                              .dkeys = all.dkv.data() + keys_at,
                                              .count = c.keys_of(b),
                                              .stride = stride,
                                              .values = stride / 2}));
    }
  }
  return all;
}

/// Expects −∞ if there are no keys, else close values.
void expect_log_sums(const Tensor& log_sum_exp, const Values& wanted, const std::string& what) {
  const Values got = values_of(log_sum_exp);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (std::isinf(wanted[i])) {
      EXPECT_EQ(got[i], wanted[i]) << what;
    } else {
      EXPECT_NEAR(got[i], wanted[i], 1e-5 * (1 + std::abs(wanted[i]))) << what;
    }
  }
}

/// Relative error in the norm.
double share_of_error(const Tensor& tensor, const Values& wanted) {
  const Values got = values_of(tensor);
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    error += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
}

void expect_like_reference(const CrossCase& c, DType dtype) {
  const Stream stream = cpu_stream();
  const CrossTensors t(c, dtype, stream);
  t.forward(stream);
  t.backward(stream);
  const CrossReference wanted = reference_of(c, t);
  const bool is_f32 = dtype == DType::kF32;
  expect_close(t.y, wanted.y, is_f32 ? 1e-5 : 1e-2, c.text(dtype));
  expect_log_sums(t.log_sum_exp, wanted.log_sum_exp, c.text(dtype));
  // In bf16, the weights are rounded too, and y before its correction is computed.
  expect_close(t.dq, wanted.dq, is_f32 ? 1e-5 : 1e-1, c.text(dtype));
  expect_close(t.dkv, wanted.dkv, is_f32 ? 1e-5 : 1e-1, c.text(dtype));
  EXPECT_LE(share_of_error(t.dq, wanted.dq), is_f32 ? 1e-5 : 1e-2) << c.text(dtype);
  EXPECT_LE(share_of_error(t.dkv, wanted.dkv), is_f32 ? 1e-5 : 1e-2) << c.text(dtype);
}

TEST(CrossAttention, MatchesReferenceOnRandomShapes) {
  for (std::uint64_t number = 0; number < 200; ++number)
    expect_like_reference(random_cross_case(number), DType::kF32);
}

TEST(CrossAttention, MatchesReferenceOnRandomShapesInBf16) {
  for (std::uint64_t number = 0; number < 200; ++number)
    expect_like_reference(random_cross_case(number), DType::kBF16);
}

/// Several blocks of queries and keys, with lengths of all keys, of part of the last block, and 0.
const CrossCase kLarge{.batch = 3,
                       .queries = 140,
                       .keys = 530,
                       .heads = 4,
                       .kv_heads = 2,
                       .head_size = 32,
                       .lengths = {530, 515, 0}};

TEST(CrossAttention, QueriesWithoutKeysGiveZeros) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    expect_like_reference(kLarge, dtype);
    const CrossTensors t(kLarge, dtype, stream);
    t.forward(stream);
    t.backward(stream);
    for (const Tensor& tensor : {t.y, t.dq, t.dkv}) {
      for (const double value : values_of(tensor.rows(2, 3))) ASSERT_EQ(value, 0);
      for (const double value : values_of(tensor)) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TEST(CrossAttention, ThreadCountDoesNotChangeBits) {
  const Stream stream = cpu_stream();
  const int before = threads();
  for (const DType dtype : kRealTypes) {
    const CrossTensors first(kLarge, dtype, stream);
    for (int count = 1; count <= std::min(before, 3); ++count) {
      set_threads(count);
      const CrossTensors t(kLarge, dtype, stream);
      for (const CrossTensors* tensors : {&first, &t}) {
        if (tensors == &first && count > 1) continue;
        tensors->forward(stream);
        tensors->backward(stream);
      }
      expect_same_bits(t.y, first.y);
      expect_same_bits(t.log_sum_exp, first.log_sum_exp);
      expect_same_bits(t.dq, first.dq);
      expect_same_bits(t.dkv, first.dkv);
    }
  }
  set_threads(before);
}

/// Keys beyond a length are never read: NaN there changes no bit.
TEST(CrossAttention, DoesNotReadKeysBeyondLength) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const CrossTensors t(kLarge, dtype, stream);
    t.forward(stream);
    t.backward(stream);
    const Tensor y = clone(t.y, stream), dq = clone(t.dq, stream), dkv = clone(t.dkv, stream);
    const std::int64_t width = t.kv.size(2);
    for (std::int64_t at = (530 + 515) * width; at < t.kv.elements(); ++at) {
      if (dtype == DType::kF32) t.kv.data<float>()[at] = std::nanf("");
      if (dtype == DType::kBF16) t.kv.data<BFloat16>()[at] = to_bfloat16(std::nanf(""));
    }
    t.forward(stream);
    t.backward(stream);
    expect_same_bits(t.y, y);
    expect_same_bits(t.dq, dq);
    expect_same_bits(t.dkv, dkv);
  }
}

/// With all keys of the queries' own sequence, it equals bidirectional self-attention.
TEST(CrossAttention, EqualsBidirectionalSelfAttention) {
  const Stream stream = cpu_stream();
  const CrossCase c{
      .batch = 2, .queries = 90, .keys = 90, .heads = 4, .kv_heads = 2, .head_size = 12};
  const CrossTensors t(c, DType::kF32, stream);
  t.forward(stream);
  const Values q = values_of(t.q), kv = values_of(t.kv);
  Values qkv;
  for (std::size_t row = 0; row < 180; ++row) {
    for (std::size_t i = 0; i < 48; ++i) qkv.push_back(q[row * 48 + i]);
    for (std::size_t i = 0; i < 48; ++i) qkv.push_back(kv[row * 48 + i]);
  }
  AttentionSpec bidirectional = t.spec;
  bidirectional.bidirectional = true;
  const Tensor y = clone(t.y, stream);
  attention_forward(y, Tensor(), tensor_of(qkv, {2, 90, 96}, DType::kF32, stream), Tensor(),
                    bidirectional, stream);
  expect_close(y, values_of(t.y), 1e-6);
}

TEST(CrossAttention, DecodeWithSharedSourceEqualsForward) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const CrossCase& c :
         {CrossCase{
              .batch = 2, .queries = 3, .keys = 70, .heads = 4, .kv_heads = 2, .head_size = 9},
          CrossCase{.batch = 3,
          .queries = 3,
          .keys = 300,
          .heads = 2,
          .kv_heads = 2,
          .head_size = 64,
          .lengths = {300, 0, 131}},
          CrossCase{.batch = 2,
          .queries = 3,
          .keys = 33,
          .heads = 6,
          .kv_heads = 2,
          .head_size = 5,
          .lengths = {33, 7},
          .scale = 0.3f,
          .cap = 1.5f}}) {
      const CrossTensors t(c, dtype, stream);
      t.forward(stream);
      const std::int64_t width = c.heads * c.head_size;
      // Tokens 1 and 2 of the last source and token 0 of the first.
      Values rows, wanted;
      const Values q = values_of(t.q), y = values_of(t.y);
      const std::int64_t last = c.batch - 1;
      for (const std::int64_t row : {last * 3 + 1, last * 3 + 2, std::int64_t{0}}) {
        rows.insert(rows.end(), q.begin() + row * width, q.begin() + (row + 1) * width);
        wanted.insert(wanted.end(), y.begin() + row * width, y.begin() + (row + 1) * width);
      }
      const Tensor now = tensor_of(rows, {3, width}, dtype, stream), got = clone(now, stream);
      const auto text = static_cast<double>(2 * last + 1);  // two texts per source
      cross_attention_decode(got, now, t.kv,
                             tensor_of({text - 1, text, 1}, {3}, DType::kI32, stream), 2, t.lengths,
                             t.spec, stream);
      expect_close(got, wanted, tolerance_of(dtype), c.text(dtype));
      const Tensor alone = Tensor::empty({1, width}, dtype, MemoryKind::kActivations, stream);
      cross_attention_decode(alone, now.rows(1, 2), t.kv,
                             tensor_of({text}, {1}, DType::kI32, stream), 2, t.lengths, t.spec,
                             stream);
      expect_same_bits(alone, got.rows(1, 2));
    }
  }
}

TEST(CrossAttention, ReportsMismatchedShapes) {
  const Stream stream = cpu_stream();
  const CrossCase c{.batch = 2, .queries = 3, .keys = 5, .heads = 4, .kv_heads = 2, .head_size = 6};
  const CrossTensors t(c, DType::kF32, stream);
  const auto message = [&](const auto& call) -> std::string {
    try {
      call();
    } catch (const ShapeMismatch& error) {
      return error.what();
    }
    return "no error";
  };
  const auto forward_with = [&](const Tensor& kv, const Tensor& lengths) {
    return message(
        [&] { cross_attention_forward(t.y, Tensor(), t.q, kv, lengths, t.spec, stream); });
  };
  const auto contains = [](const std::string& text, const std::vector<const char*>& parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(forward_with(random_tensor({2, 5, 22}, DType::kF32, 1, stream), Tensor()),
           {"q is (2, 3, 24)", "kv is (2, 5, 22)", "4 query heads and 2 key heads"});
  contains(forward_with(random_tensor({3, 5, 24}, DType::kF32, 1, stream), Tensor()),
           {"q is (2, 3, 24)", "kv is (3, 5, 24)", "the same number of sequences"});
  contains(forward_with(t.kv, tensor_of({5, 6}, {2}, DType::kI32, stream)),
           {"length 1 is 6", "kv is (2, 5, 24)", "0 to 5"});
  contains(forward_with(t.kv, tensor_of({-1, 5}, {2}, DType::kI32, stream)), {"length 0 is -1"});
  contains(message([&] {
             cross_attention_decode(t.y.view({6, 24}), t.q.view({6, 24}), t.kv,
                                    tensor_of({0, 1, 6, 0, 0, 0}, {6}, DType::kI32, stream), 3,
                                    Tensor(), t.spec, stream);
           }),
           {"row 2 belongs to text 6", "kv is (2, 5, 24)", "below 6"});
  AttentionSpec window = t.spec;
  window.window = 2;
  EXPECT_THROW(cross_attention_forward(t.y, Tensor(), t.q, t.kv, Tensor(), window, stream), Error);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
