# registers.awk - reads what ptxas -v says of kernels: registers x threads of the largest block that each is launched
# with may be no more than the 65,536 of a multiprocessor, or the launch fails on the GPU. Other lines are passed on.
#
# Blocks: 512 threads (GM_TEAM_MOST), but for these. Attention's kernels have bounds of their own (GM_KERNEL_BOUND).
function largest_block(name) {
    if (name ~ /^gm_(sort_scan|sum_squares_join|top_k)/) return 1024 # GM_SCAN_THREADS, GM_JOIN_THREADS, reduce_pick.c
    if (name ~ /^gm_(gemm|grouped|attention)/) return 256
    if (name ~ /^gm_wgmma_[^j]/) return 384 # GM_WGMMA_THREADS
    if (name ~ /^gm_(unary|binary)/) return 256 # map.c
    if (name ~ /^gm_columns_(norm|activation|even)/) return 256 # GM_COLUMNS_WARPS
    if (name ~ /^gm_norm_grad_(held|small)/) return 384 # GM_NORM_GRAD_WARPS
    if (name ~ /^gm_(update|measure)_/) return 256 # GM_UPDATE_THREADS
    return 512
}
/^ptxas info/ {
    if (match($0, /entry function '[^']*'/)) name = substr($0, RSTART + 16, RLENGTH - 17)
    if (match($0, /Used [0-9]+ registers/)) {
        registers = substr($0, RSTART + 5) + 0
        registers = int((registers + 7) / 8) * 8 # they are given to a warp by eights
        block = largest_block(name)
        if (registers * block > 65536) {
            printf "error: %s uses %d registers; blocks of %d threads may use %d\n", name, registers, block,
                65536 / block
            bad = 1
        }
    }
    next
}
/bytes stack frame|^ *[0-9]+ bytes gmem/ { next }
{ print }
END { exit bad }
