
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/core/messages.h"
#include "src/core/threads.h"
#include "src/data/images/picture_processor.h"
#include "src/files/output_file.h"
#include "src/run/run_files.h"
#include "src/tasks/network_data.h"
#include "src/tasks/picture_rows.h"

namespace hybrid_trainer {

namespace {

/// Images with labels: "pixels" (B, H, W, 3) f32 and "label" (B) i32.
class PictureExamples final : public Dataset {
 public:
  struct Settings {
    bool mirrors = false;  // mirrors a random half of the images in each training epoch
    std::uint64_t seed = 0;
  };
  PictureExamples(std::vector<PictureRow> rows, const PictureProcessor& processor,
                  const Settings& settings)
      : rows_(std::move(rows)), processor_(processor), settings_(settings) {}
  std::int64_t size() const override { return std::ssize(rows_); }
  std::uint64_t order_key() const override { return 0x706963747572; }  // "pictur"
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override {
    return Batch(
        {{"pixels", Tensor::empty({examples, processor_.height(), processor_.width(), kColors},
                                  DType::kF32, MemoryKind::kData, stream)},
         {"label", Tensor::empty({examples}, DType::kI32, MemoryKind::kData, stream)}});
  }
  /// Reads the image. If it cannot be read, uses the next row's image and warns once. Throws
  /// DataError if none can be read, IoError.
  void write(std::int64_t number, const ExampleMemory& memory) const override {
    constexpr std::uint64_t kMirrorKey = 0x6D6972726F72;  // "mirror"
    const auto first = static_cast<std::uint64_t>(number);
    const bool mirrors = settings_.mirrors && memory.epoch() &&
                         random_word({settings_.seed, *memory.epoch(), kMirrorKey}, first) % 2 == 1;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const PictureRow& row = rows_[(first + i) % rows_.size()];
      if (row.is_damaged) continue;
      try {
        processor_.write(row.picture, memory.floats("pixels"), mirrors);
        memory.labels("label")[0] = row.target;
        return;
      } catch (const DataError& error) {
        warn("skipped a picture", error.what());
      } catch (const MissingInput& error) {
        warn("skipped a picture", error.what());
      }
    }
    throw DataError("none of the pictures can be read any more");
  }

 private:
  std::vector<PictureRow> rows_;
  PictureProcessor processor_;
  Settings settings_;
};

constexpr std::uint64_t kHeldPicturesKey = 0x68656C64;  // "held"
constexpr const char* kProcessorFile = "preprocessor_config.json";

/// Returns the steps of the model's folder, else ViTImageProcessor's defaults at `size`.
PictureSteps steps_of(const std::filesystem::path& model, std::int64_t size) {
  if (!model.empty()) return read_picture_steps(model);
  return {.height = size, .width = size};
}

PictureProcessor processor_of(const NetworkDataSource& source) {
  const std::int64_t size = resolved_model_config(source.config.model).vision.image_size;
  try {
    return PictureProcessor(steps_of(source.model, size), size, size);
  } catch (const DataError& error) {
    throw DataError(concat(source.model.string(), ": ", error.what()));
  }
}

PictureRows rows_in(const std::filesystem::path& path, const HybridTrainerConfig& config,
                    const PictureProcessor& processor, bool needs_labels = true) {
  return read_picture_rows(
      path, ColumnNames(config.data.columns), [&](const FilePart& file) { processor.check(file); },
      needs_labels);
}

/// Reads the pixels of all images and marks the damaged ones.
void check_pixels(PictureRows& read, const PictureProcessor& processor) {
  std::vector<std::string> problems(read.rows.size());
  run_tasks(std::ssize(read.rows), [&](std::int64_t, std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    std::vector<float> values(static_cast<std::size_t>(processor.values()));
    try {
      processor.write(read.rows[at].picture, values);
    } catch (const DataError& error) {
      problems[at] = error.what();
    }
  });
  for (std::size_t i = 0; i < problems.size(); ++i) {
    if (problems[i].empty()) continue;
    read.rows[i].is_damaged = true;
    read.refused.push_back({read.rows[i].line, problems[i], read.rows[i].file});
  }
}

void set_targets(PictureRows& read, const std::vector<ClassLabel>& classes) {
  std::vector<PictureRow> known;
  for (PictureRow& row : read.rows) {
    try {
      row.target = class_of(row.label, classes);
      known.push_back(std::move(row));
    } catch (const DataError& error) {
      read.refused.push_back({row.line, error.what(), row.file});
    }
  }
  read.rows = std::move(known);
}

void require_rows(const PictureRows& read) {
  if (std::ranges::all_of(read.rows, &PictureRow::is_damaged))
    throw DataError(concat(read.files.front().path.string(), ": every row is refused; ",
                           read.text_of(read.refused.front())));
}

class Pictures final : public NetworkData {
 public:
  explicit Pictures(const NetworkDataSource& source)
      : model_(source.model), processor_(processor_of(source)) {
    PictureRows read = rows_in(source.data, source.config, processor_, !source.is_predicted);
    std::optional<PictureRows> apart;
    if (!source.validation.empty()) apart = rows_in(source.validation, source.config, processor_);
    check_pixels(read, processor_);
    if (apart) check_pixels(*apart, processor_);
    choose_classes(source, read, apart);
    if (!source.is_predicted) set_targets(read, classes_);
    take(read);
    if (source.is_predicted && !refused_.empty())
      throw DataError(concat(refused_.front(), "; predictions need all rows, so correct or remove ",
                             refused_.size() == 1
                                 ? std::string("it")
                                 : concat("the ", refused_.size(), " refused rows")));
    if (apart) {
      set_targets(*apart, classes_);
      take(*apart);
      validation_ = std::move(apart->rows);
      train_ = std::move(read.rows);
    } else {
      const double share = source.is_measured ? 0 : source.config.data.validation_fraction;
      auto parts = divided(std::move(read.rows), share, kHeldPicturesKey);
      train_ = std::move(parts.train);
      validation_ = std::move(parts.validation);
    }
    std::erase_if(validation_, [](const PictureRow& row) { return row.is_damaged; });
    if (validation_.empty())
      throw DataError(concat(source.data.string(),
                             ": none of the validation pictures can be read; ", refused_.front()));
  }

  std::string description() const override {
    return concat(std::ranges::count(train_, false, &PictureRow::is_damaged),
                  " pictures for training, ", validation_.size(), " for validation, ",
                  classes_.size(), " classes");
  }
  DatasetPart training(const HybridTrainerConfig& config) const override {
    return examples(train_, config);
  }
  DatasetPart validation(const HybridTrainerConfig& config) const override {
    return examples(validation_, config);
  }
  HybridTrainerConfig completed(HybridTrainerConfig config) const override {
    config.model.labels = classes_;
    return config;
  }
  DataFacts contents(const HybridTrainerConfig&) const override {
    std::vector<std::int64_t> counts(classes_.size());
    for (const auto* rows : {&train_, &validation_})
      for (const PictureRow& row : *rows)
        if (!row.is_damaged) ++counts[static_cast<std::size_t>(row.target)];
    DataFacts facts;
    for (std::size_t i = 0; i < counts.size(); ++i)
      if (counts[i] > 0)
        facts.emplace_back(concat("class ", i, " ", classes_[i].name),
                           concat(counts[i], counts[i] == 1 ? " picture" : " pictures"));
    const std::int64_t without = std::ranges::count(counts, 0);
    if (without > 0) facts.emplace_back("without pictures", concat(without, " classes"));
    return facts;
  }
  DataFacts example(std::int64_t number, const HybridTrainerConfig&) const override {
    if (files_.size() > 1)
      throw UsageError("--show needs a single file; give a file instead of the folder");
    for (const auto* rows : {&train_, &validation_}) {
      const auto row = std::ranges::find(*rows, number, &PictureRow::line);
      if (row != rows->end()) return facts_of(*row, rows == &train_);
    }
    const std::string place = concat(files_.front().form.unit(), " ", number, " of ");
    for (const std::string& refused : refused_)
      if (refused.starts_with(place)) throw DataError(refused);
    throw DataError(concat(place, files_.front().path.string(), " has no picture"));
  }
  std::string checksum() const override { return checksum_; }
  std::int64_t examples() const override { return std::ssize(train_); }
  PredictionMaker prediction_maker(const HybridTrainerConfig&) const override {
    return [this](std::int64_t number, const std::vector<NamedTensor>& outputs) {
      const std::span<const float> logits{outputs.front().tensor.data<float>(), classes_.size()};
      Prediction found{.numbers = {logits.begin(), logits.end()},
                       .fields = class_fields(logits, classes_)};
      found.fields["image"] = validation_[static_cast<std::size_t>(number)].picture.name;
      return found;
    };
  }
  std::vector<std::string> notes() const override { return notes_; }
  /// Copies the preprocessor file, so that the run is usable without its initial folder.
  void write_files(const std::filesystem::path& run) const override {
    constexpr std::size_t kMaxBytes = 1 << 20;
    const std::filesystem::path to = run / kProcessorFile;
    if (std::filesystem::exists(to)) return;
    replace_file(to, model_.empty() ? processor_.steps().json()
                                    : read_file(model_ / kProcessorFile, kMaxBytes));
  }

 private:
  std::shared_ptr<const Dataset> examples(const std::vector<PictureRow>& rows,
                                          const HybridTrainerConfig& config) const {
    return std::make_shared<PictureExamples>(
        rows, processor_,
        PictureExamples::Settings{.mirrors = config.data.mirror_pictures,
                                  .seed = static_cast<std::uint64_t>(config.training.seed)});
  }
  DataFacts facts_of(const PictureRow& row, bool is_trained) const {
    std::vector<float> values(static_cast<std::size_t>(processor_.values()));
    processor_.write(row.picture, values);
    const auto [low, high] = std::ranges::minmax(values);
    double sum = 0;
    for (const float value : values) sum += static_cast<double>(value);
    return {{"picture", row.picture.name},
            {"label", row.label.text},
            {"class", concat(row.target, " ", classes_[static_cast<std::size_t>(row.target)].name)},
            {"model input",
             concat(processor_.height(), " x ", processor_.width(), " pixels of three colors, ",
                    brief(static_cast<double>(low)), " to ", brief(static_cast<double>(high)),
                    ", mean ", brief(sum / static_cast<double>(values.size())))},
            {"is for", is_trained ? "training" : "validation"}};
  }
  /// Uses the model's classes if they are fixed or contain all labels by name; else the data's.
  void choose_classes(const NetworkDataSource& source, const PictureRows& read,
                      const std::optional<PictureRows>& apart) {
    const RunPaths run{source.model.string()};
    const std::vector<ClassLabel> of_model =
        run.contains_run() ? config_of_run(run).model.labels : source.config.model.labels;
    std::vector<PictureRow> all = read.rows;
    if (apart) all.insert(all.end(), apart->rows.begin(), apart->rows.end());
    classes_ = of_model;
    if (source.is_trained || all.empty()) return;
    const bool are_numbers = std::ranges::all_of(
        all, [](const PictureRow& row) { return number_of(row.label).has_value(); });
    const bool are_named =
        !of_model.empty() && std::ranges::all_of(all, [&](const PictureRow& row) {
          return is_named(row.label, of_model);
        });
    if (are_named) {
      if (are_numbers)
        notes_.push_back(concat("the labels are numbers and refer to the ", of_model.size(),
                                " classes of the folder's model, ", of_model.front().name, " to ",
                                of_model.back().name, ", whose head is kept"));
      return;
    }
    try {
      classes_ = classes_in(all);
    } catch (const DataError& error) {
      throw DataError(concat(source.data.string(), ": ", error.what()));
    }
    if (const std::string similar = similar_classes_warning(classes_); !similar.empty())
      notes_.push_back("warning: " + similar);
    if (of_model.empty()) return;
    notes_.push_back(
        concat("the data has ", classes_.size(), " classes, ", classes_.front().name, " to ",
               classes_.back().name, ", but the folder's model has ", of_model.size(), " others, ",
               of_model.front().name, " to ", of_model.back().name,
               ": the head is new, initialized to zero",
               are_numbers ? "; to keep the folder's head, use its class names as labels" : ""));
  }

  void take(const PictureRows& read) {
    constexpr std::size_t kShown = 5;
    for (std::size_t i = 0; i < std::min(kShown, read.refused.size()); ++i)
      notes_.push_back(read.text_of(read.refused[i]));
    if (read.refused.size() > kShown)
      notes_.push_back(concat(read.refused.size() - kShown, " more rows are refused"));
    require_rows(read);
    files_.insert(files_.end(), read.files.begin(), read.files.end());
    for (const ReadRows::Refusal& one : read.refused) refused_.push_back(read.text_of(one));
    checksum_ += read.checksum;
  }

  std::filesystem::path model_;
  PictureProcessor processor_;
  std::vector<ClassLabel> classes_;
  std::vector<PictureRow> train_, validation_;
  std::vector<RowFile> files_;
  std::vector<std::string> refused_, notes_;
  std::string checksum_;
};

}  // namespace

std::unique_ptr<NetworkData> open_pictures(const NetworkDataSource& source) {
  if (source.data.empty())
    throw UsageError(concat("--data is missing: a ", source.config.model.family, " trains on a ",
                            R"(file of rows such as {"image": "a.png", "label": "cat"})"));
  return std::make_unique<Pictures>(source);
}

}  // namespace hybrid_trainer
