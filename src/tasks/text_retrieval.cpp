#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "src/core/threads.h"
#include "src/model_files/hugging_face/sentence_folder.h"
#include "src/run/fine_tuning_method.h"
#include "src/run/retrieval.h"
#include "src/run/text_data.h"
#include "src/run/text_outputs.h"
#include "src/tasks/task_kind.h"

namespace hybrid_trainer {

namespace {

/// How the model's folder embeds texts for retrieval.
struct RetrievalSteps {
  std::string query_prompt{}, document_prompt{};
  EmbeddingSteps embedding{};
  bool is_cosine = true;

  std::vector<float> vector_of(std::span<const float> output) const {
    const std::vector<float> vector = embedding_of(output, embedding);
    return is_cosine ? normalized(vector) : vector;
  }
};

/// Returns the first of the named prompts that the pipeline has, or its default one.
std::string prompt_of(const SentencePipeline& pipeline, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto found = pipeline.prompts.find(name);
    if (found != pipeline.prompts.end()) return found->second;
  }
  return pipeline.default_prompt.empty() ? "" : pipeline.prompts.at(pipeline.default_prompt);
}

/// Returns the steps of the model's folder. A run was trained without prompts and for cosines.
RetrievalSteps steps_of(const TrainedRun& run) {
  const bool is_run = RunPaths{run.folder.string()}.contains_run();
  const EmbeddingSteps embedding = embedding_steps_of(run);
  if (is_run || run.sentence_folder.empty() || !has_sentence_pipeline(run.sentence_folder))
    return {.embedding = embedding};
  const SentencePipeline pipeline = read_sentence_pipeline(run.sentence_folder);
  if (pipeline.similarity != "cosine" && pipeline.similarity != "dot")
    throw DataError(concat(run.sentence_folder.string(), ": its similarity function is ",
                           pipeline.similarity, "; retrieval wants cosine or dot"));
  return {.query_prompt = prompt_of(pipeline, {"query"}),
          .document_prompt = prompt_of(pipeline, {"document", "passage", "corpus"}),
          .embedding = embedding,
          .is_cosine = pipeline.similarity == "cosine"};
}

class Embedder {
 public:
  Embedder(const TrainedRun& run, DType dtype, const Stream& stream)
      : run_(run),
        packing_(text_packing(run.config, *run.tokenizer)),
        steps_(steps_of(run)),
        dtype_(dtype),
        stream_(stream),
        host_(make_host_pool(stream.device())) {}

  /// Returns the embeddings of `count` texts, (count, width) f32 in host memory. `text_at(i)` is a
  /// text, and `name` its name in messages.
  template <class TextAt>
  Tensor embeddings(std::size_t count, const std::string& prompt, const char* name,
                    const TextAt& text_at) const {
    Tensor all;
    for (std::size_t begin = 0; begin < count; begin += kTextsAtOnce) {
      std::vector<TextRow> rows(std::min(kTextsAtOnce, count - begin));
      run_each(std::ssize(rows), 16, [&](std::int64_t i) {
        const std::size_t index = begin + static_cast<std::size_t>(i);
        rows[static_cast<std::size_t>(i)] = row_of(prompt + text_at(index), name, index);
      });
      PackedTexts::Settings packing = packing_;
      packing.sequence_length = fitted_length(rows, usual_row_length(run_.config.model));
      const PackedTexts texts(std::move(rows), packing);
      const TextOutputs outputs =
          text_outputs(run_.model(), texts, run_.config.data.batch_size, dtype_, stream_);
      for (std::int64_t text = 0; text < outputs.values.size(0); ++text) {
        const std::vector<float> vector = steps_.vector_of(outputs.of(text));
        if (!all)
          all = Tensor::empty({static_cast<std::int64_t>(count), std::ssize(vector)}, DType::kF32,
                              MemoryKind::kData, host_);
        std::ranges::copy(
            vector, all.data<float>() + (static_cast<std::int64_t>(begin) + text) * all.size(1));
      }
    }
    return all;
  }
  const RetrievalSteps& steps() const { return steps_; }
  const Stream& host() const { return host_; }

 private:
  static constexpr std::size_t kTextsAtOnce = 4096;

  TextRow row_of(const std::string& text, const char* what, std::size_t index) const {
    ModelInput input = run_.tokenizer->encode_texts(text, {}, {.ids = text_limit(run_.config)},
                                                    ControlText::kAsTokens);
    if (input.ids.empty()) throw DataError(concat(what, " ", index + 1, " has no tokens"));
    const std::int32_t largest = std::ranges::max(input.ids);
    if (largest >= run_.config.model.vocabulary)
      throw DataError(
          concat(what, " ", index + 1, " has the token ", run_.tokenizer->token_bytes(largest),
                 ", which is outside the model's vocabulary of ", run_.config.model.vocabulary));
    TextRow row{.ends = {std::ssize(input.ids)}};
    row.tokens = std::move(input.ids);
    row.types = std::move(input.types);
    return row;
  }

  const TrainedRun& run_;
  const PackedTexts::Settings packing_;
  const RetrievalSteps steps_;
  const DType dtype_;
  const Stream& stream_;
  const Stream host_;
};

void require_embeddings(const TrainedRun& run, const std::string& folder) {
  if (run.config.objective != "embed" || !run.config.pools())
    throw UsageError(concat("hybrid eval: --retrieval: ", folder,
                            " is not an embedding model; fine-tune it with ",
                            "hybrid finetune --task embed"));
  if (!run.tokenizer) throw DataError(concat(folder, " has no tokenizer to encode texts"));
}

}  // namespace

Findings retrieval_findings(const TrainedRun& run, const RetrievalRequest& requested, DType dtype,
                            const Stream& stream) {
  require_embeddings(run, requested.folder);
  const RetrievalSet set =
      read_retrieval_set(requested.corpus, requested.queries, requested.relevant);
  const Embedder embedder(run, dtype, stream);
  const Tensor documents =
      embedder.embeddings(set.documents.size(), embedder.steps().document_prompt, "document",
                          [&](std::size_t i) { return set.documents[i]; });
  const Tensor queries =
      embedder.embeddings(set.queries.size(), embedder.steps().query_prompt, "query",
                          [&](std::size_t i) { return set.queries[i].text; });
  const RetrievalScore score = score_retrieval(documents, queries, set, embedder.host());
  return {score.text(), score.json()};
}

}  // namespace hybrid_trainer
