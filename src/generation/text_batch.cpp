#include "src/generation/text_batch.h"

#include "src/core/threads.h"
#include "src/generation/growing_text.h"

namespace hybrid_trainer {

namespace {

/// Forwards written texts in their original order.
class TextsInOrder {
 public:
  TextsInOrder(std::size_t count, const TextCallback& done) : texts_(count), done_(done) {}
  void add(std::size_t i, GeneratedText text) {
    texts_[i] = std::move(text);
    for (; next_ < texts_.size() && texts_[next_]; texts_[next_++].reset())
      done_(next_, *texts_[next_]);
  }

 private:
  std::vector<std::optional<GeneratedText>> texts_;  // waiting for earlier ones
  std::size_t next_ = 0;
  const TextCallback& done_;
};

struct TextInRow {
  TextInRow(std::size_t index_, const Tokenizer& tokenizer, std::int64_t vocabulary,
            std::vector<std::int32_t> prompt, const GenerationSettings& settings)
      : index(index_),
        growing(tokenizer, vocabulary, std::move(prompt), settings,
                [this](std::string_view piece) { written += piece; }) {}
  TextInRow(const TextInRow&) = delete;
  TextInRow& operator=(const TextInRow&) = delete;
  std::size_t index;
  std::int64_t dropped_tokens = 0;
  std::string written;
  std::int32_t next = 0;
  GrowingText growing;
};

/// The rows of a decoder, each empty or with a text.
class TextRows {
 public:
  TextRows(BatchDecoder& decoder, const ContextWindow& window, ContextOverflow overflow)
      : decoder_(decoder),
        window_(window),
        overflow_(overflow),
        rows_(static_cast<std::size_t>(decoder.rows())) {}

  bool have_text() const {
    return std::ranges::any_of(rows_, [](const auto& row) { return row != nullptr; });
  }
  template <class NextText>
  void fill(const NextText& next) {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      if (rows_[row] || !(rows_[row] = next())) continue;
      decoder_.begin(static_cast<std::int64_t>(row), rows_[row]->growing.text(), window_.pinned());
    }
  }
  /// Adds a token to each text, and moves finished texts to `order`.
  void grow(TextsInOrder& order) {
    run_tasks(std::ssize(rows_), [&](std::int64_t, std::int64_t row) {
      const auto& text = rows_[static_cast<std::size_t>(row)];
      if (text) text->next = text->growing.draw(decoder_.logits(row));
    });
    std::vector<BatchDecoder::Next> following;
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      if (!rows_[row]) continue;
      TextInRow& text = *rows_[row];
      if (text.growing.add(text.next)) {
        const std::int64_t tokens = std::ssize(text.growing.text());
        check_overflow(tokens, window_, overflow_);
        text.dropped_tokens = window_.dropped(tokens);
        following.push_back({static_cast<std::int64_t>(row), text.next});
      } else {
        order.add(text.index,
                  {std::move(text.written), text.growing.tokens(), text.dropped_tokens});
        rows_[row].reset();
      }
    }
    decoder_.add(following);
  }

 private:
  BatchDecoder& decoder_;
  ContextWindow window_;
  ContextOverflow overflow_;
  std::vector<std::unique_ptr<TextInRow>> rows_;
};

/// Returns the length of the longest text after it has grown by `more` tokens, at most `context`.
std::int64_t tokens_of(std::span<const std::vector<std::int32_t>> texts, std::int64_t more,
                       std::int64_t context) {
  std::int64_t longest = 0;
  for (const auto& text : texts) longest = std::max(longest, std::ssize(text));
  return longest + std::min(more, context);
}

}  // namespace

void continue_texts(BatchDecoder& decoder, const Tokenizer& tokenizer,
                    std::span<const std::vector<std::int32_t>> texts,
                    const GenerationSettings& settings, const TextCallback& done) {
  check(settings);
  for (const auto& text : texts) check_text(decoder.vocabulary(), tokenizer, text);
  TextsInOrder order(texts.size(), done);
  const ContextWindow window(decoder.context(), settings.pinned);
  TextRows rows(decoder, window, settings.overflow);
  std::size_t begun = 0;
  const auto next = [&]() -> std::unique_ptr<TextInRow> {
    for (; begun < texts.size() && settings.tokens == 0; ++begun) order.add(begun, {});
    if (begun == texts.size()) return nullptr;
    GenerationSettings own = settings;
    own.sampling.seed += begun;
    const std::size_t i = begun++;
    return std::make_unique<TextInRow>(
        i, tokenizer, decoder.vocabulary(),
        fit_prompt(texts[i], window, settings.tokens, settings.overflow).tokens, own);
  };
  for (rows.fill(next); rows.have_text(); rows.fill(next)) rows.grow(order);
}

void continue_texts(const FittingRows& rows, const Tokenizer& tokenizer,
                    std::span<const std::vector<std::int32_t>> texts,
                    const GenerationSettings& settings, const TextCallback& done) {
  check(settings);
  std::int64_t most = rows.most;
  for (std::size_t finished = 0; finished < texts.size();) {
    const std::size_t first = finished;
    const auto rest = texts.subspan(first);
    const DecodeCapacity room{
        .texts = std::min(most, std::ssize(rest)),
        .tokens = tokens_of(rest, settings.tokens, rows.model.config().context)};
    const auto decoder = make_fitting_batch_decoder(rows.model, room, rows.dtype, rows.stream);
    if (decoder->rows() < room.texts) rows.fewer(decoder->rows());
    GenerationSettings own = settings;
    own.sampling.seed += first;
    try {
      continue_texts(*decoder, tokenizer, rest, own, [&](std::size_t i, const GeneratedText& text) {
        done(first + i, text);
        finished = first + i + 1;
      });
    } catch (const OutOfMemory&) {
      if (decoder->rows() == 1) throw;
      rows.fewer(most = decoder->rows() / 2);
    }
  }
}

std::vector<std::string> generate_in_dtype(LanguageModel& model, DType dtype, const Stream& stream,
                                           const std::function<std::vector<std::string>()>& write) {
  std::map<Parameter*, DType> before;
  model.visit_parameters(
      [&](Parameter& weight) { before.emplace(&weight, weight.compute_dtype()); });
  const auto compute_as_before = [&] {
    model.round_inputs(false);
    for (const auto& [weight, of_weight] : before) weight->compute_in(of_weight, stream);
  };
  std::vector<std::string> texts;
  try {
    model.round_inputs(true);
    for (const auto& [weight, of_weight] : before) weight->compute_in(dtype, stream);
    texts = write();
  } catch (const OutOfMemory&) {  // training itself needs less memory, or reports the shortage
    texts.clear();
  } catch (...) {
    compute_as_before();
    throw;
  }
  compute_as_before();
  return texts;
}

}  // namespace hybrid_trainer
