// Trains low-rank adapters (LoRA) beside frozen quantized weights: two linear layers W1[512,256] and W2[256,512] in Q4_K, each with
// adapters A[r,K] and B[N,r], so that a layer is  Y = X W^T + s (X A^T) B^T.  What is frozen stays quantized: forward is mul_mat, and the
// gradient passes back through W by out_prod; no dequantized copy is ever made. The adapters are small, and plain C++ here.
//   lora_train [--device SPEC] [--steps N]
// First every gradient is checked against central differences of the loss, then the adapters are trained towards a teacher that differs
// from the model by adapters of its own. Exits 1 when a gradient is off or the loss does not fall.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "examples/device_memory.h"
#include "examples/q4_k.h"
#include "quern/context.h"

namespace {

using quern::Accuracy;
using quern::Context;
using quern::Op;
using quern::Plan;
using quern::Result;
using quern::Status;
using quern::examples::DeviceBuffer;
using quern::examples::DeviceMemory;
using Random = std::mt19937;

constexpr std::int64_t kIn = 256, kHidden = 512, kOut = 256, kRank = 8, kTokens = 16, kBatches = 4;
constexpr double kScale = 2;  // alpha / r

// ---- Small dense matrices on the host, in double: what is compared with differences of the loss must not drown in rounding.

struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;

  static Matrix zeros(std::int64_t rows, std::int64_t columns) {
    return {rows, columns, std::vector<double>(static_cast<std::size_t>(rows * columns))};
  }
  static Matrix random(std::int64_t rows, std::int64_t columns, double deviation, Random& random) {
    Matrix m = zeros(rows, columns);
    std::normal_distribution<double> normal(0, deviation);
    for (double& v : m.values) v = normal(random);
    return m;
  }
  double& at(std::int64_t row, std::int64_t column) { return values[static_cast<std::size_t>(row * columns + column)]; }
  double at(std::int64_t row, std::int64_t column) const { return values[static_cast<std::size_t>(row * columns + column)]; }
};

Matrix transposed(const Matrix& m) {
  Matrix t = Matrix::zeros(m.columns, m.rows);
  for (std::int64_t i = 0; i < m.rows; ++i)
    for (std::int64_t j = 0; j < m.columns; ++j) t.at(j, i) = m.at(i, j);
  return t;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c = Matrix::zeros(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t k = 0; k < a.columns; ++k)
      for (std::int64_t j = 0; j < b.columns; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
  return c;
}

void add(Matrix& to, const Matrix& m, double factor) {
  for (std::size_t i = 0; i < to.values.size(); ++i) to.values[i] += factor * m.values[i];
}

double root_mean_square(const Matrix& m) {
  double sum = 0;
  for (double v : m.values) sum += v * v;
  return std::sqrt(sum / static_cast<double>(m.values.size()));
}

// ---- The frozen weight: Q4_K on the device, used in both directions.

class Device {
 public:
  static Result<Device> open(const quern::ContextOptions& options) {
    QUERN_ASSIGN(Context context, Context::open(options));
    QUERN_ASSIGN(auto memory, DeviceMemory::open(context, options));
    return Device(std::move(context), std::move(memory));
  }
  const Context& context() const { return context_; }
  DeviceMemory& memory() const { return *memory_; }

  // One workspace serves all launches: they follow each other on one stream.
  Status reserve_workspace(std::size_t bytes) {
    if (workspace_ && workspace_->bytes() >= bytes) return {};
    QUERN_ASSIGN(workspace_, DeviceBuffer::make(*memory_, bytes));
    return {};
  }
  void* workspace() const { return workspace_ ? workspace_->data() : nullptr; }
  std::size_t workspace_bytes() const { return workspace_ ? workspace_->bytes() : 0; }

 private:
  Device(Context context, std::unique_ptr<DeviceMemory> memory) : context_(std::move(context)), memory_(std::move(memory)) {}

  Context context_;
  std::unique_ptr<DeviceMemory> memory_;
  std::optional<DeviceBuffer> workspace_;
};

class FrozenWeight {
 public:
  static Result<FrozenWeight> make(Device& device, std::int64_t n, std::int64_t k, Random& random) {
    const auto dense = Matrix::random(n, k, 1 / std::sqrt(static_cast<double>(k)), random);
    const std::vector<float> values(dense.values.begin(), dense.values.end());
    const auto blocks = quern::examples::quantize_q4_k(values);
    QUERN_ASSIGN(auto weights, DeviceBuffer::make(device.memory(), blocks.size()));
    QUERN_TRY(device.memory().copy_in(weights.data(), blocks.data(), blocks.size()));
    // The file's blocks into planes, once and in place; both ops read the same copy.
    QUERN_ASSIGN(const Plan repack, device.context().plan_prepare_weights(quern::WeightType::q4_k, n, k));
    QUERN_TRY(device.reserve_workspace(repack.workspace_bytes()));
    QUERN_TRY(
        device.context().prepare_weights(nullptr, repack, weights.data(), weights.data(), device.workspace(), device.workspace_bytes()));
    QUERN_ASSIGN(auto in, DeviceBuffer::make(device.memory(), static_cast<std::size_t>(kTokens * std::max(n, k)) * sizeof(float)));
    QUERN_ASSIGN(auto out, DeviceBuffer::make(device.memory(), static_cast<std::size_t>(kTokens * std::max(n, k)) * sizeof(float)));
    FrozenWeight frozen(device, n, k, std::move(weights), std::move(in), std::move(out));
    for (Accuracy accuracy : {Accuracy::f32, Accuracy::normal}) {
      QUERN_TRY(frozen.add_plan(Op::mul_mat, accuracy));
      QUERN_TRY(frozen.add_plan(Op::out_prod, accuracy));
    }
    QUERN_TRY(frozen.compare_with(dense, random));
    return frozen;
  }

  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }
  std::size_t bytes() const { return weights_.bytes(); }

  // X W^T, and G W: what a gradient of the one's output is at its input.
  Result<Matrix> forward(const Matrix& x, Accuracy accuracy) const { return run(Op::mul_mat, accuracy, x, n_); }
  Result<Matrix> backward(const Matrix& g, Accuracy accuracy) const { return run(Op::out_prod, accuracy, g, k_); }

 private:
  FrozenWeight(Device& device, std::int64_t n, std::int64_t k, DeviceBuffer weights, DeviceBuffer in, DeviceBuffer out)
      : device_(&device), n_(n), k_(k), weights_(std::move(weights)), in_(std::move(in)), out_(std::move(out)) {}

  Status add_plan(Op op, Accuracy accuracy) {
    const quern::Problem problem{
        .op = op, .type = quern::WeightType::q4_k, .layout = quern::Layout::planar, .m = kTokens, .n = n_, .k = k_, .accuracy = accuracy};
    QUERN_TRY(device_->context().supports(problem));
    QUERN_ASSIGN(Plan plan, device_->context().plan(problem));
    QUERN_TRY(device_->reserve_workspace(plan.workspace_bytes()));
    plans_.push_back(std::move(plan));
    return {};
  }

  // Four bits cost some per cent of an output; bits in the wrong place would cost all of it.
  Status compare_with(const Matrix& dense, Random& random) const {
    const Matrix x = Matrix::random(kTokens, k_, 1, random), wanted = product(x, transposed(dense));
    QUERN_ASSIGN(Matrix off, forward(x, Accuracy::f32));
    add(off, wanted, -1);
    const double relative = root_mean_square(off) / root_mean_square(wanted);
    std::printf("W[%ld,%ld] in Q4_K: outputs are off by %.1f%%\n", static_cast<long>(n_), static_cast<long>(k_), 100 * relative);
    if (relative < 0.15) return {};
    return quern::Error{quern::ErrorCode::kCorrupt, "the quantized weights are not those that were quantized", {}};
  }

  Result<Matrix> run(Op op, Accuracy accuracy, const Matrix& x, std::int64_t columns) const {
    const auto plan =
        std::find_if(plans_.begin(), plans_.end(), [&](const Plan& p) { return p.problem().op == op && p.problem().accuracy == accuracy; });
    std::vector<float> values(x.values.begin(), x.values.end());
    QUERN_TRY(device_->memory().copy_in(in_.data(), values.data(), values.size() * sizeof(float)));
    QUERN_TRY(plan->launch(nullptr, {.w = {.data = weights_.data(), .rows = n_, .columns = k_},
                                     .x = {.data = in_.data(), .rows = x.rows, .columns = x.columns},
                                     .y = {.data = out_.data(), .rows = x.rows, .columns = columns},
                                     .workspace = device_->workspace(),
                                     .workspace_bytes = device_->workspace_bytes()}));
    values.resize(static_cast<std::size_t>(x.rows * columns));
    QUERN_TRY(device_->memory().copy_out(values.data(), out_.data(), values.size() * sizeof(float)));
    return Matrix{x.rows, columns, {values.begin(), values.end()}};
  }

  Device* device_;
  std::int64_t n_, k_;
  DeviceBuffer weights_, in_, out_;
  std::vector<Plan> plans_;
};

// ---- Layers, the model and its loss.

struct Adapter {
  Matrix a, b;  // [r,K], [N,r]
  static Adapter random(const FrozenWeight& w, double deviation_of_b, Random& random) {
    return {Matrix::random(kRank, w.k(), 1 / std::sqrt(static_cast<double>(w.k())), random),
            Matrix::random(w.n(), kRank, deviation_of_b, random)};
  }
};

Result<Matrix> layer(const FrozenWeight& w, const Adapter& lora, const Matrix& x, Accuracy accuracy) {
  QUERN_ASSIGN(Matrix y, w.forward(x, accuracy));
  add(y, product(product(x, transposed(lora.a)), transposed(lora.b)), kScale);
  return y;
}

// From the gradient of the layer's output to those of its adapters and of its input.
Result<Matrix> layer_gradients(const FrozenWeight& w, const Adapter& lora, const Matrix& x, const Matrix& gy, Accuracy accuracy,
                               Adapter* gradient) {
  const Matrix gy_b = product(gy, lora.b);
  gradient->a = product(transposed(gy_b), x);
  gradient->b = product(transposed(gy), product(x, transposed(lora.a)));
  for (Matrix* g : {&gradient->a, &gradient->b})
    for (double& v : g->values) v *= kScale;
  QUERN_ASSIGN(Matrix gx, w.backward(gy, accuracy));
  add(gx, product(gy_b, lora.a), kScale);
  return gx;
}

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }
Matrix silu(Matrix m) {
  for (double& v : m.values) v *= sigmoid(v);
  return m;
}
void times_silu_slope(Matrix& g, const Matrix& at) {
  for (std::size_t i = 0; i < g.values.size(); ++i) {
    const double v = at.values[i], s = sigmoid(v);
    g.values[i] *= s * (1 + v * (1 - s));
  }
}

struct Model {
  const FrozenWeight *w1, *w2;
  Adapter first, second;
};

Result<Matrix> predict(const Model& model, const Matrix& x, Accuracy accuracy) {
  QUERN_ASSIGN(Matrix hidden, layer(*model.w1, model.first, x, accuracy));
  return layer(*model.w2, model.second, silu(std::move(hidden)), accuracy);
}

double mean_square(const Matrix& error) { return std::pow(root_mean_square(error), 2); }

Result<double> loss(const Model& model, const Matrix& x, const Matrix& target, Accuracy accuracy) {
  QUERN_ASSIGN(Matrix error, predict(model, x, accuracy));
  add(error, target, -1);
  return mean_square(error);
}

struct Gradients {
  double loss = 0;
  Adapter first, second;
  Matrix x;  // what a layer below would be given
};

Result<Gradients> gradients(const Model& model, const Matrix& x, const Matrix& target, Accuracy accuracy) {
  QUERN_ASSIGN(const Matrix hidden, layer(*model.w1, model.first, x, accuracy));
  const Matrix active = silu(hidden);
  QUERN_ASSIGN(Matrix error, layer(*model.w2, model.second, active, accuracy));
  add(error, target, -1);

  Gradients g;
  g.loss = mean_square(error);
  for (double& v : error.values) v *= 2 / static_cast<double>(error.values.size());
  QUERN_ASSIGN(Matrix g_hidden, layer_gradients(*model.w2, model.second, active, error, accuracy, &g.second));
  times_silu_slope(g_hidden, hidden);
  QUERN_ASSIGN(g.x, layer_gradients(*model.w1, model.first, x, g_hidden, accuracy, &g.first));
  return g;
}

// ---- First: are the gradients right?

// The largest |gradient - difference| of a sample of entries, relative to the entry's size plus the matrix's root mean square.
Result<double> worst_error(Matrix& parameter, const Matrix& gradient, const std::function<Result<double>()>& loss_now, Random& random) {
  constexpr int kEntries = 8;
  const double step = 3e-2 * root_mean_square(parameter), typical = root_mean_square(gradient);
  double worst = 0;
  for (int i = 0; i < kEntries; ++i) {
    const std::size_t at = random() % parameter.values.size();
    const double kept = parameter.values[at];
    parameter.values[at] = kept + step;
    QUERN_ASSIGN(const double above, loss_now());
    parameter.values[at] = kept - step;
    QUERN_ASSIGN(const double below, loss_now());
    parameter.values[at] = kept;
    const double difference = (above - below) / (2 * step);
    worst = std::max(worst, std::abs(gradient.values[at] - difference) / (std::abs(difference) + typical));
  }
  return worst;
}

// Whether every gradient is within `bar`. The loss is taken in class f32 throughout: one whose activations are rounded to 8 bits has steps,
// and no slope.
Result<bool> check_gradients(Model model, Matrix x, const Matrix& target, Accuracy accuracy, double bar) {
  QUERN_ASSIGN(const Gradients g, gradients(model, x, target, accuracy));
  const auto loss_now = [&] { return loss(model, x, target, Accuracy::f32); };
  struct Check {
    const char* name;
    Matrix* parameter;
    const Matrix* gradient;
  };
  const Check checks[] = {{"A1", &model.first.a, &g.first.a},
                          {"B1", &model.first.b, &g.first.b},
                          {"A2", &model.second.a, &g.second.a},
                          {"B2", &model.second.b, &g.second.b},
                          {"X", &x, &g.x}};
  Random random(3);
  bool right = true;
  std::printf("gradients, class %s, worst relative error:", std::string(to_string(accuracy)).c_str());
  for (const Check& check : checks) {
    QUERN_ASSIGN(const double worst, worst_error(*check.parameter, *check.gradient, loss_now, random));
    std::printf(" %s %.1e", check.name, worst);
    right = right && worst <= bar;
  }
  std::printf(" (bar %.0e): %s\n", bar, right ? "right" : "WRONG");
  return right;
}

// ---- Then: does the loss fall?

class Adam {
 public:
  void update(Matrix& parameter, const Matrix& gradient, int step) {
    constexpr double kRate = 5e-3, kBeta1 = 0.9, kBeta2 = 0.99, kEpsilon = 1e-12;
    if (mean_.empty()) mean_ = square_ = std::vector<double>(parameter.values.size());
    for (std::size_t i = 0; i < mean_.size(); ++i) {
      const double g = gradient.values[i];
      mean_[i] = kBeta1 * mean_[i] + (1 - kBeta1) * g;
      square_[i] = kBeta2 * square_[i] + (1 - kBeta2) * g * g;
      const double mean = mean_[i] / (1 - std::pow(kBeta1, step)), square = square_[i] / (1 - std::pow(kBeta2, step));
      parameter.values[i] -= kRate * mean / (std::sqrt(square) + kEpsilon);
    }
  }

 private:
  std::vector<double> mean_, square_;
};

struct Batch {
  Matrix x, target;
};

// Whether the loss over all batches ends below a fifth of where it began.
Result<bool> train(Model model, const std::vector<Batch>& batches, int steps) {
  constexpr double kFactor = 5;
  Adam adam[4];
  std::vector<double> losses;
  for (int step = 1; step <= steps; ++step) {
    const Batch& batch = batches[static_cast<std::size_t>(step - 1) % batches.size()];
    QUERN_ASSIGN(const Gradients g, gradients(model, batch.x, batch.target, Accuracy::normal));
    adam[0].update(model.first.a, g.first.a, step);
    adam[1].update(model.first.b, g.first.b, step);
    adam[2].update(model.second.a, g.second.a, step);
    adam[3].update(model.second.b, g.second.b, step);
    losses.push_back(g.loss);
    if (step == 1 || step % 10 == 0) std::printf("step %3d  loss %.5f\n", step, g.loss);
  }
  const auto mean = [&](auto from) { return std::accumulate(from, from + kBatches, 0.0) / kBatches; };
  const double before = mean(losses.begin()), after = mean(losses.end() - kBatches);
  const bool fell = after * kFactor <= before;
  std::printf("loss, mean of %ld batches: %.5f at first, %.5f at last: %s\n", static_cast<long>(kBatches), before, after,
              fell ? "it fell" : "it did NOT fall to a fifth");
  return fell;
}

void report(const Device& device, const FrozenWeight& w1, const FrozenWeight& w2) {
  std::printf("what ran on %s:\n", device.context().device_spec().c_str());
  for (const auto& record : device.context().launch_records())
    std::printf("  %5llu x %-10s %s\n", static_cast<unsigned long long>(record.count), record.family.c_str(), record.problem.c_str());
  std::printf("memory: %zu bytes of weights, at most %zu of workspace; dequantized copies would take %zu\n", w1.bytes() + w2.bytes(),
              device.workspace_bytes(), static_cast<std::size_t>(w1.n() * w1.k() + w2.n() * w2.k()) * sizeof(float));
}

Result<bool> run(const quern::ContextOptions& options, int steps) {
  QUERN_ASSIGN(Device device, Device::open(options));
  Random random(1);
  QUERN_ASSIGN(const FrozenWeight w1, FrozenWeight::make(device, kHidden, kIn, random));
  QUERN_ASSIGN(const FrozenWeight w2, FrozenWeight::make(device, kOut, kHidden, random));
  const auto model = [&](double deviation_of_b) {
    return Model{&w1, &w2, Adapter::random(w1, deviation_of_b, random), Adapter::random(w2, deviation_of_b, random)};
  };
  const Model teacher = model(0.2);
  std::vector<Batch> batches;
  for (int i = 0; i < kBatches; ++i) {
    Batch batch{Matrix::random(kTokens, kIn, 1, random), {}};
    QUERN_ASSIGN(batch.target, predict(teacher, batch.x, Accuracy::f32));
    batches.push_back(std::move(batch));
  }

  // Adapters start at B = 0, where A has no gradient; the check needs them away from there.
  const Model elsewhere = model(0.1);
  bool right = true;
  // Class normal allows each product a root mean square error of 0.7%, and a gradient has three of them behind it.
  for (const auto& [accuracy, bar] : {std::pair{Accuracy::f32, 1e-3}, std::pair{Accuracy::normal, 3e-2}}) {
    QUERN_ASSIGN(const bool ok, check_gradients(elsewhere, batches[0].x, batches[0].target, accuracy, bar));
    right = right && ok;
  }
  QUERN_ASSIGN(const bool fell, train(model(0), batches, steps));
  report(device, w1, w2);
  return right && fell;
}

}  // namespace

int main(int argc, char** argv) {
  quern::ContextOptions options = quern::from_environment();
  options.record_launches = true;
  int steps = 80;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--device" && !value.empty()) {
      options.device = value;
    } else if (name == "--steps" && std::atoi(value.c_str()) >= 2 * kBatches) {
      steps = std::atoi(value.c_str());
    } else {
      std::fprintf(stderr, "usage: lora_train [--device cuda:N|host|auto] [--steps N], N at least %d\n", static_cast<int>(2 * kBatches));
      return 2;
    }
  }
  const auto done = run(options, steps);
  if (!done) {
    std::fprintf(stderr, "lora_train: %s\n", done.error().message.c_str());
    return done.error().code == quern::ErrorCode::kEnvironment ? 3 : 1;
  }
  return *done ? 0 : 1;
}
