#include "hybrid_trainer/models/decoder.h"

#include <algorithm>
#include <cmath>

#include "src/models/decode_recording.h"
#include "src/models/layer_inputs.h"
#include "src/models/sequence_to_sequence.h"

namespace hybrid_trainer {

InitialDeviations default_deviations(const ModelConfig& config) {
  constexpr double kUsual = 0.02;
  const double widening = std::sqrt(std::max(1.0, 768.0 / static_cast<double>(config.width)));
  const double matrix = config.initializer_range.value_or(kUsual * widening);
  return {.embedding = config.initializer_range.value_or(kUsual),
          .matrix = matrix,
          .projection = matrix / std::sqrt(2.0 * static_cast<double>(config.layers))};
}

void collect_pattern_problems(const std::string& key, const std::string& pattern,
                              const std::vector<LetterWord>& letters, std::int64_t layers,
                              std::vector<std::string>& problems) {
  const auto is_known = [&](char letter) {
    return std::ranges::count(letters, letter, &LetterWord::letter) > 0;
  };
  if (!std::ranges::all_of(pattern, is_known))
    problems.push_back(concat(key, ": got ", pattern, ", want letters ", text_of(letters)));
  if (std::ssize(pattern) > layers) {
    problems.push_back(
        concat(key, ": got ", pattern, ", ", pattern.size(), " letters for ", layers,
               " layers; want at most one letter per layer; a shorter pattern is repeated"));
  }
}

void set_block_pattern(Attention::Spec& attention, const ModelConfig& config) {
  const BlockPatternConfig& given = config.attention_pattern;
  if (!given.is_on()) return;
  attention.heads.pattern = {.block = static_cast<std::int32_t>(given.block),
                             .local = static_cast<std::int32_t>(given.local_blocks),
                             .global = static_cast<std::int32_t>(given.global_blocks),
                             .random = static_cast<std::int32_t>(given.random_blocks)};
  attention.pattern_seed = static_cast<std::uint64_t>(given.seed);
}

void collect_block_pattern_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  const BlockPatternConfig& pattern = config.attention_pattern;
  const std::string local = "model.attention_pattern.local_blocks: got ";
  if (!pattern.is_on() && (pattern.global_blocks > 0 || pattern.random_blocks > 0)) {
    problems.push_back(
        concat(local, pattern.local_blocks,
               " with global_blocks or random_blocks; want at least 1, the query's own block"));
  }
  if (pattern.is_on() && config.window > 0) {
    problems.push_back(concat(
        local, pattern.local_blocks, " with model.window ", config.window,
        "; want only one of them, because local blocks already limit attention like a window"));
  }
  if (pattern.is_on() && config.bidirectional) {
    problems.push_back(
        concat(local, pattern.local_blocks,
               ", but attention patterns are only for decoders, and model.bidirectional is true"));
  }
}

std::int64_t padded_vocabulary(std::int64_t vocabulary) {
  const std::int64_t multiple = vocabulary >= 512 ? 64 : 16;
  return (vocabulary + multiple - 1) / multiple * multiple;
}

namespace {

BlockStack::Spec decoder_blocks(const DecoderSpec& spec, std::int64_t layers) {
  BlockStack::Spec blocks{.name = ModuleName("h", spec.files.layers),
                          .layers = layers,
                          .layer =
                              [&spec](std::int64_t block) {
                                const auto kind =
                                    spec.kinds.find(kind_of_layer(spec.pattern, block));
                                require(kind != spec.kinds.end(), "decoder: unknown kind of layer");
                                return kind->second;
                              },
                          .residual = spec.residual,
                          .applies_input_dropout = true};
  if (spec.final_norm) blocks.final_norm = ModuleName("ln_f", spec.files.final_norm);
  return blocks;
}

std::unique_ptr<TextHead> make_text_head(const ModelConfig& config, TextHead::Spec spec,
                                         const Stream& stream) {
  if (config.pooling.empty()) return nullptr;
  using kernels::Pooling;
  spec.pooling = config.pooling == "cls"    ? Pooling::kFirst
                 : config.pooling == "last" ? Pooling::kLast
                                            : Pooling::kMean;
  spec.width = config.width;
  spec.outputs = std::ssize(config.labels);
  std::int64_t inputs = config.width;
  for (const DenseLayer& layer : config.dense_layers()) {
    using Activation = HeadTransform::Activation;
    const auto index = spec.dense.size();
    spec.dense.push_back({.width = inputs,
                          .outputs = layer.outputs,
                          .dense = {concat("dense_", index), concat(index + 2, "_Dense/linear")},
                          .bias = layer.has_bias,
                          .activation = layer.activation == "tanh"   ? Activation::kTanh
                                        : layer.activation == "gelu" ? Activation::kGelu
                                                                     : Activation::kNone});
    inputs = layer.outputs;
  }
  return std::make_unique<TextHead>(spec, stream);
}

bool all_states_can(const std::vector<ResidualBlock::State>& blocks,
                    bool (BranchState::*can)() const) {
  return std::ranges::all_of(blocks, [&](const ResidualBlock::State& block) {
    return std::ranges::all_of(
        block, [&](const auto& state) { return state == nullptr || ((*state).*can)(); });
  });
}

template <class Visit>
void for_each_state(std::vector<ResidualBlock::State>& blocks, const Visit& visit) {
  for (ResidualBlock::State& block : blocks)
    for (const auto& state : block)
      if (state) visit(*state);
}

/// Returns texts and positions, (2, B·T) i32, of the next `time` tokens of one text or of the next
/// token of each text.
Tensor places_of(std::span<const std::int64_t> texts, std::int64_t time, const DecodeState& state,
                 const Stream& stream) {
  const std::int64_t rows = std::ssize(texts) * time;
  const Stream host(MemoryPool::create("host"));
  const Tensor places = Tensor::empty({2, rows}, DType::kI32, MemoryKind::kData, host);
  auto* const to = places.data<std::int32_t>();
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t text = texts[static_cast<std::size_t>(row / time)];
    const std::int64_t position = state.position(text) + row % time;
    require(position > 0 && position < state.room().tokens,
            "decoder: tokens must continue a text within the state's capacity");
    to[row] = static_cast<std::int32_t>(text);
    to[rows + row] = static_cast<std::int32_t>(position);
  }
  return wait_for_device(places, stream);
}

/// During its lifetime, the tape uses the pass over a batch's sources.
class SourceTape {
 public:
  SourceTape(ActivationTape& tape, const Batch& batch, std::int64_t places)
      : tape_(tape), first_token_(tape.pass().first_token) {
    tape_.set_positions(Tensor());  // the pass has the texts' positions
    tape_.set_segment(tape.pass().carry, first_token_ / batch.tokens_per_example() * places);
  }
  ~SourceTape() { tape_.set_segment(tape_.pass().carry, first_token_); }
  SourceTape(const SourceTape&) = delete;
  SourceTape& operator=(const SourceTape&) = delete;

 private:
  ActivationTape& tape_;
  std::int64_t first_token_;
};

}  // namespace

class Decoder::States final : public DecodeState {
 public:
  using DecodeState::DecodeState;
  bool can_rewind() const override { return all_states_can(blocks, &BranchState::can_rewind); }
  bool can_keep() const override { return all_states_can(blocks, &BranchState::can_keep); }
  bool can_record() const { return all_states_can(blocks, &BranchState::can_record); }
  std::vector<ResidualBlock::State> blocks;
  DecodeRecording recording;

 private:
  void grow_caches(std::int64_t tokens, const Stream& stream) override {
    const MemoryLabel label("keys and values");
    recording.drop();
    for_each_state(blocks, [&](BranchState& state) { state.grow(tokens, stream); });
  }
  void keep_states(std::int64_t text, const Stream& stream) override {
    const MemoryLabel label("states of recurrences");
    for_each_state(blocks, [&](BranchState& state) { state.keep(text, stream); });
  }
  void restore_states(std::int64_t text, const Stream& stream) override {
    for_each_state(blocks, [&](BranchState& state) { state.restore(text, stream); });
  }
  void branch_states(std::span<const std::int64_t> parents, std::int64_t tokens,
                     const Stream& stream) override {
    const MemoryLabel label("keys and values");
    for_each_state(blocks, [&](BranchState& state) { state.branch(parents, tokens, stream); });
  }
};

Decoder::Decoder(const ModelConfig& config, const DecoderSpec& spec, std::uint64_t seed,
                 const Stream& stream)
    : config_(config),
      rotary_(spec.rotary),
      embedding_({.rows = padded_vocabulary(config.vocabulary),
                  .positions = spec.positions,
                  .types = spec.token_types,
                  .width = config.width,
                  .factor = spec.embedding_scale,
                  .scales_only_tokens = spec.scales_only_tokens,
                  .first_position = spec.first_position},
                 stream),
      blocks_(decoder_blocks(spec, config.layers), stream),
      embedding_norm_(spec.embedding_norm ? make_norm({"ln_e", spec.files.embedding_norm},
                                                      config.width, spec.residual.norm, stream)
                                          : nullptr),
      own_head_(
          spec.tied_head || !config.language_head
              ? std::optional<Parameter>()
              : Parameter("lm_head.weight", embedding_.tokens().shape(), Role::kHead, stream)),
      head_transform_(spec.head_transform && config.language_head
                          ? std::make_unique<HeadTransform>(*spec.head_transform, stream)
                          : nullptr),
      head_bias_(spec.head_bias != DecoderSpec::Bias::kNone && config.language_head
                     ? std::optional<Parameter>(std::in_place, "lm_head.bias",
                                                Shape{embedding_.tokens().shape()[0], 1},
                                                Role::kVector, stream)
                     : std::nullopt),
      trains_head_bias_(spec.head_bias == DecoderSpec::Bias::kTrained),
      head_(head_table(), config.vocabulary, spec.logit_cap, static_cast<float>(spec.logit_scale),
            {head_bias_ ? &*head_bias_ : nullptr, trains_head_bias_}),
      text_head_(make_text_head(config, spec.text_head, stream)),
      source_(spec.source),
      layer_inputs_(spec.layer_inputs) {
  const Shape table{config.vocabulary, config.width};  // without padding
  embedding_.tokens().set_in_files({{spec.files.tokens + ".weight", table}});
  if (embedding_.has_positions())
    embedding_.positions().set_in_files(
        {{spec.files.positions + ".weight", embedding_.positions().shape()}});
  if (Parameter* const types = embedding_.types())
    types->set_in_files({{spec.files.types + ".weight", types->shape()}});
  if (own_head_) own_head_->set_in_files({{own_head_->name(), table, false, /*prefixed=*/false}});
  if (head_bias_ && trains_head_bias_) {
    head_bias_->set_in_files(
        {{.name = spec.files.head_bias, .shape = {config.vocabulary}, .prefixed = false}});
  } else if (head_bias_) {
    head_bias_->set_in_files({{.name = spec.files.head_bias,
                               .shape = {1, config.vocabulary},
                               .transposed = true,
                               .prefixed = false,
                               .may_be_missing = true}});
  }
  if (spec.tied_head && config.language_head) embedding_.tokens().add_contributor();  // the head
  initialize(spec.deviations, seed, stream);
  if (!spec.make_encoder) return;
  encoder_ = spec.make_encoder(embedding_.shared_tokens());
  encoder_->initialize(spec.deviations, seed, stream);
}

Decoder::~Decoder() = default;

void Decoder::initialize(const InitialDeviations& deviations, std::uint64_t seed,
                         const Stream& stream) {
  embedding_.visit_parameters(
      [&](Parameter& table) { initialize_normal(table, deviations.embedding, seed, stream); });
  if (own_head_) initialize_normal(*own_head_, deviations.embedding, seed, stream);
  if (head_transform_)
    initialize_normal(head_transform_->dense().weight(), deviations.matrix, seed, stream);
  if (layer_inputs_) layer_inputs_->initialize(deviations, seed, stream);
  blocks_.initialize(deviations, seed, stream);
  if (text_head_) text_head_->initialize(deviations, seed, stream);
  for (Parameter* table : {&embedding_.tokens(), &head_table()}) {
    fill_zero(table->master_in_place().rows(config_.vocabulary, table->shape()[0]), stream);
  }
}

double Decoder::flops_of(const Shape& tokens, std::int64_t targets) {
  double head = (head_table().trainable() ? 6.0 : 4.0) *
                static_cast<double>(config_.vocabulary * config_.width);
  if (!config_.language_head) head = 0;
  if (head_transform_) {
    const TokenFlops dense = head_transform_->dense().flops();
    head += dense.forward + dense.backward;
  }
  TokenFlops blocks = blocks_.flops(tokens[1]);
  if (layer_inputs_) blocks = blocks + layer_inputs_->flops();
  const double texts = head * static_cast<double>(targets) +
                       (blocks.forward + blocks.backward) * static_cast<double>(tokens.elements());
  if (!encoder_) return texts;
  const TokenFlops source = encoder_->flops();
  const double backward = encoder_->trains() ? source.backward : 0;
  return texts + (source.forward + backward) * static_cast<double>(tokens[0]);
}

double Decoder::recomputed_flops_of(const Shape& tokens, double share) {
  const double texts =
      blocks_.recomputed_flops(tokens[1], share) * static_cast<double>(tokens.elements());
  if (!encoder_ || !encoder_->trains()) return texts;
  return texts + encoder_->recomputed_flops(share) * static_cast<double>(tokens[0]);
}

std::vector<std::string> Decoder::parts() const {
  std::vector<std::string> parts;
  if (encoder_) parts = encoder_->parts();
  parts.emplace_back("w*e.*");
  for (std::string& pattern : blocks_.patterns()) parts.push_back(std::move(pattern));
  if (own_head_ || head_transform_) parts.emplace_back("lm_head.*");
  if (text_head_)
    for (const std::string& name : text_head_->parts()) parts.push_back(name + ".*");
  return parts;
}

Tensor Decoder::hidden_of(const Tensor& tokens, ActivationTape& tape, const Stream& stream) {
  const bool is_one_text = !tape.pass().positions;
  if (is_one_text && tokens.size(1) > config_.context) {
    throw ShapeMismatch(concat("decoder: got a sequence of ", tokens.size(1),
                               " tokens, want at most the context, ", config_.context));
  }
  read_documents(tape.pass(), stream);
  const MemoryLabel label("embedding");  // blocks label their own allocations
  Tensor x = embedding_.forward(tokens, tape.pass(), stream);
  if (embedding_norm_) x = embedding_norm_->forward(x, tape, stream);
  if (layer_inputs_) layer_inputs_->forward(tokens, x, tape, stream);
  x = blocks_.forward(std::move(x), tape, stream);
  if (layer_inputs_ && !tape.keeps()) layer_inputs_->drop();
  return x;
}

std::int64_t Decoder::segments(std::int64_t time, std::int64_t length) const {
  if (length <= 0 || time <= length || !supports_segments()) return 1;
  return (time + length - 1) / length;
}

bool Decoder::uses_segments(const Batch& batch, const Pass& pass) const {
  const bool needs_whole_texts =
      text_head_ || batch.find("halves") != nullptr || batch.find("ends") != nullptr;
  if (needs_whole_texts) return false;
  return pass.states != nullptr || segments(batch.tokens_per_example(), pass.segment) > 1;
}

/// Encodes the batch's sources for the layers that attend to them.
void Decoder::read_source(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  source_->set(encoder_->forward(batch, tape, stream), encoder_->lengths(batch));
}

Tensor Decoder::forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                        const Stream& stream) {
  if (text_head_) {
    tape.set_gradient_scale(gradient_scale);
    const Tensor x = hidden_states(batch, tape, stream);
    const MemoryLabel label("head");
    return text_head_->loss(x, batch, gradient_scale, tape, stream);
  }
  require_head();
  if (!encoder_) return text_loss(batch, gradient_scale, tape, stream);
  read_trained_source(batch, tape, stream);
  const Tensor loss = text_loss(batch, gradient_scale, tape, stream);
  if (!tape.keeps()) source_->drop();
  return loss;
}

/// Encodes the batch's sources, for a backward pass if the encoder trains.
void Decoder::read_trained_source(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  const SourceTape of_sources(tape, batch, encoder_->places());
  const bool trains = tape.keeps() && encoder_->trains();
  source_->set_requires_gradient(trains);
  ForwardOnlyTape passing(tape.pass());
  read_source(batch, tape.keeps() && !trains ? passing : tape, stream);
}

Tensor Decoder::hidden_states(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  if (encoder_) read_trained_source(batch, tape, stream);
  const Tensor x = hidden(batch, tape, stream);
  if (encoder_ && !tape.keeps()) source_->drop();
  return x.view({batch.tokens(), config_.width});
}

void Decoder::hidden_backward(const Batch& batch, Tensor gradient, ActivationTape& tape,
                              const Stream& stream) {
  const Shape& shape = batch.at("tokens").shape();
  gradient = gradient.view({shape[0], shape[1], config_.width});
  body_backward(std::move(gradient), batch, tape, stream);
  if (encoder_) source_backward(batch, tape, stream);
}

void Decoder::require_head() const {
  if (config_.language_head) return;
  throw Error(ExitCode::kConfig,
              "the model has no language head (model.language_head=false), so it cannot predict "
              "tokens; want a model with a language head");
}

Tensor Decoder::head_rows(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  const Tensor rows = x.view({x.elements() / config_.width, config_.width});
  return head_transform_ ? head_transform_->forward(rows, tape, stream) : rows;
}

Tensor Decoder::text_loss(const Batch& batch, float gradient_scale, ActivationTape& tape,
                          const Stream& stream) {
  tape.set_gradient_scale(gradient_scale);
  if (uses_segments(batch, tape.pass()))
    return segmented_.forward(batch, gradient_scale, tape, *this, stream);
  if (batch.find("halves") != nullptr) {
    const Tensor x = hidden(batch, tape, stream);
    const MemoryLabel label("head");
    return head_.preference(head_rows(x, tape, stream), batch, preference_, gradient_scale, tape,
                            stream);
  }
  const Tensor of_rows =
      Tensor::empty({batch.at("targets").elements()}, DType::kF32, MemoryKind::kWorkspace, stream);
  losses(of_rows, hidden(batch, tape, stream), batch, gradient_scale, tape, stream);
  return LanguageHead::mean(of_rows, batch.loss_divisor(), stream);
}

Tensor Decoder::hidden(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  const auto found = [&](const char* name) {
    const Tensor* const tensor = batch.find(name);
    return tensor != nullptr ? *tensor : Tensor();
  };
  tape.set_positions(found("positions"), found("is_token"), found("types"));
  return hidden_of(batch.at("tokens"), tape, stream);
}

/// Returns the rows of masked tokens (empty_masked_batch), or x for other batches.
static Tensor masked_rows(const Tensor& x, const Batch& batch, const Stream& stream) {
  const Tensor* const ends = batch.find("ends");
  if (ends == nullptr) return x;
  const std::int64_t width = x.size(2);
  const Tensor rows =
      Tensor::empty({ends->elements(), width}, DType::kF32, MemoryKind::kActivations, stream);
  kernels::pool_texts(rows, x.view({batch.tokens(), width}), *ends, kernels::Pooling::kLast,
                      stream);
  if (x.dtype() == DType::kF32) return rows;
  const Tensor shorter = Tensor::empty(rows.shape(), x.dtype(), MemoryKind::kActivations, stream);
  kernels::cast(shorter, rows, stream);
  return shorter;
}

/// Returns the gradient of all rows from the gradient of masked_rows.
static Tensor masked_rows_backward(const Tensor& dx, const Batch& batch, const Stream& stream) {
  const Tensor* const ends = batch.find("ends");
  if (ends == nullptr) return dx;
  const Tensor all =
      Tensor::empty({batch.tokens(), dx.size(1)}, dx.dtype(), MemoryKind::kActivations, stream);
  Tensor rows = dx;
  if (dx.dtype() != DType::kF32) {
    rows = Tensor::empty(dx.shape(), DType::kF32, MemoryKind::kActivations, stream);
    kernels::cast(rows, dx, stream);
  }
  kernels::pool_texts_backward(all, rows, *ends, kernels::Pooling::kLast, stream);
  return all;
}

/// Computes the undivided losses of all targets, f32, from the last norm's result.
void Decoder::losses(const Tensor& of_rows, const Tensor& x, const Batch& batch,
                     float gradient_scale, ActivationTape& tape, const Stream& stream) {
  const MemoryLabel label("head");
  head_.losses(of_rows, head_rows(masked_rows(x, batch, stream), tape, stream),
               batch.at("targets").view({of_rows.elements()}), batch.loss_divisor(), gradient_scale,
               tape, stream);
}

void Decoder::backward(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  if (text_head_) {
    Tensor dx = text_head_->backward(batch, tape.pass().dtype, tape, stream);
    return hidden_backward(batch, std::move(dx), tape, stream);
  }
  if (uses_segments(batch, tape.pass())) {
    segmented_.backward(batch, tape, *this, stream);
  } else {
    backward_from_losses(batch, tape, stream);
  }
  if (encoder_) source_backward(batch, tape, stream);
}

void Decoder::source_backward(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  const Tensor gradient = source_->take_gradient();
  source_->drop();
  if (!gradient) return;
  const SourceTape of_sources(tape, batch, encoder_->places());
  encoder_->backward(batch, gradient, tape, stream);
}

void Decoder::backward_from_losses(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  const MemoryLabel label("head");
  const Shape& shape = batch.at("tokens").shape();
  Tensor dx = head_.backward(tape, stream);
  if (head_transform_) dx = head_transform_->backward(dx, tape, stream);
  dx = masked_rows_backward(dx, batch, stream).view({shape[0], shape[1], config_.width});
  body_backward(std::move(dx), batch, tape, stream);
}

void Decoder::body_backward(Tensor dx, const Batch& batch, ActivationTape& tape,
                            const Stream& stream) {
  read_documents(tape.pass(), stream);
  const Tensor& tokens = batch.at("tokens");
  dx = blocks_.backward(std::move(dx), tape, stream);
  if (layer_inputs_) layer_inputs_->backward(dx, tokens, tape, stream);
  if (embedding_norm_) dx = embedding_norm_->backward(dx, tape, stream);
  embedding_.backward(dx, tokens, tape.pass(), stream);
}

void Decoder::visit_parameters(const ParameterVisitor& visit) {
  if (encoder_) encoder_->visit_parameters(visit);
  embedding_.visit_parameters(visit);
  if (layer_inputs_) layer_inputs_->visit_parameters(visit);
  if (embedding_norm_) embedding_norm_->visit_parameters(visit);
  blocks_.visit_parameters(visit);
  if (own_head_) visit(*own_head_);
  if (head_transform_) head_transform_->visit_parameters(visit);
  if (head_bias_) visit(*head_bias_);
  if (text_head_) text_head_->visit_parameters(visit);
}

void Decoder::visit_linears(const LinearVisitor& visit) {
  if (encoder_) encoder_->visit_linears(visit);
  if (layer_inputs_) layer_inputs_->visit_linears(visit);
  blocks_.visit_linears(visit);
  if (text_head_) text_head_->visit_linears(visit);
}

Batch Decoder::with_sources(Batch batch, const Stream& stream) const {
  if (!encoder_) return batch;
  std::vector<NamedTensor> tensors = batch.tensors();
  for (NamedTensor& source : encoder_->empty_sources(batch.size(), stream))
    tensors.push_back(std::move(source));
  Batch whole(std::move(tensors), batch.tokens_per_example());
  whole.set_targets(batch.targets());
  return whole;
}

void Decoder::encode(const Batch& sources, const Pass& pass, const Stream& stream) {
  if (!encoder_) return;
  ForwardOnlyTape tape(pass);
  tape.set_positions(Tensor());
  read_source(sources, tape, stream);
}

void Decoder::set_texts_per_source(std::int64_t texts) {
  if (encoder_) source_->set_texts_per_source(texts);
}

Tensor Decoder::logits(const Tensor& tokens, const Pass& pass, const Stream& stream) {
  require_head();
  require(!encoder_ || (source_->values().defined() && source_->values().size(0) == tokens.size(0)),
          "logits: a sequence-to-sequence model must first encode one source per text");
  ForwardOnlyTape tape(pass);
  const Tensor x = hidden_of(tokens, tape, stream);
  return head_.logits(head_rows(x, tape, stream), stream);
}

Tensor Decoder::text_outputs(const Batch& batch, const Pass& pass, const Stream& stream) {
  if (!text_head_) return LanguageModel::text_outputs(batch, pass, stream);
  ForwardOnlyTape tape(pass);
  return text_head_->output(hidden_states(batch, tape, stream), batch, tape, stream);
}

std::unique_ptr<DecodeState> Decoder::make_decode_state(DecodeCapacity room, DType dtype,
                                                        const Stream& stream) const {
  if (config_.bidirectional)
    throw Error(
        ExitCode::kConfig,
        "the model is an encoder (model.bidirectional), so it cannot generate text: each of its "
        "tokens depends on later ones; train a decoder for that");
  require_head();
  require(room.texts > 0 && room.tokens > 0 && room.tokens <= config_.context,
          "decoder: the state's capacity must be positive and within the context");
  const MemoryLabel label("keys and values");
  auto state = std::make_unique<States>(room);
  state->blocks = blocks_.make_states(room, dtype, stream);
  return state;
}

Tensor Decoder::next_logits(const Tensor& tokens, std::span<const std::int64_t> texts,
                            DecodeState& state, std::int64_t last, const Pass& pass,
                            const Stream& stream) {
  auto& states = dynamic_cast<States&>(state);
  const std::int64_t batch = tokens.size(0), time = tokens.size(1);
  require(std::ssize(texts) == batch && (batch == 1 || time == 1),
          "decoder: several texts can only be continued by one token each");
  require(last >= 1 && last <= time, "decoder: want logits of at most the given tokens");
  Tensor logits;
  if (batch == 1 && states.position(texts.front()) == 0) {
    logits = decode(tokens, {.begun = texts.front()}, states, last, pass, stream);
  } else {
    // Positions and texts are on the device, so that decoding can be recorded.
    const Tensor places = places_of(texts, time, states, stream);
    const Batch following({{"tokens", tokens},
                           {"texts", places.rows(0, 1).view(tokens.shape())},
                           {"positions", places.rows(1, 2).view(tokens.shape())}},
                          time);
    const bool is_many = batch == 1 && time > kMaxBitExactTokens;
    const auto enqueue = [&](const Batch& next, const Stream& on) {
      Pass step = pass;
      step.positions = next.at("positions");
      DecodeTexts where{.each = next.at("texts").view({next.tokens()})};
      if (is_many) where.alone = texts.front();
      return decode(next.at("tokens"), where, states, last, step, on);
    };
    logits = is_many || !states.can_record()
                 ? enqueue(following, stream)
                 : states.recording.run(*this, last, following, enqueue, stream);
  }
  for (const std::int64_t text : texts) states.advance(time, text);
  return logits;
}

Tensor Decoder::decode(const Tensor& tokens, const DecodeTexts& texts, const States& states,
                       std::int64_t last, const Pass& pass, const Stream& stream) {
  const std::int64_t batch = tokens.size(0), rows = tokens.elements();
  ForwardOnlyTape tape(pass);
  Tensor x = embedding_.forward(tokens, pass, stream);
  if (embedding_norm_) x = embedding_norm_->forward(x, tape, stream);
  if (layer_inputs_) layer_inputs_->forward(tokens, x, tape, stream);
  x = blocks_.decode(std::move(x), texts, states.blocks, pass, stream);
  if (layer_inputs_) layer_inputs_->drop();
  const Tensor wanted = x.as_rows().rows(batch > 1 ? 0 : rows - last, rows);
  return head_.logits(blocks_.normed(wanted, tape, stream), stream);
}

std::int64_t Decoder::parameter_count() {
  std::int64_t count = 0;
  visit_parameters([&](Parameter& parameter) {
    const bool padded = &parameter == &embedding_.tokens() || &parameter == &head_table();
    if (head_bias_ && &parameter == &*head_bias_) {
      count += trains_head_bias_ ? config_.vocabulary : 0;
      return;
    }
    count += padded ? config_.vocabulary * config_.width : parameter.elements();
  });
  return count;
}

}  // namespace hybrid_trainer
