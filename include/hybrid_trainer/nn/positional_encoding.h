#pragma once

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Adjustment of the angles for contexts longer than the original; named as in transformers.
struct RotaryScaling {
  std::string type = "default";
  double factor = 1;
  std::int64_t original_context = 0;
  double low_frequency = 1;
  double high_frequency = 4;
  double beta_fast = 32;
  double beta_slow = 1;
  double attention_factor = 0;
  double mscale = 0;
  double mscale_all_dim = 0;
  bool truncate = true;

  /// Returns a copy with all unspecified values filled in, for a model with `context` positions.
  RotaryScaling resolved(std::int64_t context) const;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"type",
                self.type,
                "Scaling of rotary angles for longer contexts. default changes nothing; linear "
                "divides all angles; llama3 and yarn divide the low frequencies; dynamic raises "
                "the base with the length.",
                {},
                {"default", "linear", "dynamic", "llama3", "yarn"}});
    visit(Field{"factor", self.factor, "Ratio of the context to the original context.",
                Range::between(1, 1e6)});
    visit(Field{"original_context", self.original_context,
                "Context of the original training, in positions, for dynamic, llama3 and yarn; 0 "
                "uses the context.",
                Range::between(0, 1 << 24)});
    visit(
        Field{"low_frequency", self.low_frequency,
              "llama3: frequencies with fewer turns than this in the original context are divided.",
              Range::above(0)});
    visit(Field{
        "high_frequency", self.high_frequency,
        "llama3: frequencies with more turns than this in the original context stay unchanged.",
        Range::above(0)});
    visit(Field{"beta_fast", self.beta_fast,
                "yarn: frequencies with more turns than this stay unchanged.", Range::above(0)});
    visit(Field{"beta_slow", self.beta_slow,
                "yarn: frequencies with fewer turns than this are divided.", Range::above(0)});
    visit(Field{"attention_factor", self.attention_factor,
                "yarn: factor applied to queries and keys; 0 computes it from factor, mscale and "
                "mscale_all_dim.",
                Range::at_least(0)});
    visit(Field{"mscale", self.mscale, "yarn: see attention_factor.", Range::at_least(0)});
    visit(Field{"mscale_all_dim", self.mscale_all_dim, "yarn: see attention_factor.",
                Range::at_least(0)});
    visit(Field{"truncate", self.truncate,
                "yarn: round the bounds between frequencies to whole numbers."});
  }
};

/// Rotary angles of attention: position·θ^(−2j/D) for j < D/2 of heads of D channels, scaled.
/// Sources: Su et al. 2021, "RoFormer", section 3.4.2; Peng et al. 2023, "YaRN"; the rest as in
/// transformers' modeling_rope_utils. The table grows on demand.
class RotaryTable {
 public:
  RotaryTable(double theta, const RotaryScaling& scaling, std::int64_t context,
              std::int64_t head_size)
      : theta_(theta), scaling_(scaling), context_(context), head_size_(head_size) {}

  /// Returns whether the angle between two tokens depends only on their distance.
  bool is_relative() const { return !is_dynamic(); }

  /// A table (any number of rows, D) f32. Each row has D/2 cosines, then D/2 sines.
  struct Angles {
    Tensor table;
    bool by_token = false;  // row i belongs to token i of the batch instead of position i
  };
  /// Reads the document lengths of a batch (B, T) if angles depend on them: if the scaling is
  /// dynamic, and T is longer than the original context. In that case waits for the positions.
  void read_documents(const Tensor& positions, const Stream& stream);
  /// Returns angles for sequences of `length` positions. If these contain several documents, call
  /// read_documents with their positions first; each document is rotated separately.
  Angles of_sequences(std::int64_t length, bool has_documents, const Stream& stream);
  /// Returns angles for decoding: row t < `positions` belongs to a sequence of t + 1 tokens.
  Angles by_step(std::int64_t positions, const Stream& stream);

 private:
  using LengthAt = std::function<std::int64_t(std::int64_t position)>;
  bool is_dynamic() const { return scaling_.type == "dynamic"; }
  bool depends_on_documents(std::int64_t length) const {
    return is_dynamic() && length > original_context();
  }
  std::int64_t original_context() const {
    return scaling_.original_context > 0 ? scaling_.original_context : context_;
  }
  void make(Tensor& table, std::int64_t rows, const LengthAt& length_at,
            const Stream& stream) const;
  void write_documents(const std::vector<std::int64_t>& lengths, const Stream& stream);
  std::vector<float> frequencies(std::int64_t length) const;
  void write_row(float* row, std::int64_t position, const std::vector<float>& turns) const;
  double amplitude() const;
  double theta_;
  RotaryScaling scaling_;
  std::int64_t context_, head_size_;
  /// Sequence length that table_ was computed for, if its angles depend on the length.
  std::int64_t length_ = 0;
  Tensor table_, step_table_, document_table_;
  std::vector<std::int64_t> documents_;  // lengths of the documents in document_table_, in order
};

/// T5's relative position buckets: small distances have one bucket each, larger ones share buckets
/// logarithmically, and the last bucket has all distances from `most` on. If bidirectional, keys
/// after a query use the second half; otherwise bucket 0. Source: Raffel et al. 2020, section 2.1.
struct RelativeBuckets {
  std::int64_t count = 32;
  std::int64_t most = 128;
  bool bidirectional = false;
  /// Returns the bucket of `distance`, the key's position minus the query's.
  std::int64_t of(std::int64_t distance) const;
};

/// Learned relative position bias (Raffel et al. 2020, "T5"): one number per head and bucket,
/// "<name>.weight" (heads, buckets), initially 0. Layers may share it; their gradients are summed.
class RelativeBias {
 public:
  struct Spec {
    std::int64_t heads = 1;  // of queries
    RelativeBuckets buckets{};
  };
  /// Throws ConfigError if there are too few buckets or distances, or if a bidirectional bias has
  /// an odd number of buckets.
  RelativeBias(const ModuleName& name, const Spec& spec, const Stream& stream);

  /// Registers a layer with this number of heads. Throws ConfigError if it differs from the spec.
  void join(std::int64_t heads);
  /// Returns kernels::AttentionSpec::bias for sequences of at most `time` tokens, (heads, any) f32.
  Tensor values(std::int64_t time, const Stream& stream);
  /// Inputs of kernels::attention_bias_backward from a layer's pass.
  struct Attended {
    const Tensor &dy, &y, &log_sum_exp, &qkv, &positions;
  };
  /// Contributes a layer's gradient. `spec`: the layer's attention, with these values.
  void backward(const Attended& attended, const kernels::AttentionSpec& spec, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit) { visit(table_); }

 private:
  /// Returns the table index of each element of the bias for sequences of `time` tokens.
  const Tensor& places(std::int64_t time, const Stream& stream);
  std::vector<std::int32_t> places_of(std::int64_t time) const;
  RelativeBuckets buckets_;
  Parameter table_;
  std::int64_t layers_ = 0;
  Tensor places_;  // (1, heads·(2·time − 1)) i32
};

}  // namespace hybrid_trainer
