/* as.h - defines the names by which a *_t.h file refers to its element type. It is included many times:
 *
 *     #define AS 32
 *     #include "as.h"
 *     #include "norm_t.h"      // F(name) is name_f32, T float, V LANES floats; BURST floats are CPU_BURST bytes
 *     #define AS 64
 *     #include "as.h"
 *     #include "norm_t.h"
 *     #define AS 16            // bf16: what lies in memory is E, M(name) is name_bf16; numbers are still T = float
 *     #include "as.h"
 *     #include "norm_t.h"
 *     #define AS 17            // f16, likewise: M(name) is name_f16
 *     #include "as.h"
 *     #include "norm_t.h"
 *     #define AS 0             // undefines the short names, so that system headers may follow
 *     #include "as.h"
 *
 * A file that is included for bf16 or f16, too, keeps two things apart: elements in memory (E; functions that have
 * pointers to them are M(name)), and numbers in registers (T and V; functions of numbers alone are F(name)). For f32
 * and f64 both are the same. */
#undef T
#undef TI
#undef V
#undef VI
#undef F
#undef E
#undef M
#undef E_BITS
#undef LANES
#undef T_BITS
#undef BURST

#if AS == 32 || AS == 16 || AS == 17
#define T       float
#define TI      int32_t
#define V       vf32
#define VI      vi32
#define F(name) name##_f32
#define LANES   (CPU_VECTOR / 4)
#define T_BITS  32
#elif AS == 64
#define T       double
#define TI      int64_t
#define V       vf64
#define VI      vi64
#define F(name) name##_f64
#define LANES   (CPU_VECTOR / 8)
#define T_BITS  64
#endif

#if AS == 16
#define M(name) name##_bf16
#elif AS == 17
#define M(name) name##_f16
#endif
#if AS == 16 || AS == 17
#define E      bits2
#define E_BITS 16
#define BURST  (CPU_BURST / 2)
#elif AS
#define E       T
#define M(name) F(name)
#define E_BITS  T_BITS
#define BURST   (CPU_BURST * 8 / T_BITS)
#endif
#undef AS
