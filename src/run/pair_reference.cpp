#include "src/run/pair_reference.h"

#include <boost/json.hpp>
#include <cstring>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/files/checksum.h"
#include "src/files/json.h"
#include "src/files/json_lookup.h"
#include "src/files/output_file.h"
#include "src/model_files/adapters/adapter_files.h"
#include "src/model_files/hugging_face/folder_weights.h"
#include "src/run/batch_parts.h"
#include "src/run/run_files.h"
#include "src/trainer/run_model.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kMaxReferenceBytes = std::size_t{16} << 30;

template <class Number>
std::string bytes_of_numbers(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

/// Returns the log-likelihoods of the answers in a batch, (B, T) f64 on the host, indexed by the
/// values of "halves". Splits the batch if memory is short.
Tensor wait_for_sums(LossModel& model, const Batch& batch, DType dtype, const Stream& host,
                     const Stream& stream) {
  const Tensor sums =
      Tensor::empty(batch.at("halves").shape(), DType::kF64, MemoryKind::kData, host);
  BatchParts(stream).run(batch, [&](std::int64_t first, const Batch& part) {
    ForwardOnlyTape tape({.training = false, .dtype = dtype});
    model.forward(part, 1.0f, tape, stream);
    wait_for_copy(sums.rows(first, first + part.size()), model.preference()->sums(), stream);
  });
  return sums;
}

/// Returns the log-likelihoods of the answers in this rank's batches, in order.
std::vector<double> own_numbers(LossModel& model, const PackedRows& rows, std::int64_t at_once,
                                DType dtype, const RunRanks& ranks, const Stream& stream) {
  const std::int64_t rank = ranks.as_simulated().rank;
  const Stream host(make_host_pool(stream.device()));
  const Batch memory = rows.empty_batch(at_once, host);
  std::vector<double> numbers;
  BatchUpload upload;
  for (std::int64_t first = 0, index = 0; first < rows.size(); first += at_once, ++index) {
    if (index % ranks.size() != rank) continue;
    const std::int64_t count = std::min(at_once, rows.size() - first);
    const Batch batch = rows.read(first, memory.examples(0, count));
    const Tensor sums = wait_for_sums(model, upload.to_device(batch, stream), dtype, host, stream);
    for (std::int64_t b = 0; b < count; ++b) {
      const double* const of_halves = sums.data<double>() + b * sums.size(1);
      const auto halves = 2 * std::ssize(rows.rows_of(first + b));
      numbers.insert(numbers.end(), of_halves, of_halves + halves);
    }
  }
  return numbers;
}

std::string checksum_of_rows(const std::vector<ExampleRow>& rows) {
  Checksum sum;
  for (const ExampleRow& row : rows) {
    const std::int64_t head[] = {std::ssize(row.tokens), row.rejected_at};
    sum.add(head, sizeof head);
    sum.add(row.tokens.data(), row.tokens.size() * sizeof(std::int32_t));
    const std::vector<char> is_target(row.is_target.begin(), row.is_target.end());
    sum.add(is_target.data(), is_target.size());
  }
  return sum.text();
}

}  // namespace

static boost::json::value head_of_reference(const std::string& content, const std::string& file) {
  return parse_json_text(std::string_view(content).substr(0, content.find('\n')), file);
}

/// Returns the `base` of the key in a reference file (identity_of_start and precision), or "".
static std::string base_of_reference(const std::string& file) {
  if (!std::filesystem::exists(file)) return "";
  return text_at(head_of_reference(read_file(file, kMaxReferenceBytes), file), "/base");
}

std::string identity_of_start(const ModelFolder& base, const std::filesystem::path& adapter) {
  return concat(identity_of_base(base), adapter.empty() ? "" : " ",
                adapter.empty() ? "" : identity_of_adapter(adapter));
}

ReferenceKey reference_key(const ExampleData& data, std::string base) {
  return {.rows = checksum_of_rows(data.train) + checksum_of_rows(data.validation),
          .base = std::move(base),
          .pairs = data.train.size() + data.validation.size()};
}

std::shared_ptr<const PairReferences> validation_references(const RunPaths& run,
                                                            const ExampleData& data) {
  const auto all = read_reference(reference_file(run), reference_key(data, ""));
  if (!all)
    throw DataError(concat(reference_file(run),
                           ": does not exist or belongs to other pairs, but the evaluation needs "
                           "the initial model's results in it; restore the file from a copy"));
  return std::make_shared<PairReferences>(all->begin() + std::ssize(data.train), all->end());
}

std::shared_ptr<const PairReferences> references_of_base(const RunPaths& paths,
                                                         const PackedRows& rows,
                                                         std::int64_t at_once,
                                                         const Stream& stream) {
  const RunData data = data_of_run(paths);
  const HybridTrainerConfig config = config_of_run(paths);
  const ModelFolder base = base_of_run(paths).value_or(data.base);
  if (base.empty() || !base.has_weights())
    throw MissingInput(concat(base.string(),
                              ": the run's initial model does not exist, but evaluating other "
                              "pairs needs it as the reference; restore it"));
  if (!std::filesystem::exists(reference_file(paths)))
    throw MissingInput(
        concat(reference_file(paths),
               ": does not exist, but it identifies the run's initial model, which evaluating "
               "other pairs needs as the reference; restore the file from a copy"));
  if (!base_of_reference(reference_file(paths))
           .starts_with(identity_of_start(base, data.adapter) + " "))
    throw DataError(concat(base.string(), data.adapter.empty() ? "" : " with ",
                           data.adapter.string(),
                           " is not the run's initial model: its files differ, but evaluating "
                           "other pairs needs the initial model as the reference; restore it"));
  const auto model = make_run_model(config, base, stream, model_families());
  if (!data.adapter.empty()) read_adapter_weights(data.adapter, *model, config.model, stream);
  return std::make_shared<PairReferences>(
      compute_reference(*model, rows, at_once, DType::kF32, RunRanks(nullptr), stream));
}

void write_reference(const std::string& file, const ReferenceKey& key,
                     const PairReferences& references) {
  const std::string numbers = bytes_of_numbers(references);
  const boost::json::object head{{"version", 1},
                                 {"pairs", references.size()},
                                 {"rows", key.rows},
                                 {"base", key.base},
                                 {"checksum", checksum_of(numbers)}};
  replace_file(file, json_line(head) + "\n" + numbers);
}

std::optional<PairReferences> read_reference(const std::string& file, const ReferenceKey& key) {
  if (!std::filesystem::exists(file)) return {};
  const std::string content = read_file(file, kMaxReferenceBytes);
  const std::size_t end = content.find('\n');
  const std::string numbers = end == content.npos ? "" : content.substr(end + 1);
  const boost::json::value head = head_of_reference(content, file);
  if (text_at(head, "/checksum") != checksum_of(numbers) ||
      numbers.size() % sizeof(PairReference) != 0)
    throw DataError(concat(file,
                           ": is damaged, but the run needs the initial model's results in it; "
                           "restore the file from a copy, or start a new run"));
  const bool is_of_base = key.base.empty() || key.base == text_at(head, "/base");
  if (text_at(head, "/rows") != key.rows || !is_of_base ||
      numbers.size() / sizeof(PairReference) != key.pairs)
    return {};
  PairReferences references(key.pairs);
  std::memcpy(references.data(), numbers.data(), numbers.size());
  return references;
}

PairReferences compute_reference(LossModel& model, const PackedRows& rows,
                                 std::int64_t sequences_at_once, DType dtype, const RunRanks& ranks,
                                 const Stream& stream) {
  require(model.preference() != nullptr,
          "compute_reference: the model does not support a loss of pairs");
  const std::int64_t at_once = std::min(sequences_at_once, rows.size());
  const auto compute_in = [&](DType wanted) {
    model.visit_parameters([&](Parameter& weight) { weight.compute_in(wanted, stream); });
  };
  compute_in(dtype);
  const std::vector<std::string> all =
      ranks.gather(bytes_of_numbers(own_numbers(model, rows, at_once, dtype, ranks, stream)));
  compute_in(DType::kF32);
  model.preference()->clear(stream);
  PairReferences references(rows.rows().size());
  std::vector<std::size_t> read(all.size());  // bytes
  for (std::int64_t sequence = 0; sequence < rows.size(); ++sequence) {
    const auto rank = static_cast<std::size_t>(sequence / at_once) % all.size();
    for (const std::size_t row : rows.rows_of(sequence)) {
      require(read[rank] + sizeof(PairReference) <= all[rank].size(),
              "ranks must have the same pairs of answers");
      std::memcpy(&references[row], all[rank].data() + read[rank], sizeof(PairReference));
      read[rank] += sizeof(PairReference);
    }
  }
  return references;
}

}  // namespace hybrid_trainer
