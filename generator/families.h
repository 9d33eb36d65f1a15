// One accessor per family; the list of them is in family.cc.
#pragma once

#include "generator/family.h"

namespace quern {

const Family& generic_family();
const Family& dequantize_family();
const Family& repack_family();
const Family& gemv_f32_family();
const Family& gemv_q8_family();
const Family& gemm_family();
const Family& wgmma_family();
const Family& gemm_t_family();
const Family& wgmma_t_family();
const Family& quantize_rows_family();
const Family& rpbh_quantize_family();
const Family& int8_dot_family();
const Family& int8_mma_family();
const Family& w4a4_pairs_family();
const Family& w4a4_table_family();
const Family& w4a4_register_family();
const Family& w4a4_mma_family();

}  // namespace quern
