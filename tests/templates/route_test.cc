// mul_mat_id on the host target with ids chosen by hand: what the sweep's random ones do not hold for certain.
#include <gtest/gtest.h>

#include "geometry/gemm.h"
#include "tests/templates/host_products.h"

namespace quern::test {
namespace {

using Ids = std::vector<std::int32_t>;

Problem routed(std::int64_t m, std::int64_t used, std::int64_t experts, bool broadcast, Accuracy accuracy = Accuracy::normal) {
  return {.op = Op::mul_mat_id,
          .type = WeightType::q4_0,
          .layout = Layout::planar,
          .m = m,
          .n = 37,
          .k = 160,
          .accuracy = accuracy,
          .experts = experts,
          .used = used,
          .x_broadcast = broadcast};
}

class Routing : public HostTarget {
 protected:
  // Runs a kernel on these ids; Y has a row per (token, slot).
  static Result<std::vector<float>> run(LoadedKernel& kernel, const Problem& p, const Ids& ids, std::span<const std::byte> w,
                                        std::span<const std::byte> x) {
    const Problem one{.type = p.type, .layout = p.layout, .n = p.n, .k = p.k};
    const std::size_t expert = w.size() / static_cast<std::size_t>(p.experts), stride = (expert + 255) / 256 * 256;
    std::vector<std::byte> image(stride * static_cast<std::size_t>(p.experts));
    for (std::size_t e = 0; e < static_cast<std::size_t>(p.experts); ++e) {
      const auto matrix = in_layout(one, w.subspan(e * expert, expert));
      std::copy(matrix.begin(), matrix.end(), image.begin() + static_cast<std::ptrdiff_t>(e * stride));
    }
    std::vector<float> y(static_cast<std::size_t>(p.m * p.used * p.n), -2.6e36f);
    KernelArgs args = dense_args(p, image.data(), x.data(), y.data(), kernel.workspace());
    args.ldx = p.x_broadcast ? 0 : p.k, args.ldy = p.n;
    args.x_stride2 = p.k * (p.x_broadcast ? 1 : p.used), args.y_stride2 = p.n * p.used;
    args.w_stride2 = static_cast<long long>(stride);
    args.ids = ids.data(), args.ids_stride = p.used, args.used = p.used, args.experts = p.experts;
    QUERN_TRY(kernel.poison_workspace());
    QUERN_TRY(kernel.run(args));
    return y;
  }

  // What is wrong, row by row: an id that names no expert wants NaN in all of its row.
  static std::string check(LoadedKernel& kernel, const Problem& p, const Ids& ids) {
    const auto w = random_weights(p.type, p.n * p.experts, p.k, 61);
    const auto x = random_activations(p.x_type, p.m * (p.x_broadcast ? 1 : p.used), p.k, 62);
    const auto y = run(kernel, p, ids, w, x);
    if (!y) return y.error().message;
    const auto again = run(kernel, p, ids, w, x);
    if (!again || std::memcmp(y->data(), again->data(), y->size() * 4) != 0) return "a second run gives other bits";
    const std::size_t expert = w.size() / static_cast<std::size_t>(p.experts), x_row = static_cast<std::size_t>(p.k * 4);
    const Problem row{.type = p.type, .m = 1, .n = p.n, .k = p.k};
    for (std::size_t r = 0; r < ids.size(); ++r) {
      const float* got = y->data() + r * static_cast<std::size_t>(p.n);
      const std::string at = "row " + std::to_string(r) + " of expert " + std::to_string(ids[r]) + ": ";
      if (ids[r] < 0 || ids[r] >= p.experts) {
        if (!std::all_of(got, got + p.n, [](float v) { return std::isnan(v); })) return at + "is not NaN";
        continue;
      }
      const auto x_at = std::span<const std::byte>(x).subspan(r / static_cast<std::size_t>(p.x_broadcast ? p.used : 1) * x_row, x_row);
      const auto wrong = compare(row, std::span<const std::byte>(w).subspan(static_cast<std::size_t>(ids[r]) * expert, expert), x_at, got,
                                 kernel.source().accuracy);
      if (!wrong.empty()) return at + wrong;
    }
    return {};
  }

  // Every family's kernels, each on all of the lists of ids.
  void expect_right(const Problem& p, const std::vector<Ids>& lists) {
    for_each_kernel({p}, true, [&](const Problem& problem, const Config& config) -> std::string {
      auto kernel = load(problem, config);
      if (!kernel) return kernel.error().message;
      for (const Ids& ids : lists) {
        if (ids.size() != static_cast<std::size_t>(p.m * p.used)) return "ids are too few";
        if (auto wrong = check(**kernel, problem, ids); !wrong.empty()) return wrong;
      }
      return {};
    });
    std::size_t families = 0;
    for (const Family* family : families_for(p, Target{})) families += family->name() == "gemm";
    EXPECT_EQ(families, 1u) << "the tensor cores' family was not asked";
  }
};

TEST_F(Routing, AnIdThatNamesNoExpertGivesNaNAndDisturbsNoOtherRow) {
  Ids ids(48);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 7 % 5) - 1;  // -1 to 3, of 3 experts
  ids[17] = 2147483647, ids[18] = -2147483647 - 1;
  expect_right(routed(24, 2, 3, true), {ids, Ids(48, -1)});
  expect_right(routed(24, 2, 3, false, Accuracy::tight), {ids});
}

TEST_F(Routing, OneExpertMayGetEveryRowAndTheOthersNone) { expect_right(routed(35, 2, 8, false), {Ids(70, 0), Ids(70, 3), Ids(70, 7)}); }

TEST_F(Routing, ATokenMayNameAnExpertTwiceAndMoreSlotsThanThereAreExperts) {
  Ids ids(60);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i / 3 % 2);
  expect_right(routed(12, 5, 2, true), {ids});
  expect_right(routed(12, 5, 2, false), {ids});
}

TEST_F(Routing, MostOfManyExpertsAreEmpty) {
  Ids ids(40);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i % 3 == 0 ? 127 : i % 5);
  expect_right(routed(10, 4, 128, true), {ids});
}

// The last tile of one expert and the first of the next never meet.
TEST(RoutedTiles, EveryExpertHasTilesEnoughForItsRows) {
  for (int tile_m : {8, 16, 64})
    for (std::int64_t row = 0; row < 3 * tile_m; ++row)
      for (std::int64_t count = 0; count < 3 * tile_m; ++count) {
        const RoutedTiles routed{row + count, 9, tile_m};
        EXPECT_GE(routed.first_tile(6, row + count) - routed.first_tile(5, row), ceil_div(count, tile_m)) << row << " " << count;
        EXPECT_LE(routed.first_tile(9, row + count), routed.tiles());
      }
}

}  // namespace
}  // namespace quern::test
