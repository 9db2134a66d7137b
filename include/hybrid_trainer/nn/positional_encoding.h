#pragma once

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Scaling of rotary angles for longer contexts, as in the rope_scaling of transformers.
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
  /// longrope: divisors of each pair's frequency, for texts up to the original context (short) and
  /// beyond it (long).
  std::vector<double> short_factors{}, long_factors{};
  /// β: queries at position t are multiplied by 1 + β·log(1 + ⌊t/original_context⌋). Source: Meta
  /// 2025, "Llama 4", and Mistral AI 2025, "Ministral 3".
  double query_growth = 0;

  /// Returns a copy with all unspecified values resolved, for a model with `context` positions.
  RotaryScaling resolved(std::int64_t context) const;
  /// Returns the factor of cosines and sines. The original context must be set for longrope.
  double amplitude() const;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"type",
                self.type,
                "Scaling of rotary angles for longer contexts. default changes nothing; linear "
                "divides all angles; llama3 and yarn divide the low frequencies; dynamic raises "
                "the base with the length; longrope, which only folders can set, has divisors of "
                "each frequency for short and for long sequences.",
                {},
                {"default", "linear", "dynamic", "llama3", "yarn", "longrope"}});
    visit(Field{"factor", self.factor, "Ratio of the context to the original context.",
                Range::between(1, 1e6)});
    visit(Field{"original_context", self.original_context,
                "Context of the original training, in positions, for dynamic, llama3, yarn and "
                "longrope; 0 uses the context.",
                Range::between(0, 1 << 24)});
    visit(Field{"low_frequency", self.low_frequency,
                "llama3: frequencies with fewer rotations than this in the original context are "
                "divided by factor.",
                Range::above(0)});
    visit(Field{
        "high_frequency", self.high_frequency,
        "llama3: frequencies with more rotations than this in the original context stay unchanged.",
        Range::above(0)});
    visit(Field{
        "beta_fast", self.beta_fast,
        "yarn: frequencies with more rotations than this in the original context stay unchanged.",
        Range::above(0)});
    visit(Field{"beta_slow", self.beta_slow,
                "yarn: frequencies with fewer rotations than this in the original context are "
                "divided by factor.",
                Range::above(0)});
    visit(Field{"attention_factor", self.attention_factor,
                "yarn and longrope: factor applied to queries and keys; 0 computes it from factor, "
                "and in yarn from mscale and mscale_all_dim.",
                Range::at_least(0)});
    visit(Field{"mscale", self.mscale, "yarn: see attention_factor.", Range::at_least(0)});
    visit(Field{"mscale_all_dim", self.mscale_all_dim, "yarn: see attention_factor.",
                Range::at_least(0)});
    visit(Field{"truncate", self.truncate,
                "yarn: round the bounds between frequencies to whole numbers."});
    visit(constant("short_factors", self.short_factors, Range::above(0)));
    visit(constant("long_factors", self.long_factors, Range::above(0)));
    visit(constant("query_growth", self.query_growth, Range::at_least(0)));
  }
};

/// Rotary angles of attention: position·θ^(−2j/D) for j < D/2 of the D rotated channels of a head,
/// scaled. Sources: Su et al. 2021, "RoFormer", section 3.4.2; Peng et al. 2023, "YaRN"; Ding et
/// al. 2024, "LongRoPE"; the rest as in transformers' modeling_rope_utils. The table grows on demand.
class RotaryTable {
 public:
  /// `pairs_are_adjacent`: see kernels::RotatedHeads. `share`: share of the channel pairs that
  /// rotate.
  RotaryTable(double theta, const RotaryScaling& scaling, std::int64_t context,
              std::int64_t head_size, bool pairs_are_adjacent = false, double share = 1)
      : theta_(theta),
        scaling_(scaling.resolved(context)),
        context_(context),
        head_size_(head_size),
        turned_pairs_(static_cast<std::int64_t>(share * static_cast<double>(head_size) / 2)),
        pairs_are_adjacent_(pairs_are_adjacent) {}

  bool pairs_are_adjacent() const { return pairs_are_adjacent_; }
  /// Returns whether a score depends on the positions of its two tokens only through their
  /// distance.
  bool is_relative() const { return !depends_on_length() && scaling_.query_growth == 0; }

  /// Table of angles, (any number of rows, D) f32. Each row contains D/2 cosines, then D/2 sines.
  struct Angles {
    Tensor table;
    bool by_token = false;  // row i belongs to token i of the batch instead of position i
    Tensor query_scales{};
  };
  /// Reads the document lengths of a batch (B, T) if angles depend on them: if the scaling is
  /// dynamic or longrope, and T is longer than the original context. Blocks only in this case.
  void read_documents(const Tensor& positions, const Stream& stream);
  /// Returns angles for sequences of `length` positions. If `has_documents` is set, sequences
  /// contain several documents, which are rotated separately; call read_documents first.
  Angles of_sequences(std::int64_t length, bool has_documents, const Stream& stream);
  /// Returns angles for decoding. Row t < `positions` is for a sequence of t + 1 tokens.
  Angles by_step(std::int64_t positions, const Stream& stream);

 private:
  using RowWriter = std::function<void(float* row, std::int64_t position)>;
  bool is_dynamic() const { return scaling_.type == "dynamic"; }
  bool is_longrope() const { return scaling_.type == "longrope"; }
  bool depends_on_length() const { return is_dynamic() || is_longrope(); }
  bool depends_on_documents(std::int64_t length) const {
    return depends_on_length() && length > original_context();
  }
  std::int64_t original_context() const {
    return scaling_.original_context > 0 ? scaling_.original_context : context_;
  }
  Tensor query_scales(std::int64_t length, const Stream& stream);
  void make(Tensor& table, std::int64_t rows, const RowWriter& write, const Stream& stream) const;
  void write_documents(const std::vector<std::int64_t>& lengths, const Stream& stream);
  std::vector<float> frequencies(std::int64_t length) const;
  void write_row(float* row, std::int64_t position, const std::vector<float>& turns) const;
  double theta_;
  RotaryScaling scaling_;
  std::int64_t context_, head_size_, turned_pairs_;
  bool pairs_are_adjacent_;
  std::int64_t length_ = 0;
  Tensor table_, step_table_, document_table_, query_scales_;
  std::vector<std::int64_t> documents_;  // lengths of the documents in document_table_, in order
};

/// T5's relative position buckets: one per small distance, then buckets on a logarithmic scale, and
/// a last one for distances of at least `most`. Keys after the query use the second half of the
/// buckets if bidirectional, else bucket 0. Source: Raffel et al. 2020, section 2.1.
struct RelativeBuckets {
  std::int64_t count = 32;
  std::int64_t most = 128;
  bool bidirectional = false;
  /// Returns the bucket of `distance`, the key's position minus the query's.
  std::int64_t of(std::int64_t distance) const;
};

/// Learned relative position bias (Raffel et al. 2020, "T5"): one number per head and bucket,
/// "<name>.weight" (heads, buckets), initially 0. Layers may share a bias; their gradients are
/// summed.
class RelativeBias {
 public:
  struct Spec {
    std::int64_t heads = 1;  // number of query heads
    RelativeBuckets buckets{};
  };
  /// Throws ConfigError if the number of buckets or `most` is too small, or if a bidirectional bias
  /// has an odd number of buckets.
  RelativeBias(const ModuleName& name, const Spec& spec, const Stream& stream);

  /// Registers a layer with this bias. Throws ConfigError for another number of heads.
  void join(std::int64_t heads);
  /// Returns kernels::AttentionSpec::bias, (heads, any) f32, for at most `time` tokens.
  Tensor values(std::int64_t time, const Stream& stream);
  struct Attended {
    const Tensor &dy, &y, &log_sum_exp, &qkv, &positions;
  };
  /// Adds a layer's contribution to the gradient. `spec`: includes this bias.
  void backward(const Attended& attended, const kernels::AttentionSpec& spec, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit) { visit(table_); }

 private:
  const Tensor& places(std::int64_t time, const Stream& stream);
  std::vector<std::int32_t> places_of(std::int64_t time) const;
  RelativeBuckets buckets_;
  Parameter table_;
  std::int64_t layers_ = 0;
  Tensor places_;  // (1, heads·(2·time − 1)) i32
};

}  // namespace hybrid_trainer
