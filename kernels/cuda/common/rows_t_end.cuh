/* rows_t_end.cuh - forgets what rows_t.cuh defined, for the next dtype. */
#undef GM_V
#undef GM_E
#undef GM_N
#undef GM_EACH_PART
#undef GM_EACH_PACK
#undef GM_PACK_PLACE
#undef GM_HELD_WHOLE
