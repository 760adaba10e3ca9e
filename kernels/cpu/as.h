/* as.h - defines the names by which a *_t.h file refers to its element type. It is included many times:
 *
 *     #define AS 32
 *     #include "as.h"
 *     #include "norm_t.h"      // F(name) is name_f32, T float, V LANES floats; BURST floats are CPU_BURST bytes
 *     #define AS 64
 *     #include "as.h"
 *     #include "norm_t.h"
 *     #define AS 0             // undefines the short names, so that system headers may follow
 *     #include "as.h"
 */
#undef T
#undef TI
#undef V
#undef VI
#undef F
#undef LANES
#undef T_BITS
#undef BURST

#if AS == 32
#define T       float
#define TI      int32_t
#define V       vf32
#define VI      vi32
#define F(name) name##_f32
#define LANES   (CPU_VECTOR / 4)
#define T_BITS  32
#define BURST   (CPU_BURST / 4)
#elif AS == 64
#define T       double
#define TI      int64_t
#define V       vf64
#define VI      vi64
#define F(name) name##_f64
#define LANES   (CPU_VECTOR / 8)
#define T_BITS  64
#define BURST   (CPU_BURST / 8)
#endif
#undef AS
